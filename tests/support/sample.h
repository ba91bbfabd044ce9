/* SPDX-License-Identifier: Apache-2.0
 *
 * The number of cases that a test runs. Emulators and sanitizers make a test 5 to 20 times as slow.
 * So in a cross build or a build with a sanitizer (IS_SLOW), some tests run only a part of the
 * cases of their native run.
 * `tools/test long` runs all cases under qemu and with sanitizers, too (ATTNKIT_TEST_WHOLE in the
 * environment), and the long forms of tests natively (ATTNKIT_TEST_LONG).
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

/* Returns whether promises_main (call.h) leaves out the scalar kernels in this run. These kernels
 * take half of the time of a run with a sanitizer. The golden hashes still check the scalar
 * kernels. */
static inline bool is_without_scalar(void)
{
    return is_sampled_run();
}

/* Returns how many of `cases` to run: all, or one in `share`. */
static inline int sampled(int cases, int share)
{
    return is_sampled_run() ? cases / share : cases;
}

#endif
