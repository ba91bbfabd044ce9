/* SPDX-License-Identifier: Apache-2.0
 *
 * A tensor in the memory of a test: dense, with gaps, with negative strides, or with an unmapped
 * page next to each row. tensor_copy copies this memory, and a test writes the bytes that it
 * expects into the copy.
 */
#ifndef ATTNKIT_TEST_TENSOR_H
#define ATTNKIT_TEST_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/cases/case.h"

enum {
    TENSOR_LAYOUTS = 5,
    PATTERN = 0xa5, /* a byte of memory that no call has written */
};

/* DENSE, PADDED ([row][batch][head] with gaps), REVERSED, BEFORE_GUARD and AFTER_GUARD. */
extern const enum layout_kind tensor_layouts[TENSOR_LAYOUTS];

/* Rows at fixed strides in `pieces` pieces of memory. Each piece has `piece` bytes, and the pieces
 * begin `distance` bytes apart. `count` and `strides` are by batch entry (or page), head and
 * row. */
struct tensor {
    char *memory;
    size_t piece, distance, pieces;
    char *first; /* row 0 of head 0 of batch entry (or page) 0 */
    int64_t count[3], strides[3], row_bytes;
};

/* Returns whether each row fits a slot of memory.h. */
bool tensor_fits_slots(const struct tensor *t);

/* Lays out a tensor whose count and row_bytes are set, and fills its memory with the pattern.
 * `layout` is one of tensor_layouts. With BEFORE_GUARD and AFTER_GUARD, each row has a slot, and
 * `slot` is the number of the first slot. With other layouts, the tensor lies in the arena with the
 * index `arena`, which no other tensor uses. `alignment` is the alignment of an element, in
 * bytes. */
void tensor_place(struct tensor *t, enum layout_kind layout, int arena, int slot,
                  int64_t alignment);

int64_t tensor_rows(const struct tensor *t);
char *tensor_row(const struct tensor *t, int64_t outer, int64_t head, int64_t row);

/* Returns a contiguous copy of the tensor's memory, which the caller frees. */
char *tensor_copy(const struct tensor *t);

/* Returns whether the tensor's memory has the bytes of the copy. */
bool tensor_is_as_in(const struct tensor *t, const char *copy);

/* Returns where a byte of the tensor's memory lies in the copy. */
char *tensor_in_copy(const struct tensor *t, char *copy, const char *byte);

#endif
