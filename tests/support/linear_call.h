/* SPDX-License-Identifier: Apache-2.0
 *
 * A linear map with all its memory: x, w, the packed matrix, bias and y. The test chooses types and
 * layouts. The numbers are drawn from a seed. The map can be run in several ways. The packed matrix
 * is checked by the rules of attnkit/linear.h, and y by the scalar reference.
 */
#ifndef ATTNKIT_TEST_LINEAR_CALL_H
#define ATTNKIT_TEST_LINEAR_CALL_H

#include "attnkit.h"
#include "tests/cases/case.h"
#include "tests/support/memory.h"
#include "tests/support/tensor.h"

enum numbers {
    NORMAL,
    TINY,    /* small numbers; many products are subnormal, unless x is ATTNKIT_F16 */
    SPECIAL, /* some rows have NaN, infinities, zeros and the like */
    NUMBERS,
};

struct linear_kind {
    attnkit_type x_type, w_type, packed_type, y_type;
    bool bias;
    enum layout_kind layout; /* of x, w and y; for a tensor with rows of more than SLOT_BYTES bytes,
                              * PADDED replaces BEFORE_GUARD and AFTER_GUARD */
    enum numbers numbers;
    bool integers; /* ATTNKIT_INTEGERS; packed_type is ATTNKIT_Q8_0 */
};

struct linear_shape {
    int64_t rows, in_dim, out_dim;
};

/* A linear map and its memory. If the layout is AFTER_GUARD, `packed` and `bias` begin directly
 * after an unmapped page. In all other layouts, `packed` and `bias` end directly before an unmapped
 * page. The size of `packed` is rounded up to a multiple of 64 bytes. */
struct linear_call {
    attnkit_pack_args pack;
    attnkit_linear_args args;
    struct tensor x, w, y;
    struct guarded packed, bias;
};

enum { MATRIX_CONVERSIONS = 13 };

/* Every valid pair of w_type and packed_type. */
extern const attnkit_type matrix_conversions[MATRIX_CONVERSIONS][2];

/* Makes a new call. Its x, w and y lie in the memory of the previous call. The previous call is
 * then no longer valid. */
struct linear_call *linear_call_new(const struct linear_kind *kind, struct linear_shape shape,
                                    uint64_t seed);
void linear_call_free(struct linear_call *c);

/* linear_call_pack packs the matrix, and linear_call_run runs the map: by the public calls, or by
 * runner.kernels on one thread. With 2 threads, a parallel-for runs the tasks twice and backwards.
 * With more threads, the calls of all threads are made one after the other, the last thread's call
 * first. In linear_call_run, the workspace of public calls has exactly the bytes that the library
 * asks for. Both functions fail the test on any status but ATTNKIT_OK. */
void linear_call_pack(const struct linear_call *c, struct runner runner);
void linear_call_run(const struct linear_call *c, struct runner runner);

/* Returns whether `packed` holds w in tiles, converted to the packed type, with zeros in place of
 * outputs after the last output. No byte after the tiles may have been written. */
bool linear_call_is_packed(const struct linear_call *c);

/* Computes y by the scalar reference, from w and not from `packed`. The result is dense. The caller
 * frees the result. */
char *linear_call_reference(const struct linear_call *c);

/* Returns a dense copy of y, which the caller frees, and fills y with the pattern again. Returns
 * NULL if a byte outside y's rows has changed. */
char *linear_call_take(const struct linear_call *c);

/* Returns whether the first `rows` dense rows of y and z have the same bits. */
bool linear_call_same(const struct linear_call *c, const char *y, const char *z, int64_t rows);

/* Packs the matrix and runs the map. Checks the packed matrix by linear_call_is_packed, and y by
 * linear_call_reference. Returns NULL, or a message that says what differs or that a byte outside
 * y's rows has changed. */
const char *linear_call_check(const struct linear_call *c, struct runner runner);

#endif
