/* SPDX-License-Identifier: Apache-2.0
 *
 * Entries of struct kernels in plain C, and the table of the scalar tiles. The other files of this
 * folder have the rest of the entries. These functions run on a CPU for which no other folder has
 * kernels, or if exec.isa or ATTNKIT_ISA names scalar. They are built without auto-vectorization,
 * so that "scalar" in a benchmark means scalar code. fma.h has the multiply-adds.
 */
#include "kernels/integers.h"
#include "kernels/scalar/scalar.h"

enum {
    VECTOR = 4,
    LANES = 8,
    DECODE_ROWS = 8,
    MATRIX_ROWS = 2,
    F32_MATRIX_ROWS = 2,
};

static void exp2_array(const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = scalar_exp2(x[i]);
}

static const float *row_at(struct rows rows, int i)
{
    return (const float *)(rows.first + i * rows.stride);
}

static void pack_q(const float *const *rows, int lanes, int64_t head_dim, float *q_t)
{
    for (int64_t d = 0; d < head_dim; d++)
        for (int lane = 0; lane < lanes; lane++)
            q_t[d * lanes + lane] = rows[lane][d];
}

static void scores(const float *q_t, int lanes, const struct rows *k, int keys, float *s,
                   const struct rows *ahead)
{
    (void)ahead;
    for (int key = 0; key < keys; key++) {
        const float *k_row = row_at(*k, key);
        float acc[LANES] = {0};
        for (int64_t d = 0; d < k->dim; d++)
            for (int lane = 0; lane < lanes; lane++)
                acc[lane] = fma_once(k_row[d], q_t[d * lanes + lane], acc[lane]);
        memcpy(s + key * lanes, acc, (size_t)lanes * sizeof *acc);
    }
}

/* Returns the new maximum M', from the maximum of the state and the first `visible` scores. */
static float moved_max(float row_max, const float *s, int stride, int visible, float scale_log2)
{
    float block_max = -INFINITY;
    for (int key = 0; key < visible; key++) {
        const float t = s[key * stride] * scale_log2;
        block_max = t > block_max ? t : block_max;
    }
    block_max = ceilf(block_max);
    return block_max > row_max ? block_max : row_max;
}

/* Turns the scores of one row into weights. Keys from `visible` on get the weight 0. */
static void softmax_row(float *s, int stride, int keys, int visible, float scale_log2,
                        float *row_max, float *row_sum, float *rescale)
{
    const float new_max = moved_max(*row_max, s, stride, visible, scale_log2);
    float sum = 0.0f;
    for (int key = 0; key < keys; key++) {
        const float t = key < visible ? s[key * stride] * scale_log2 : -INFINITY;
        const float p = scalar_exp2(t - finite_max(new_max));
        s[key * stride] = p;
        sum += p;
    }
    *rescale = scalar_exp2(*row_max - finite_max(new_max));
    *row_sum = fma_once(*row_sum, *rescale, sum);
    *row_max = new_max;
}

static void softmax(float *s, int lanes, int keys, const int32_t *visible, float scale_log2,
                    const struct state *st, float *rescale)
{
    for (int lane = 0; lane < lanes; lane++)
        softmax_row(s + lane, lanes, keys, visible ? visible[lane] : keys, scale_log2,
                    &st->row_max[lane], &st->row_sum[lane], &rescale[lane]);
}

/* Returns t of a score, see struct adjust. */
static float adjusted(const struct adjust *how, float s, float bias)
{
    const float x = how->capped ? scalar_tanh(s * how->to_cap) : s;
    return bias == -INFINITY ? -INFINITY : fma_once(x, how->factor, bias);
}

static void adjust(const struct adjust *how, const float *bias, size_t n, float *s)
{
    for (size_t i = 0; i < n; i++)
        s[i] = adjusted(how, s[i], bias ? bias[i] : -0.0f); /* -0 changes no number, not even -0 */
}

static void multiply(const float *factors, size_t n, float *s)
{
    for (size_t i = 0; i < n; i++)
        s[i] *= factors[i];
}

static void weighted_v(const float *p, int lanes, const float *rescale, const struct rows *v,
                       int keys, float *o, const struct rows *ahead)
{
    (void)ahead;
    for (int64_t c = 0; c < v->dim; c++) {
        float acc[LANES] = {0};
        for (int key = 0; key < keys; key++)
            for (int lane = 0; lane < lanes; lane++)
                acc[lane] = fma_once(p[key * lanes + lane], row_at(*v, key)[c], acc[lane]);
        for (int lane = 0; lane < lanes; lane++)
            o[c * lanes + lane] =
                rescale ? fma_once(o[c * lanes + lane], rescale[lane], acc[lane]) : acc[lane];
    }
}

