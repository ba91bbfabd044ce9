/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of cases that ran, and of cases that differed, on each instruction set. Tallies serve
 * tests that run each case on all instruction sets in turn. These tests compute the scalar
 * reference, their slowest part, only once for each case.
 */
#ifndef ATTNKIT_TALLY_H
#define ATTNKIT_TALLY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

enum { MAX_ISAS = 8 };

struct tally {
    const char *isa;
    int checked, differ;
};

struct tallies {
    struct tally of[MAX_ISAS];
    int count;
};

/* Adds a tally for an instruction set. Returns a test that runs `test` with this tally as its
 * state, to report the counts after all cases have run. */
static inline struct CMUnitTest tally_test(struct tallies *tallies, const char *isa,
                                           void (*test)(void **state))
{
    struct tally *const t = &tallies->of[tallies->count++];
    *t = (struct tally){.isa = isa};
    return (struct CMUnitTest){isa, test, NULL, NULL, t};
}

static inline void assert_none_differs(const struct tally *t)
{
    printf("# %s: %d cases, %d differ\n", t->isa, t->checked, t->differ);
    assert_true(t->checked > 0);
    assert_int_equal(t->differ, 0);
}

#endif
