/* SPDX-License-Identifier: Apache-2.0
 *
 * How much of a test a run takes. Emulators and sanitizers make a test 5 to 20 times as slow: there
 * it takes a part of its cases, which the run on this CPU contains. `tools/test long` takes all of
 * them everywhere (ATTNKIT_TEST_WHOLE in the environment), and on this CPU the long form of those
 * tests that have one (ATTNKIT_TEST_LONG).
 */
#ifndef ATTNKIT_SAMPLE_H
#define ATTNKIT_SAMPLE_H

#include <stdbool.h>
#include <stdlib.h>

static inline bool is_long_run(void)
{
    return getenv("ATTNKIT_TEST_LONG") != NULL;
}

/* Whether tests take a part of their cases. */
static inline bool is_sampled_run(void)
{
    return IS_SLOW && !is_long_run() && !getenv("ATTNKIT_TEST_WHOLE");
}

/* Whether the scalar kernels are left to the run on this CPU, and here to the golden hashes. */
static inline bool is_without_scalar(void)
{
    return IS_EMULATED && is_sampled_run();
}

/* Of so many cases those to take: all, or one in `share`. */
static inline int sampled(int cases, int share)
{
    return is_sampled_run() ? cases / share : cases;
}

#endif
