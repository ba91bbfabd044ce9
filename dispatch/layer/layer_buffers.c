/* SPDX-License-Identifier: Apache-2.0
 *
 * Places the buffers of struct layer_buffers in the workspace. Most buffers hold results of a
 * layer's parts. The bytes of these results grow with the number of rows.
 */
#include "dispatch/layer/layer_plan.h"
#include "dispatch/linear/matrix.h"

enum { FLOAT = sizeof(float) /* bytes */ };

/* Memory, and how many of its bytes are taken. If memory is NULL, bytes are only counted. */
struct buffer_taking {
    char *memory;
    int64_t taken;
};

/* Takes bytes, rounded up to whole cache lines. Returns NULL if the bytes are not wanted, or only
 * counted. */
static void *take(struct buffer_taking *from, bool wanted, int64_t bytes)
{
    const int64_t first = from->taken;
    if (!wanted)
        return NULL;
    from->taken += (bytes + MATRIX_ALIGNMENT - 1) / MATRIX_ALIGNMENT * MATRIX_ALIGNMENT;
    return from->memory ? from->memory + first : NULL;
}

static int64_t rows_bytes(int64_t rows, int64_t dim)
{
    return rows * dim * FLOAT;
}

int64_t attnkit_place_layer_buffers(const struct layer_plan *plan,
                                    const struct layer_lengths *lengths, char *memory,
                                    struct layer_buffers *b)
{
    const struct projection_shape *const p = plan->layer.projection;
    const struct layer_options *const has = &plan->has;
    const int64_t q = rows_bytes(lengths->q_rows, p[Q].out_dim);
    const int64_t k = rows_bytes(lengths->k_rows, p[K].out_dim);
    const int64_t result = rows_bytes(lengths->q_rows, p[O].in_dim);
    const int64_t weight_rows = lengths->q_rows * plan->layer.q_heads;
    const bool rotates_here = has->rotates && has->projects_keys && !has->appends;
    struct buffer_taking from = {.memory = memory};
    b->verdict = take(&from, true, sizeof *b->verdict);
    b->kv_lens = take(&from, has->has_cache, lengths->batch * (int64_t)sizeof *b->kv_lens);
    b->result = take(&from, true, has->rotates && q > result ? q : result);
    b->q = take(&from, true, q);
    b->q_raw = has->rotates ? b->result : b->q;
    b->k = take(&from, has->projects_keys, k);
    b->k_raw = rotates_here ? take(&from, true, k) : b->k;
    b->v = take(&from, has->projects_keys, rows_bytes(lengths->k_rows, p[V].out_dim));
    b->weights = take(&from, has->owns_weights,
                      has->owns_weights ? rows_bytes(weight_rows, lengths->room) : 0);
    return from.taken;
}
