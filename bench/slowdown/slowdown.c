/* SPDX-License-Identifier: Apache-2.0
 *
 * A prefill that takes SLOWDOWN_PERCENT percent longer than the real prefill and gives the same
 * bits, to test `attnkit compare`. This file is built only with -Dslowdown. The linker then
 * redirects calls of attnkit_prefill to this file. The delay is a percentage of the call's own
 * time, so every instruction set gets the same percentage.
 */
#include "bench/measure/clock.h"
#include "kernels/attention/attention.h"

/* The percentage is volatile, so that libraries with different percentages have the same code at
 * the same addresses. The addresses alone can change times by more than a percent. */
static const volatile int64_t percent = SLOWDOWN_PERCENT;

/* The linker's --wrap needs these names. */
void __real_attnkit_prefill(const struct attention *a, const struct kernels *kernels,
                            const struct work_item *item, struct sights *sights, char *scratch);
void __wrap_attnkit_prefill(const struct attention *a, const struct kernels *kernels,
                            const struct work_item *item, struct sights *sights, char *scratch);

/* Runs the real prefill, and then waits for a percentage of its processor time. Time in which the
 * prefill waits for a processor is not counted, because a slower kernel would not wait longer. The
 * two readings of the clock of processor time take 1 us for each item, also at 0 percent. */
void __wrap_attnkit_prefill(const struct attention *a, const struct kernels *kernels,
                            const struct work_item *item, struct sights *sights, char *scratch)
{
    const int64_t begin = clock_nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    __real_attnkit_prefill(a, kernels, item, sights, scratch);
    const int64_t own = clock_nanoseconds(CLOCK_THREAD_CPUTIME_ID) - begin;
    const int64_t late = clock_nanoseconds(CLOCK_MONOTONIC) + own * percent / 100;
    while (clock_nanoseconds(CLOCK_MONOTONIC) < late)
        continue;
}
