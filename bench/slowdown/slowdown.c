/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill that takes SLOWDOWN_PERCENT longer than it needs, with the same bits: what the gate on
 * speed is tested on. Built by -Dslowdown alone, where the linker leads calls of attnkit_prefill
 * here. The share is that of the call's own time, so it is the same for every instruction set.
 */
#include "bench/measure/clock.h"
#include "kernels/attention/attention.h"

/* Not a constant to the compiler: libraries that differ in it alone have the same code at the same
 * addresses, whose luck is worth more than a percent. */
static const volatile int64_t percent = SLOWDOWN_PERCENT;

/* The names are those of the linker's --wrap. */
void __real_attnkit_prefill(const struct attention *a, const struct kernels *kernels,
                            const struct work_item *item, char *scratch);
void __wrap_attnkit_prefill(const struct attention *a, const struct kernels *kernels,
                            const struct work_item *item, char *scratch);

/* The share is one of processor time, in which waiting for a processor that others have does not
 * count: a kernel that is slower does not wait longer. Reading that clock twice takes 1 us of an
 * item, also where the share is 0. */
void __wrap_attnkit_prefill(const struct attention *a, const struct kernels *kernels,
                            const struct work_item *item, char *scratch)
{
    const int64_t begin = clock_nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    __real_attnkit_prefill(a, kernels, item, scratch);
    const int64_t own = clock_nanoseconds(CLOCK_THREAD_CPUTIME_ID) - begin;
    const int64_t late = clock_nanoseconds(CLOCK_MONOTONIC) + own * percent / 100;
    while (clock_nanoseconds(CLOCK_MONOTONIC) < late)
        continue;
}
