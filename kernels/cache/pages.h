/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a KV cache in pages: the block table of a batch entry says which page holds a row.
 */
#ifndef ATTNKIT_PAGES_H
#define ATTNKIT_PAGES_H

#include <stdint.h>

/* The pages of a cache. Row r of batch entry b is row r % size of page table[b * stride + r /
 * size]. Without a table there are no pages, and each batch entry has its own rows. */
struct pages {
    const int32_t *table; /* NULL: no pages */
    int64_t stride, size;
    int64_t count; /* number of pages */
};

/* The index of a row along the axes of its tensor, without the head. */
struct index {
    int64_t outer, row; /* outer: page or batch entry */
};

static inline struct index row_index(const struct pages *pages, int64_t batch, int64_t row)
{
    if (!pages->table)
        return (struct index){batch, row};
    return (struct index){pages->table[batch * pages->stride + row / pages->size],
                          row % pages->size};
}

#endif
