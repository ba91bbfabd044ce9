/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the range of the key indices of a batch entry, and then lists its keys in the table of
 * cells. Listing also detects that two cells have the same index. If an index is wrong, the cells
 * are searched again for this index, so that the message can name the cell. The entries are listed
 * from the last entry to entry 0. So the table has the keys of entry 0 afterwards. A run on one
 * thread begins with entry 0, and need not list the keys of entry 0 again.
 */
#include "dispatch/attention/bind_cells.h"

#include "dispatch/common/message.h"

static int64_t index_at(const struct attention *a, int64_t b, int64_t cell)
{
    return int_at(a->cells.index, b * a->cells.stride + cell);
}

/* Returns the first cell of entry b that has the index `index`. There must be such a cell. */
static int64_t find(const struct attention *a, int64_t b, int64_t index)
{
    int64_t cell = 0;
    while (index_at(a, b, cell) != index)
        cell++;
    return cell;
}

static attnkit_status check_range(const struct attention *a, int64_t b, struct index_range range,
                                  char *message)
{
    const int64_t most = INT64_MAX - CHUNK_KEYS;
    if (range.least < -1 && range.least != INT64_MAX)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "key_index[%lld][%lld] is %lld: must be at least -1, which is an empty cell",
                      (long long)b, (long long)find(a, b, range.least), (long long)range.least);
    if (range.largest > most)
        return refuse(message, ATTNKIT_OVERFLOW,
                      "key_index[%lld][%lld] is %lld: must be at most 2^63 - 1 - %d", (long long)b,
                      (long long)find(a, b, range.largest), (long long)range.largest, CHUNK_KEYS);
    if (range.largest >= 0 && range.largest - range.smallest > MOST_SPREAD * a->kv_len)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "key_index[%lld][%lld] is %lld: must be at most %d * kv_len (%lld) more "
                      "than the smallest index (%lld)",
                      (long long)b, (long long)find(a, b, range.largest), (long long)range.largest,
                      MOST_SPREAD, (long long)a->kv_len, (long long)range.smallest);
    return ATTNKIT_OK;
}

/* Checks that q_offsets[b] minus the absolute index of key 0 of entry b does not overflow. */
static attnkit_status check_offset(const struct attention *a, int64_t b, char *message)
{
    const int64_t first_key = first_key_of(a, b);
    int64_t from_first;
    if (!a->q_offsets.data ||
        !__builtin_sub_overflow(int_at(a->q_offsets, b), first_key, &from_first))
        return ATTNKIT_OK;
    return refuse(message, ATTNKIT_OVERFLOW,
                  "q_offsets[%lld] is %lld: must be at least -2^63 + %lld, the first key of the "
                  "chunk of the smallest key_index",
                  (long long)b, (long long)int_at(a->q_offsets, b), (long long)first_key);
}

static attnkit_status bind_entry(const struct attention *a, const struct kernels *kernels,
                                 int64_t b, char *message)
{
    const struct index_range range = attnkit_index_range(a, b);
    attnkit_status status = check_range(a, b, range, message);
    if (status != ATTNKIT_OK)
        return status;
    a->cells.table->spans[b] = attnkit_key_span(range);
    const int64_t twice = attnkit_list_cells(a, kernels, b);
    if (twice < 0)
        return check_offset(a, b, message);
    const int64_t index = index_at(a, b, twice);
    return refuse(message, ATTNKIT_BAD_ARGUMENT,
                  "key_index[%lld][%lld] is %lld: cell %lld has this index, too", (long long)b,
                  (long long)twice, (long long)index, (long long)find(a, b, index));
}

attnkit_status attnkit_bind_cells(struct attention *a, const struct kernels *kernels, char *memory,
                                  char *message)
{
    attnkit_status status = ATTNKIT_OK;
    a->cells.table = attnkit_begin_cells(a, memory);
    for (int64_t b = a->batch - 1; status == ATTNKIT_OK && b >= 0; b--) /* ends with entry 0 */
        status = bind_entry(a, kernels, b, message);
    return status;
}
