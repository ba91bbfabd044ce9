/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention for few query rows of one KV head, a decoding step above all: one walk over the keys,
 * a fused tile per block. Called by dispatch/api.c for each work item, and by prefill.c for
 * rows whose result is not finite.
 */
#include <math.h>
#include <string.h>

#include "keys.h"
#include "mask.h"

size_t attnkit_decode_scratch(const struct attention *a, int rows)
{
    return 2 * (size_t)rows * (size_t)(a->value_dim + 2) * sizeof(float);
}

static struct state take_state(float **scratch, int rows, int64_t value_dim)
{
    const struct state st = {
        .row_max = *scratch, .row_sum = *scratch + rows, .out = *scratch + 2 * rows};
    *scratch += rows * (value_dim + 2);
    return st;
}

static void reset(struct state st, int rows, int64_t value_dim)
{
    for (int r = 0; r < rows; r++)
        st.row_max[r] = -INFINITY;
    memset(st.row_sum, 0, (size_t)rows * sizeof(float));
    memset(st.out, 0, (size_t)(rows * value_dim) * sizeof(float));
}

/* The blocks from `first` to the end of its chunk. */
static void attend_chunk(const struct attention *a, const struct kernels *kernels,
                         struct work_item item, const float *const *q, const int64_t *end,
                         int64_t first, struct state st)
{
    const int64_t last_end = end[item.rows - 1];
    const int64_t chunk_end = last_end < first + CHUNK_KEYS ? last_end : first + CHUNK_KEYS;
    for (int64_t block = first; block < chunk_end; block += KEY_BLOCK) {
        int32_t visible[MAX_DECODE_ROWS];
        for (int r = 0; r < item.rows; r++)
            visible[r] = visible_in_block(end[r], block);
        kernels->decode(item.rows, q, visible, k_rows(a, item.batch, item.kv_head, block),
                        v_rows(a, item.batch, item.kv_head, block), a->scale_log2, st);
    }
}

void attnkit_decode(const struct attention *a, const struct kernels *kernels, struct work_item item,
                    char *scratch)
{
    float *floats = (float *)scratch;
    const struct state total = take_state(&floats, item.rows, a->value_dim);
    const struct state chunk = take_state(&floats, item.rows, a->value_dim);
    const float *q[MAX_DECODE_ROWS];
    float *out[MAX_DECODE_ROWS], *lse[MAX_DECODE_ROWS];
    int64_t end[MAX_DECODE_ROWS];
    for (int r = 0; r < item.rows; r++) {
        const int64_t row = item.first_row + r;
        q[r] = q_row(a, item.batch, item.kv_head, row);
        out[r] = out_row(a, item.batch, item.kv_head, row);
        lse[r] = a->lse ? lse_row(a, item.batch, item.kv_head, row) : NULL;
        end[r] = visible_end(a, item.batch, row);
    }

    reset(total, item.rows, a->value_dim);
    for (int64_t first = 0; first < end[item.rows - 1]; first += CHUNK_KEYS) {
        /* The first chunk needs no state of its own, as in prefill.c. */
        const struct state st = first == 0 ? total : chunk;
        if (first > 0)
            reset(chunk, item.rows, a->value_dim);
        attend_chunk(a, kernels, item, q, end, first, st);
        if (first > 0)
            kernels->decode_fold(item.rows, total, chunk, a->value_dim);
    }
    kernels->decode_finish(item.rows, total, a->value_dim, out, a->lse ? lse : NULL);
}
