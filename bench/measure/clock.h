/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the clocks of the system.
 */
#ifndef ATTNKIT_CLOCK_H
#define ATTNKIT_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t clock_nanoseconds(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static inline double clock_seconds(clockid_t clock)
{
    return 1e-9 * (double)clock_nanoseconds(clock);
}

#endif
