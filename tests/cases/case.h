/* SPDX-License-Identifier: Apache-2.0
 *
 * A test case: the shape and options of one attention call and the layout of its tensors. It is a
 * list of values, one for each axis, so that cases can be drawn, covered pair by pair, printed and
 * run again. The tensors of a case are made from its seed, with the same bits on every machine.
 */
#ifndef ATTNKIT_TEST_CASE_H
#define ATTNKIT_TEST_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "tests/support/groups.h"
#include "tests/support/random.h"

/* The layout of rows. All tensors of a case have the same kind. */
enum layout_kind {
    DENSE,        /* [batch][head][row] */
    TOKEN_MAJOR,  /* [batch][row][head] */
    PADDED,       /* gaps of a few elements after every row and head, an odd start */
    REVERSED,     /* negative strides */
    BROADCAST,    /* k and v repeat over batch and heads by stride 0 */
    BEFORE_GUARD, /* each row ends at an unmapped page */
    AFTER_GUARD,  /* each row begins after an unmapped page */
    LAYOUT_KINDS,
};

enum mask_kind {
    MASK_NONE,
    MASK_UPPER_LEFT,
    MASK_BOTTOM_RIGHT,
    MASK_OFFSET_IN,       /* somewhere inside the keys */
    MASK_OFFSET_NEGATIVE, /* the first rows see nothing */
    MASK_OFFSET_BEYOND,   /* every row sees every key */
    MASK_KINDS,
};

enum data_kind {
    DATA_UNIFORM,  /* in [-1, 1) */
    DATA_PEAKED,   /* q so large that few keys have nearly all the weight; maxima that move */
    DATA_TINY,     /* subnormal v, products that underflow */
    DATA_SPECIAL,  /* NaN, infinities and signed zeros here and there */
    DATA_INTEGERS, /* many equal scores, exact sums */
    DATA_KINDS,    /* kinds on the axis; one more would change the cases of all golden hashes */
    DATA_HUGE,     /* v up to the largest number: sums that overflow */
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
    AXIS_KV_LENS, /* 0: all kv_len; 1: a length for each batch entry */
    AXIS_DATA,
    AXIS_SCALE, /* 0: default; 1: given; 2: given as 0; 3: given, negative */
    AXES,
};

struct test_case {
    int value[AXES]; /* values, not indices: 128 for head_dim 128 */
    uint64_t seed;   /* seed of the data, the offsets and the lengths */
};

/* Returns the values of an axis. */
int axis_values(enum axis axis, const int **values);

/* Returns about how many multiply-adds the reference takes for this case. */
double case_cost(const struct test_case *c);

/* Returns whether the rows of every tensor fit the guarded slots. */
bool case_fits_guards(const struct test_case *c);

void case_print(const struct test_case *c);

/* ------------------------------------------------------------------------------------------- */

/* The tensors of a case in memory, and the arguments that describe them. There is one setting at a
 * time, because the next one takes over its memory. */
struct setting {
    attnkit_attention_args args;
    struct groups groups; /* all groups of args */
    int64_t kv_lens[4], q_offsets[4];
    enum layout_kind layout;
    bool shared_kv; /* all batch entries and heads have the same k and v */
};

/* Lays the case out as `layout` says and fills the inputs. Gaps, and the K and V of keys that no
 * row sees, hold signalling NaN. The outputs hold a pattern. */
void setting_make(struct setting *s, const struct test_case *c, enum layout_kind layout);

/* Takes the result out of the outputs' rows and puts the pattern back. Returns true if no other
 * byte of the outputs' memory has changed. */
struct result;
bool setting_take_result(const struct setting *s, struct result *result);

/* Frees the memory. */
void setting_end(void);

/* ------------------------------------------------------------------------------------------- */

/* A result apart from its call: out, dense, [batch][q_heads][q_len][value_dim], and lse, dense,
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

/* Compares bits, as results must be compared: NaN must have the same bits, too. */
bool same_bits(const float *a, const float *b, size_t count);

/* Compares numbers on which results depend: any NaN equals any NaN. */
bool same_numbers(const float *a, const float *b, size_t count);

/* Prints the first difference for a failing test. */
void result_print_difference(const struct result *expected, const struct result *got);

uint64_t result_hash(const struct result *r);

/* ------------------------------------------------------------------------------------------- */

/* The way to run a case: by the public call, on a named instruction set, with one share for each of
 * `threads` threads; or by a table of kernels, for kernels that are in no list. */
struct runner {
    const char *isa;
    int threads;
    const struct kernels *kernels; /* NULL: by the public call */
};

/* Fails the test on any status but ATTNKIT_OK. */
void run_attention(const attnkit_attention_args *args, struct runner runner);

/* Lays out and runs a case, and compares the result with the expected one, or, if there is none,
 * with its hash. Then calls `then`, unless it is NULL, for further checks of the setting and the
 * result. Returns NULL or a text that says what is wrong, as `then` does. */
typedef const char *(*further_check)(const struct setting *s, const struct result *got,
                                     const struct test_case *c, struct runner runner);

const char *check_layout(const struct test_case *c, enum layout_kind layout, struct runner runner,
                         const struct result *expected, uint64_t hash, further_check then);

#endif
