/* SPDX-License-Identifier: Apache-2.0
 *
 * A kind of golden case: calls of one sort, each with a number. golden.txt has the hash of the
 * result of each call.
 *
 * A case never changes. A generator in the file of the kind makes the case from the kind's seed and
 * the case's number. The only allowed change to a generator is a new case after the last case. A
 * feature of a later version (a type, a mask, an option) gets a kind of its own, with a seed of its
 * own.
 */
#ifndef ATTNKIT_TEST_GOLDEN_KIND_H
#define ATTNKIT_TEST_GOLDEN_KIND_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/support/random.h"

struct golden_attention;

struct golden_kind {
    const char *name; /* name of the kind in golden.txt */
    int count;        /* number of cases, which are numbered from 0 */
    int ways;         /* number of memory layouts of a case; the hash is the same in each */

    /* Returns the hash of all result bytes of a case on an instruction set, or of the reference if
     * isa is NULL. The reference is the code in kernels/scalar/reference.c and reference_linear.c.
     * For features that these two files lack, the scalar kernels take the place of the reference.
     * Fails the test on any status but ATTNKIT_OK. */
    uint64_t (*hash)(const struct golden_kind *kind, int number, int way, const char *isa);

    /* Prints the case on one or two lines, as TAP comments. */
    void (*print)(const struct golden_kind *kind, int number);

    /* Describes a case. Only the kinds of attention.c have this function. */
    void (*describe)(int number, struct golden_attention *what);
};

/* The kinds of a file. */
struct golden_kinds {
    const struct golden_kind *list;
    int count;
};

extern const struct golden_kinds golden_f32, golden_attention, golden_states, golden_merge,
    golden_append, golden_angles, golden_linear, golden_layer;

/* Returns the seed of a case's random numbers. */
static inline uint64_t golden_random(uint64_t kind_seed, int number)
{
    uint64_t state =
        kind_seed * UINT64_C(0xd1342543de82ef95) + (uint64_t)number * UINT64_C(0x2545f4914f6cdd1d);
    return random_bits(&state);
}

static inline bool golden_one_in(uint64_t *random, int64_t n)
{
    return random_below(random, n) == 0;
}

#endif