static void begin_total(const struct total *total, const struct state *chunk, int lanes,
                        int64_t value_dim)
{
    for (int lane = 0; lane < lanes; lane++) {
        total->row_max[lane] = chunk->row_max[lane];
        total->row_sum[lane] = (double)chunk->row_sum[lane];
    }
    for (int64_t i = 0; i < value_dim * lanes; i++)
        total->out[i] = (double)chunk->out[i];
}

static double folded(double total, float chunk, double a, double b)
{
    return fma_by_power(total, a, (double)chunk * b);
}

static void fold(const struct total *total, const struct state *chunk, int lanes, int64_t value_dim)
{
    for (int lane = 0; lane < lanes; lane++) {
        const float max = total->row_max[lane], chunk_max = chunk->row_max[lane];
        const float new_max = chunk_max > max ? chunk_max : max;
        const double a = (double)scalar_exp2(max - finite_max(new_max));
        const double b = (double)scalar_exp2(chunk_max - finite_max(new_max));
        total->row_max[lane] = new_max;
        total->row_sum[lane] = folded(total->row_sum[lane], chunk->row_sum[lane], a, b);
        for (int64_t i = lane; i < value_dim * lanes; i += lanes)
            total->out[i] = folded(total->out[i], chunk->out[i], a, b);
    }
}

static void fold_row(double *o, const float *chunk, double a, double b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        o[i] = folded(o[i], chunk[i], a, b);
}

/* Returns quotient + 0, a value of the result, and adds this value to `sum`. */
static inline float result(float quotient, float *sum)
{
    const float x = quotient + 0.0f;
    *sum += x;
    return x;
}

/* Replaces every NaN of a row by the same NaN. Returns whether a value is not finite. */
static __attribute__((cold, noinline)) bool settle_row(float *out, int64_t n)
{
    bool finite = true;
    for (int64_t i = 0; i < n; i++) {
        out[i] = plain_nan(out[i]);
        finite &= fabsf(out[i]) < INFINITY;
    }
    return !finite;
}

/* Replaces NaNs as settle_row does, and returns whether a value of a row is not finite. `sum` is
 * the sum of the values. If `sum` is finite, all values are finite, and the row has no NaN. */
static inline bool is_not_finite(float sum, float *out, int64_t n)
{
    return !(fabsf(sum) < INFINITY) && settle_row(out, n);
}

/* Computes a row of the result from l, which is row_sum, and every `stride`th value of o. All NaNs
 * of the row are the same. Returns whether a value is not finite. */
static bool finish_row(const float *o, int64_t stride, float row_sum, int64_t value_dim, float *out)
{
    const float divisor = row_sum == 0.0f ? 1.0f : row_sum;
    float sum = 0.0f;
#pragma GCC unroll 4
    for (int64_t c = 0; c < value_dim; c++)
        out[c] = result(o[c * stride] / divisor, &sum);
    return is_not_finite(sum, out, value_dim);
}

/* Computes a row of the result. row_sum is the sum of the weights of a total. The weighted sums of
 * V are `o` of this total, or `chunk_o` of a chunk if `o` is NULL. All NaNs of the row are the
 * same. Returns whether a value is not finite. */
static bool finish_wide_row(const double *o, const float *chunk_o, int64_t stride, double row_sum,
                            int64_t value_dim, float *out)
{
    const double divisor = row_sum == 0.0 ? 1.0 : row_sum;
    float sum = 0.0f;
    for (int64_t c = 0; c < value_dim; c++) {
        const double x = o ? o[c * stride] : (double)chunk_o[c * stride];
        out[c] = result((float)(x / divisor), &sum);
    }
    return is_not_finite(sum, out, value_dim);
}

static uint64_t finish(const struct state *st, int lanes, int64_t value_dim, int rows,
                       float *const *out, float *const *lse)
{
    uint64_t not_finite = 0;
    for (int lane = 0; lane < rows; lane++) {
        const bool found =
            finish_row(st->out + lane, lanes, st->row_sum[lane], value_dim, out[lane]);
        not_finite |= (uint64_t)found << lane;
        if (lse)
            *lse[lane] = scalar_lse(st->row_max[lane], st->row_sum[lane]);
    }
    return not_finite;
}

