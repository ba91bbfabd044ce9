/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/tensor.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/memory.h"

const enum layout_kind tensor_layouts[TENSOR_LAYOUTS] = {DENSE, PADDED, REVERSED, BEFORE_GUARD,
                                                         AFTER_GUARD};

char *tensor_row(const struct tensor *t, int64_t outer, int64_t head, int64_t row)
{
    return t->first + outer * t->strides[0] + head * t->strides[1] + row * t->strides[2];
}

int64_t tensor_rows(const struct tensor *t)
{
    return t->count[0] * t->count[1] * t->count[2];
}

bool tensor_fits_slots(const struct tensor *t)
{
    return t->row_bytes <= SLOT_BYTES;
}

static void place_in_slots(struct tensor *t, enum layout_kind layout, int first_slot)
{
    t->piece = SLOT_BYTES;
    t->distance = SLOT_STRIDE;
    t->pieces = (size_t)tensor_rows(t);
    t->memory = memory_slots(first_slot, (int)t->pieces);
    t->first = t->memory + (layout == BEFORE_GUARD ? SLOT_BYTES - t->row_bytes : 0);
    t->strides[2] = SLOT_STRIDE;
    t->strides[1] = t->count[2] * t->strides[2];
    t->strides[0] = t->count[1] * t->strides[1];
}

static void place_in_arena(struct tensor *t, enum layout_kind layout, int arena, int64_t alignment)
{
    const int64_t gap = layout == DENSE ? 0 : 3 * alignment, row = t->row_bytes + gap;
    const int64_t size = tensor_rows(t) * row + 64;
    t->piece = t->distance = (size_t)size;
    t->pieces = 1;
    t->memory = memory_arena(arena, (size_t)size);
    t->first = t->memory + alignment;
    t->strides[2] = row;
    t->strides[1] = t->count[2] * t->strides[2];
    t->strides[0] = t->count[1] * t->strides[1];
    if (layout == PADDED) {
        t->strides[1] = row;
        t->strides[0] = t->count[1] * row;
        t->strides[2] = t->count[0] * t->strides[0];
    }
    if (layout == REVERSED) {
        t->first += (tensor_rows(t) - 1) * row;
        for (int i = 0; i < 3; i++)
            t->strides[i] = -t->strides[i];
    }
}

void tensor_place(struct tensor *t, enum layout_kind layout, int arena, int slot, int64_t alignment)
{
    if (layout == BEFORE_GUARD || layout == AFTER_GUARD)
        place_in_slots(t, layout, slot);
    else
        place_in_arena(t, layout, arena, alignment);
    for (size_t i = 0; i < t->pieces; i++)
        memset(t->memory + i * t->distance, PATTERN, t->piece);
}

char *tensor_copy(const struct tensor *t)
{
    char *copy = malloc(t->pieces * t->piece + 1);
    for (size_t i = 0; i < t->pieces; i++)
        memcpy(copy + i * t->piece, t->memory + i * t->distance, t->piece);
    return copy;
}

bool tensor_is_as_in(const struct tensor *t, const char *copy)
{
    for (size_t i = 0; i < t->pieces; i++)
        if (memcmp(t->memory + i * t->distance, copy + i * t->piece, t->piece) != 0)
            return false;
    return true;
}

char *tensor_in_copy(const struct tensor *t, char *copy, const char *byte)
{
    const size_t at = (size_t)(byte - t->memory);
    return copy + at / t->distance * t->piece + at % t->distance;
}
