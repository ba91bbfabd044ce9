/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread's share of the work, from which others take as well when they are through with theirs.
 */
#ifndef ATTNKIT_QUEUE_H
#define ATTNKIT_QUEUE_H

#include <stdatomic.h>
#include <stdint.h>

/* next .. end - 1 are left; next may be beyond the end. One in a cache line. */
struct queue {
    _Alignas(64) _Atomic int64_t next;
    int64_t end;
};

#endif