static uint64_t finish_total(const struct total *total, const float *chunk_out, int lanes,
                             int64_t value_dim, int rows, float *const *out, float *const *lse)
{
    uint64_t not_finite = 0;
    for (int lane = 0; lane < rows; lane++) {
        const double l = total->row_sum[lane];
        const bool found =
            chunk_out ? finish_wide_row(NULL, chunk_out + lane, lanes, l, value_dim, out[lane])
                      : finish_wide_row(total->out + lane, NULL, lanes, l, value_dim, out[lane]);
        not_finite |= (uint64_t)found << lane;
        if (lse)
            *lse[lane] = scalar_lse(total->row_max[lane], (float)l);
    }
    return not_finite;
}

static bool quotient_row(const double *o, double divisor, int64_t n, float *out)
{
    return finish_wide_row(o, NULL, 1, divisor, n, out);
}

/* Returns element i of a row as binary32. */
static inline float element(const enum type type, struct key_row row, int64_t group, int64_t i)
{
    const char *const at = row.data + bytes_of(type, i / Q8_BLOCK * Q8_BLOCK);
    uint16_t half;
    switch (type) {
    case TYPE_F32:
        return ((const float *)row.data)[i];
    case TYPE_F16:
        return float_from_f16(((const uint16_t *)row.data)[i]);
    case TYPE_BF16:
        return float_from_bf16(((const uint16_t *)row.data)[i]);
    case TYPE_I8:
        return (float)(int8_t)row.data[i] * row.scales[i / group];
    default:
        memcpy(&half, at, sizeof half);
        return (float)(int8_t)at[sizeof half + i % Q8_BLOCK] * float_from_f16(half);
    }
}

static inline struct key_row row_of(const struct key_rows *rows, int key)
{
    return (struct key_row){rows->row[key], rows->scales ? rows->scales[key] : NULL};
}

/* Returns element d of key `key` of K, tiled or not. */
static inline float key_element(const enum type type, const struct key_rows *k, int key, int64_t d)
{
    if (!k->tiled)
        return element(type, row_of(k, key), k->scale_group, d);
    const int in_tile = key % TILE_KEYS;
    return tile_element(type, row_of(k, key - in_tile), k->scale_group, in_tile, d);
}

static inline float score_of(const enum type type, const float *q, const struct key_rows *k,
                             int key)
{
    require_built(type);
    float sum = 0.0f;
    for (int64_t d = 0; d < k->dim; d++)
        sum = fma_once(q[d], key_element(type, k, key, d), sum);
    return sum;
}

static float score(const float *q, const struct key_rows *k, int key)
{
    switch (k->type) {
    case TYPE_F32:
        return score_of(TYPE_F32, q, k, key);
    case TYPE_F16:
        return score_of(TYPE_F16, q, k, key);
    case TYPE_BF16:
        return score_of(TYPE_BF16, q, k, key);
    case TYPE_I8:
        return score_of(TYPE_I8, q, k, key);
    default:
        return score_of(TYPE_Q8_0, q, k, key);
    }
}

static inline float column_of(const enum type type, const float *p, const struct key_rows *v,
                              int keys, int64_t c)
{
    require_built(type);
    float sum = 0.0f;
    for (int key = 0; key < keys; key++)
        sum = fma_once(p[key], element(type, row_of(v, key), v->scale_group, c), sum);
    return sum;
}

/* Returns column c of the weighted sum of V. */
static float weighted_column(const float *p, const struct key_rows *v, int keys, int64_t c)
{
    switch (v->type) {
    case TYPE_F32:
        return column_of(TYPE_F32, p, v, keys, c);
    case TYPE_F16:
        return column_of(TYPE_F16, p, v, keys, c);
    case TYPE_BF16:
        return column_of(TYPE_BF16, p, v, keys, c);
    case TYPE_I8:
        return column_of(TYPE_I8, p, v, keys, c);
    default:
        return column_of(TYPE_Q8_0, p, v, keys, c);
    }
}

/* Turns the scores of row r into weights, and applies dropout to the weights. Returns the factor by
 * which o is rescaled. */
static float weigh_row(const struct decode_block *block, int r, float scale_log2, float *s)
{
    const int visible = block->visible[r];
    float rescale;
    if (block->adjust)
        adjust(block->adjust, block->bias ? block->bias[r] : NULL, (size_t)visible, s);
    softmax_row(s, 1, visible, visible, block->adjust ? 1.0f : scale_log2, &block->st->row_max[r],
                &block->st->row_sum[r], &rescale);
    for (int key = 0; block->keep && key < visible; key++)
        s[key] *= block->keep[r][key];
    return rescale;
}

