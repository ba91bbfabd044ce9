/* SPDX-License-Identifier: Apache-2.0
 *
 * A linear map with all its memory: w, which is packed, x, bias and y, of any types and laid out in
 * any way, drawn from a seed. Each test runs it on what it is about, and asks whether the packed
 * matrix is as the header says, and y as the scalar reference says.
 */
#ifndef ATTNKIT_TEST_LINEAR_CALL_H
#define ATTNKIT_TEST_LINEAR_CALL_H

#include "attnkit.h"
#include "tests/cases/case.h"
#include "tests/support/memory.h"
#include "tests/support/tensor.h"

enum numbers {
    NORMAL,
    TINY,    /* products that are subnormal */
    SPECIAL, /* some rows have NaN, infinities, zeros and the like */
    NUMBERS,
};

struct linear_kind {
    attnkit_type x_type, w_type, packed_type, y_type;
    bool bias;
    enum layout_kind layout; /* of x, w and y; where a row does not fit a slot it is PADDED */
    enum numbers numbers;
};

struct linear_shape {
    int64_t rows, in_dim, out_dim;
};

/* What lies next to an unmapped page if rows do so: packed and bias, on the same side. */
struct linear_call {
    attnkit_pack_args pack;
    attnkit_linear_args args;
    struct tensor x, w, y;
    struct guarded packed, bias;
};

enum { MATRIX_CONVERSIONS = 13 };

/* Every w_type with each packed_type that it can have. */
extern const attnkit_type matrix_conversions[MATRIX_CONVERSIONS][2];

/* The only call whose memory is valid, until the next. */
struct linear_call *linear_call_new(const struct linear_kind *kind, struct linear_shape shape,
                                    uint64_t seed);
void linear_call_free(struct linear_call *c);

/* By the public calls, or with runner.kernels on one thread. Tasks of 2 threads are run by a
 * parallel-for, twice and backwards; those of more in calls of their own, backwards. The workspace
 * has no byte too many. Fails the test on any status but ATTNKIT_OK. */
void linear_call_pack(const struct linear_call *c, struct runner runner);
void linear_call_run(const struct linear_call *c, struct runner runner);

/* Whether `packed` is w in tiles, and nothing after them has been written. */
bool linear_call_is_packed(const struct linear_call *c);

/* y of the scalar reference, from w itself: dense, to be freed. */
char *linear_call_reference(const struct linear_call *c);

/* Takes the result out of the rows of y, dense, to be freed, and puts the pattern back. NULL if
 * another byte of y's memory has changed. */
char *linear_call_take(const struct linear_call *c);

/* Whether dense rows of y have the same bits. */
bool linear_call_same(const struct linear_call *c, const char *y, const char *z, int64_t rows);

/* Packs, runs and compares. Returns NULL or what is wrong. */
const char *linear_call_check(const struct linear_call *c, struct runner runner);

#endif
