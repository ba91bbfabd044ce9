/* SPDX-License-Identifier: Apache-2.0
 *
 * The number of cases that a test runs. Emulators and sanitizers make a test 5 to 20 times as slow.
 * There, a test runs only some of the cases of the native run. `tools/test long` sets
 * ATTNKIT_TEST_WHOLE in the environment, which makes tests run all cases everywhere. It also sets
 * ATTNKIT_TEST_LONG, which makes tests that have a long form run it natively.
 */
#ifndef ATTNKIT_SAMPLE_H
#define ATTNKIT_SAMPLE_H

#include <stdbool.h>
#include <stdlib.h>

static inline bool is_long_run(void)
{
    return getenv("ATTNKIT_TEST_LONG") != NULL;
}

/* Returns whether tests run only a part of their cases. */
static inline bool is_sampled_run(void)
{
    return IS_SLOW && !is_long_run() && !getenv("ATTNKIT_TEST_WHOLE");
}

/* Returns whether this run tests the scalar kernels by the golden hashes only, which have every
 * feature. Other tests of the scalar kernels then run natively only, because scalar kernels take
 * half of the time of a run with a sanitizer. */
static inline bool is_without_scalar(void)
{
    return is_sampled_run();
}

/* Returns how many of `cases` cases to run: all, or one in `share` in a sampled run. */
static inline int sampled(int cases, int share)
{
    return is_sampled_run() ? cases / share : cases;
}

#endif
