/* SPDX-License-Identifier: Apache-2.0
 *
 * A test case: the shape and options of one attention call, and the layout of its tensors. A case
 * is a list of values, one for each axis. So cases can be drawn, printed and run again, and a set
 * of cases can cover all pairs of values of two axes. The tensors of a case are made from its
 * values and its seed, with the same bits on every machine.
 */
#ifndef ATTNKIT_TEST_CASE_H
#define ATTNKIT_TEST_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "tests/support/groups.h"
#include "tests/support/random.h"

/* The layout of rows. All tensors of a case have the same layout, with one exception: with
 * BROADCAST, q and the outputs are PADDED. */
enum layout_kind {
    DENSE,        /* [batch][head][row] */
    TOKEN_MAJOR,  /* [batch][row][head] */
    PADDED,       /* gaps of a few elements after every row and head, and before the first row */
    REVERSED,     /* as PADDED, but all strides are negative */
    BROADCAST,    /* k and v have strides of 0 over batch and heads */
    BEFORE_GUARD, /* each row ends at an unmapped page */
    AFTER_GUARD,  /* each row begins after an unmapped page */
    LAYOUT_KINDS,
};

enum mask_kind {
    MASK_NONE,
    MASK_UPPER_LEFT,
    MASK_BOTTOM_RIGHT,
    MASK_OFFSET_IN,       /* the offset is 0 .. kv_len */
    MASK_OFFSET_NEGATIVE, /* the first rows see no key */
    MASK_OFFSET_BEYOND,   /* every row sees every key */
    MASK_KINDS,
};

enum data_kind {
    DATA_UNIFORM,  /* in [-1, 1) */
    DATA_PEAKED,   /* large q: few keys have nearly all the weight, and later keys raise maxima */
    DATA_TINY,     /* v is subnormal, and products underflow */
    DATA_SPECIAL,  /* here and there NaN, an infinity, a zero, 3e38, -3e38 or 1e-45 */
    DATA_INTEGERS, /* small integers: dot products are exact, and many scores are equal */
    DATA_KINDS,    /* number of kinds that drawn cases have */
    DATA_HUGE,     /* v reaches the largest number, so that sums overflow; not in drawn cases */
};

enum axis {
    AXIS_HEAD_DIM,
    AXIS_VALUE_DIM,
    AXIS_Q_LEN,
    AXIS_KV_LEN,
    AXIS_GROUP,
    AXIS_MASK,
    AXIS_LAYOUT,
    AXIS_THREADS,
    AXIS_BATCH,
    AXIS_KV_HEADS,
    AXIS_KV_LENS, /* 0: every length is kv_len; 1: each batch entry has its own length */
    AXIS_DATA,
    AXIS_SCALE, /* 0: default; 1: given; 2: given as 0; 3: given, negative */
    AXES,
};

struct test_case {
    int value[AXES]; /* values, not indices: 128 for head_dim 128 */
    uint64_t seed;   /* seed of the data, the offsets and the lengths */
};

/* Sets *values to the values of an axis and returns their number. */
int axis_values(enum axis axis, const int **values);

/* Returns the approximate cost of a case in multiply-adds of the reference. */
double case_cost(const struct test_case *c);

/* Returns whether there are enough slots (tests/support/memory.h) for the rows of all tensors. */
bool case_fits_guards(const struct test_case *c);

void case_print(const struct test_case *c);

/* ------------------------------------------------------------------------------------------- */

/* The tensors of a case in memory, and the arguments that describe them. There is only one setting
 * at a time: a new setting takes over the memory of the previous setting. */
struct setting {
    attnkit_attention_args args;
    struct groups groups; /* all groups of args */
    int64_t kv_lens[4], q_offsets[4];
    enum layout_kind layout;
    bool shared_kv; /* all batch entries and heads have the same k and v */
};

/* Lays the case out as `layout` says and fills the inputs. The gaps of the inputs, and the K and V
 * of keys that no row sees, hold signalling NaN or are unmapped. The outputs hold a pattern. */
void setting_make(struct setting *s, const struct test_case *c, enum layout_kind layout);

/* Copies the rows of the outputs to `result`, and then overwrites the outputs with the pattern.
 * Returns true if no other byte of the outputs' memory has changed. */
struct result;
bool setting_take_result(const struct setting *s, struct result *result);

/* Frees the memory of all settings. */
void setting_end(void);

/* ------------------------------------------------------------------------------------------- */

/* A dense copy of a result: out is [batch][q_heads][q_len][value_dim], and lse is
 * [batch][q_heads][q_len].
 */
struct result {
    float *out, *lse;
    size_t out_count, lse_count;
};

struct result result_new(const attnkit_attention_args *args);
void result_free(struct result *r);

/* Computes the result of the scalar reference. */
void result_from_reference(struct result *r, const attnkit_attention_args *args);

/* Returns whether two arrays of `count` floats have the same bits. NaN must have the same bits,
 * too. */
bool same_bits(const float *a, const float *b, size_t count);

/* As same_bits, except that any NaN equals any NaN. */
bool same_numbers(const float *a, const float *b, size_t count);

/* Prints the first difference in out and the first difference in lse, as TAP comments. */
void result_print_difference(const struct result *expected, const struct result *got);

uint64_t result_hash(const struct result *r);

/* ------------------------------------------------------------------------------------------- */

/* The way to run a case. If `kernels` is NULL, the public call runs on a named instruction set,
 * with one share for each of `threads` threads. Otherwise the loops run with the table `kernels`,
 * on one thread. The library need not list this table. */
struct runner {
    const char *isa;
    int threads;
    const struct kernels *kernels; /* NULL for the public call */
};

/* Runs attention. Ends the program on any status but ATTNKIT_OK. */
void run_attention(const attnkit_attention_args *args, struct runner runner);

/* check_layout lays out and runs a case. The call must not write bytes outside the rows of the
 * outputs. check_layout compares the result with `expected`. If `expected` is NULL, check_layout
 * compares the hash of the result with `hash`. If the result is right, and `then` is not NULL,
 * check_layout calls `then` for further checks of the setting and the result. check_layout and
 * `then` return NULL, or a message that describes the fault. */
typedef const char *(*further_check)(const struct setting *s, const struct result *got,
                                     const struct test_case *c, struct runner runner);

const char *check_layout(const struct test_case *c, enum layout_kind layout, struct runner runner,
                         const struct result *expected, uint64_t hash, further_check then);

#endif