static void decode_row(const struct decode_block *block, int r, float scale_log2)
{
    const int visible = block->visible[r];
    float s[KEY_BLOCK];
    for (int key = 0; key < visible; key++)
        s[key] = score(block->q[r], &block->k, key);
    const float rescale = weigh_row(block, r, scale_log2, s);
    float *const o = block->st->out + r * block->v.dim;
    for (int64_t c = 0; c < block->v.dim; c++)
        o[c] = fma_once(o[c], rescale, weighted_column(s, &block->v, visible, c));
}

static void decode(const struct decode_block *block, int rows, float scale_log2)
{
    for (int r = 0; r < rows; r++)
        decode_row(block, r, scale_log2);
}

/* --- Integers: step 16 of kernels/README.md -------------------------------------------------- */

/* Returns the scale of the block at element i of a key's row. Sets *bytes to the block's integers.
 */
static float block_at(const struct key_rows *rows, int key, int64_t i, const int8_t **bytes)
{
    const char *const integers = rows->row[key] + integers_in_row(rows->type, i);
    uint16_t half;
    *bytes = (const int8_t *)integers;
    if (is_i8(rows->type))
        return rows->scales[key][i / rows->scale_group];
    memcpy(&half, integers - sizeof half, sizeof half);
    return float_from_f16(half);
}

/* Does the work of block_at for a key in a tile of K. Copies the integers to `bytes`. */
static float block_in_tile(const struct key_rows *k, int key, int64_t d, int8_t bytes[Q8_BLOCK])
{
    const int in_tile = key % TILE_KEYS, first = key - in_tile;
    const char *const integers = k->row[first] + TILE_KEYS * integers_in_row(k->type, d);
    uint16_t halves[TILE_KEYS];
    for (int i = 0; i < Q8_BLOCK; i++)
        bytes[i] = (int8_t)integers[i * TILE_KEYS + in_tile];
    if (is_i8(k->type))
        return k->scales[first][d / k->scale_group * TILE_KEYS + in_tile];
    memcpy(halves, integers - sizeof halves, sizeof halves);
    return float_from_f16(halves[in_tile]);
}

static float integer_score(const float *q, const struct key_rows *k, int key)
{
    const int16_t *n = integers_of(q, k->dim);
    float s = 0.0f;
    for (int64_t d = 0; d < k->dim; d += Q8_BLOCK, n += Q8_BLOCK) {
        int8_t copied[Q8_BLOCK];
        const int8_t *x = copied;
        const float k_scale = k->tiled ? block_in_tile(k, key, d, copied) : block_at(k, key, d, &x);
        const float scale = k_scale * q[d / Q8_BLOCK];
        int32_t sum = 0;
        for (int i = 0; i < Q8_BLOCK; i += 4)
            sum += n[i] * x[i] + n[i + 1] * x[i + 2] + n[i + 2] * x[i + 1] + n[i + 3] * x[i + 3];
        s = fma_once((float)sum, scale, s);
    }
    return s;
}

/* Sets sums[i] to the weighted sum of column c + i of V, for Q8_BLOCK columns. */
static void integer_columns(const float *p, const struct key_rows *v, int keys, int64_t c,
                            float *sums)
{
    int32_t sum[Q8_BLOCK] = {0};
    float weight[KEY_BLOCK];
    const int8_t *x;
    uint32_t largest = 0;
    for (int key = 0; key < keys; key++) {
        weight[key] = p[key] * block_at(v, key, c, &x);
        const uint32_t bits = magnitude_bits(weight[key]);
        largest = bits > largest ? bits : largest;
    }
    const struct integer_scale s = integer_scale_of(largest);
    for (int key = 0; key < keys && !isnan(s.scale); key++) {
        const int32_t n = (int32_t)rintf(weight[key] * s.inverse);
        block_at(v, key, c, &x);
        for (int i = 0; i < Q8_BLOCK; i++)
            sum[i] += n * x[i];
    }
    for (int i = 0; i < Q8_BLOCK; i++)
        sums[i] = (float)sum[i] * s.scale;
}

static void decode_integers(const struct decode_block *block, int rows, float scale_log2)
{
    require_built_integers();
    for (int r = 0; r < rows; r++) {
        const int visible = block->visible[r];
        float s[KEY_BLOCK], sums[Q8_BLOCK];
        for (int key = 0; key < visible; key++)
            s[key] = integer_score(block->q[r], &block->k, key);
        const float rescale = weigh_row(block, r, scale_log2, s);
        float *const o = block->st->out + r * block->v.dim;
        for (int64_t c = 0; c < block->v.dim; c++) {
            if (c % Q8_BLOCK == 0)
                integer_columns(s, &block->v, visible, c, sums);
            o[c] = fma_once(o[c], rescale, sums[c % Q8_BLOCK]);
        }
    }
}

