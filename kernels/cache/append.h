/* SPDX-License-Identifier: Apache-2.0
 *
 * Appending rows to a KV cache: the arguments of one call after dispatch/ has checked them, and the
 * loop over its rows. Optional arrays may be missing. Every other option that the caller left out
 * has its default. A row here is all heads of one position of one batch entry. Rows are counted
 * through the whole batch. Batch entry b has append_len(a, b) rows.
 */
#ifndef ATTNKIT_APPEND_H
#define ATTNKIT_APPEND_H

#include "kernels/attention/attention.h"
#include "kernels/cache/pages.h"

struct append {
    int64_t batch, heads, len, dim;
    enum type src_type, dst_type;
    int64_t group; /* for TYPE_I8: elements of a head that share a scale */
    const char *src;
    char *dst, *scales; /* scales for TYPE_I8 */
    bool tiled;         /* dst is tiled, as K in struct key_rows */
    /* If dst is paged, `batch` of dst_stride and of scale_stride is the stride from page to page.
     * If dst is tiled, `row` of both strides is the stride from tile to tile. */
    struct strides src_stride, dst_stride, scale_stride;
    struct ints starts; /* no array: 0 */
    struct ints lens;   /* no array: len */
    struct pages pages;

    int64_t pairs; /* pairs of elements that are rotated in each head; 0: no rotation */
    bool interleaved;
    struct ints positions;  /* no array: starts */
    const float *cos, *sin; /* [position][pairs]; NULL: computed from base */
    double base;
};

static inline int64_t append_start(const struct append *a, int64_t batch)
{
    return a->starts.data ? int_at(a->starts, batch) : 0;
}

static inline int64_t append_len(const struct append *a, int64_t batch)
{
    return a->lens.data ? int_at(a->lens, batch) : a->len;
}

static inline int64_t append_position(const struct append *a, int64_t batch)
{
    return a->positions.data ? int_at(a->positions, batch) : append_start(a, batch);
}

/* Returns the number of bytes of scratch for each thread. */
size_t attnkit_append_scratch(const struct append *a);

/* Appends rows first .. end - 1. `memory` is the scratch, aligned to 8 bytes. */
void attnkit_append_rows(const struct append *a, const struct kernels *kernels, int64_t first,
                         int64_t end, char *memory);

#endif
