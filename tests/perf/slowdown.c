/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the delay of -Dslowdown with made-up clocks. An item is delayed by a percentage of its
 * processor time, not of its wall time. The item itself is computed only once, with the caller's
 * arguments.
 */
#include "bench/slowdown/slowdown.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { READING = 20, ITEM = 1000000, WAITED = 7000000 /* nanoseconds */ };

static int64_t wall, processor;
static int items;
static struct sights *sights_seen;
static char *scratch_seen;

/* A made-up clock. Reading it takes READING nanoseconds. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    wall += READING;
    processor += READING;
    const int64_t now = clock == CLOCK_THREAD_CPUTIME_ID ? processor : wall;
    *time = (struct timespec){now / 1000000000, now % 1000000000};
    return 0;
}

/* Takes the place of the real prefill of an item. The item needs ITEM nanoseconds of processor
 * time, and waits WAITED nanoseconds while other processes run. */
void __real_attnkit_prefill(const struct attention *a, const struct kernels *kernels,
                            const struct work_item *item, struct sights *sights, char *scratch)
{
    assert_null(a);
    assert_null(kernels);
    sights_seen = sights;
    assert_int_equal(item->first_row, 256);
    scratch_seen = scratch;
    processor += ITEM;
    wall += ITEM + WAITED;
    items++;
}

static void an_item_is_delayed_by_its_percentage(void **state)
{
    (void)state;
    char scratch;
    struct sights sights;
    const struct work_item item = {.first_row = 256};
    wall = processor = 5;
    items = 0;
    __wrap_attnkit_prefill(NULL, NULL, &item, &sights, &scratch);
    const int64_t late = wall - 5 - ITEM - WAITED;
    assert_int_equal(items, 1);
    assert_ptr_equal(sights_seen, &sights);
    assert_ptr_equal(scratch_seen, &scratch);
    assert_in_range(late, ITEM * SLOWDOWN_PERCENT / 100,
                    ITEM * SLOWDOWN_PERCENT / 100 + 5 * READING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_item_is_delayed_by_its_percentage)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