static const struct integer_kernels integers = {
    .round_row = round_row,
    .decode = decode_integers,
    .panel = HAS_INTEGERS ? &attnkit_scalar_integer_panel : NULL,
};

static uint64_t decode_finish(const struct state *st, int rows, int64_t value_dim,
                              float *const *out, float *const *lse)
{
    uint64_t not_finite = 0;
    for (int r = 0; r < rows; r++) {
        const bool found =
            finish_row(st->out + r * value_dim, 1, st->row_sum[r], value_dim, out[r]);
        not_finite |= (uint64_t)found << r;
        if (lse)
            *lse[r] = scalar_lse(st->row_max[r], st->row_sum[r]);
    }
    return not_finite;
}

static void head_scores(const float *q_t, const float *k_t, int rows, int keys, int64_t head_dim,
                        float *s)
{
    for (int key = 0; key < keys; key++)
        for (int lane = 0; lane < rows * VECTOR; lane++) {
            const float *q = q_t + lane, *k = k_t + key * VECTOR + lane % VECTOR;
            float acc = 0.0f;
            for (int64_t d = 0; d < head_dim; d++, q += rows * VECTOR, k += keys * VECTOR)
                acc = fma_once(*k, *q, acc);
            s[key * rows * VECTOR + lane] = acc;
        }
}

static uint64_t head_out(const struct head_weights *weights, const struct rows *v, int rows,
                         float *const *out)
{
    uint64_t not_finite = 0;
    for (int r = 0; r < rows; r++) {
        for (int64_t c = 0; c < v->dim; c++) {
            float acc = 0.0f;
            for (int key = 0; key < weights->visible[r * VECTOR]; key++)
                acc = fma_once(weights->p[key * weights->lanes + r * VECTOR], row_at(*v, key)[c],
                               acc);
            out[r][c] = acc;
        }
        const bool found = finish_row(out[r], 1, weights->divisor[r * VECTOR], v->dim, out[r]);
        not_finite |= (uint64_t)found << r;
    }
    return not_finite;
}

const struct kernels attnkit_scalar = {
    .name = "scalar",
    .vector = VECTOR,
    .lanes = LANES,
    .decode_rows = DECODE_ROWS,
    .f32_decode_rows = DECODE_ROWS,
    .far_rest_rows = VECTOR / 2,
    .f32_far_rest_rows = VECTOR / 2,
    .near_rest_bytes = 1 << 20,
    .exp2 = exp2_array,
    .widen = attnkit_scalar_widen,
    .unpack = attnkit_scalar_unpack,
    .widen_tile = attnkit_scalar_widen_tile,
    .narrow = attnkit_scalar_narrow,
#ifndef ATTNKIT_WITHOUT_APPEND
    .rotate = attnkit_scalar_rotate,
#endif
    .fill_pointers = attnkit_scalar_fill_pointers,
    .nonzero = attnkit_scalar_nonzero,
    .same_ids = attnkit_scalar_same_ids,
    .unmasked = attnkit_scalar_unmasked,
    .bias_line = attnkit_scalar_bias_line,
    .keep_line = attnkit_scalar_keep_line,
    .compact_line = attnkit_scalar_compact_line,
    .spread_line = attnkit_scalar_spread_line,
    .mean = attnkit_scalar_mean,
    .pack_q = pack_q,
    .scores = scores,
    .softmax = softmax,
    .adjust = adjust,
    .multiply = multiply,
    .weighted_v = weighted_v,
    .begin_total = begin_total,
    .fold = fold,
    .finish = finish,
    .finish_total = finish_total,
    .decode = decode,
    .decode_finish = decode_finish,
    .fold_row = fold_row,
    .quotient_row = quotient_row,
    .head_scores = head_scores,
    .head_out = head_out,
#ifndef ATTNKIT_WITHOUT_LINEAR
    .matrix_rows = MATRIX_ROWS,
    .f32_matrix_rows = F32_MATRIX_ROWS,
    .widen_matrix = attnkit_scalar_widen_matrix,
    .product = attnkit_scalar_product,
    .few_product = attnkit_scalar_few_product,
    .matrix_integers = &attnkit_scalar_matrix_integers,
#endif
    .integers = HAS_INTEGERS ? &integers : NULL,
#ifndef ATTNKIT_WITHOUT_PRODUCTS
    .grouped = &attnkit_scalar_grouped,
#endif
};
