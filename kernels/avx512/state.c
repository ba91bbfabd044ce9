/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax states: folding the state of a chunk into the total, and the result of a total,
 * out = o / l + 0 and lse = M ln 2 + log l. Twice: for panels, with rows across the lanes, and for
 * decode, with a line per row. Called at the end of a chunk and of an item. Bound by memory, and
 * finish by the division and the shuffles of its 16x16 transposes.
 */
#include "kernels/avx512/avx512.h"

/* The new M and l of some rows, and the factors of both o. */
struct fold {
    __m512 row_max, row_sum, a, b;
};

static inline struct fold fold_rows(__m512 max, __m512 sum, __m512 chunk_max, __m512 chunk_sum)
{
    struct fold f;
    f.row_max = _mm512_max_ps(chunk_max, max);
    const __m512 subtrahend = finite_max(f.row_max);
    f.a = exp2_v(_mm512_sub_ps(max, subtrahend));
    f.b = exp2_v(_mm512_sub_ps(chunk_max, subtrahend));
    f.row_sum = _mm512_fmadd_ps(sum, f.a, _mm512_mul_ps(chunk_sum, f.b));
    return f;
}

static inline __m512 fold_out(__m512 o, __m512 chunk, struct fold f)
{
    return _mm512_fmadd_ps(o, f.a, _mm512_mul_ps(chunk, f.b));
}

void attnkit_avx512_fold(const struct state *total, const struct state *chunk, int lanes,
                         int64_t value_dim)
{
    for (int lane = 0; lane < lanes; lane += VECTOR) {
        const struct fold f =
            fold_rows(_mm512_load_ps(total->row_max + lane), _mm512_load_ps(total->row_sum + lane),
                      _mm512_load_ps(chunk->row_max + lane), _mm512_load_ps(chunk->row_sum + lane));
        _mm512_store_ps(total->row_max + lane, f.row_max);
        _mm512_store_ps(total->row_sum + lane, f.row_sum);
        for (int64_t i = lane; i < value_dim * lanes; i += lanes)
            _mm512_store_ps(total->out + i, fold_out(_mm512_load_ps(total->out + i),
                                                     _mm512_load_ps(chunk->out + i), f));
    }
}

void attnkit_avx512_decode_fold(const struct state *total, const struct state *chunk, int rows,
                                int64_t value_dim)
{
    for (int r = 0; r < rows; r++) {
        const struct fold f =
            fold_rows(_mm512_set1_ps(total->row_max[r]), _mm512_set1_ps(total->row_sum[r]),
                      _mm512_set1_ps(chunk->row_max[r]), _mm512_set1_ps(chunk->row_sum[r]));
        total->row_max[r] = _mm512_cvtss_f32(f.row_max);
        total->row_sum[r] = _mm512_cvtss_f32(f.row_sum);
        float *o = total->out + r * value_dim;
        const float *chunk_o = chunk->out + r * value_dim;
        for (int64_t c = 0; c < value_dim; c += VECTOR) {
            const int64_t left = value_dim - c;
            store_first(o + c, left,
                        fold_out(load_first(o + c, left), load_first(chunk_o + c, left), f));
        }
    }
}

static inline __m512 log_sum_exp(__m512 row_max, __m512 row_sum)
{
    const __m512 log_sum = Sleef_finz_logf16_u10avx512f(row_sum);
    const __m512 low = _mm512_fmadd_ps(row_max, _mm512_set1_ps(LN2_LO), log_sum);
    return _mm512_fmadd_ps(row_max, _mm512_set1_ps(LN2_HI), low);
}

/* Sixteen lanes by up to sixteen columns from `column` on, turned so that a row is in a register.
 * Lanes of `spoilt` become NaN where they have a value that is not finite: only then x - x is not
 * 0. */
static inline __attribute__((always_inline)) __m512 finish_tile(const float *o, int lanes,
                                                                int64_t column, int64_t columns,
                                                                __m512 divisor, int rows,
                                                                float *const *out, __m512 spoilt)
{
    __m512 r[VECTOR];
    for (int i = 0; i < VECTOR; i++) {
        r[i] = _mm512_setzero_ps();
        if (i < columns)
            r[i] = result(_mm512_load_ps(o + (column + i) * lanes), divisor);
        spoilt = _mm512_add_ps(spoilt, _mm512_sub_ps(r[i], r[i]));
    }
    transpose(r);
    for (int i = 0; i < VECTOR; i++)
        if (i < rows)
            store_first(out[i] + column, columns, r[i]);
    return spoilt;
}

/* Sixteen lanes, of which the first `rows` are written; returns a bit for each lane as finish does,
 * and something for spare ones. */
static uint64_t finish_lanes(__m512 row_sum, const float *o, int lanes, int64_t value_dim, int rows,
                             float *const *out)
{
    const __m512 l = divisor(row_sum);
    __m512 spoilt = _mm512_setzero_ps();
    int64_t c = 0;
    for (; c + VECTOR <= value_dim; c += VECTOR)
        spoilt = finish_tile(o, lanes, c, VECTOR, l, rows, out, spoilt);
    if (c < value_dim)
        spoilt = finish_tile(o, lanes, c, value_dim - c, l, rows, out, spoilt);
    return _mm512_cmp_ps_mask(spoilt, spoilt, _CMP_UNORD_Q);
}

static void finish_lse(__m512 row_max, __m512 row_sum, int rows, float *const *lse)
{
    float values[VECTOR];
    _mm512_storeu_ps(values, log_sum_exp(row_max, row_sum));
    for (int i = 0; i < VECTOR && i < rows; i++)
        *lse[i] = values[i];
}

uint64_t attnkit_avx512_finish(const struct state *st, int lanes, int64_t value_dim, int rows,
                               float *const *out, float *const *lse)
{
    uint64_t not_finite = 0;
    for (int lane = 0; lane < rows; lane += VECTOR) {
        const __m512 row_sum = _mm512_load_ps(st->row_sum + lane);
        not_finite |=
            finish_lanes(row_sum, st->out + lane, lanes, value_dim, rows - lane, out + lane)
            << lane;
        if (lse)
            finish_lse(_mm512_load_ps(st->row_max + lane), row_sum, rows - lane, lse + lane);
    }
    return not_finite & UINT64_MAX >> (64 - rows);
}

void attnkit_avx512_decode_finish(const struct state *st, int rows, int64_t value_dim,
                                  float *const *out, float *const *lse)
{
    for (int r = 0; r < rows; r++) {
        const __m512 row_sum = _mm512_set1_ps(st->row_sum[r]);
        const __m512 l = divisor(row_sum);
        const float *o = st->out + r * value_dim;
        int64_t c = 0;
        for (; c + VECTOR <= value_dim; c += VECTOR)
            _mm512_storeu_ps(out[r] + c, result(_mm512_loadu_ps(o + c), l));
        if (c < value_dim)
            store_first(out[r] + c, value_dim - c, result(load_first(o + c, value_dim - c), l));
        if (lse)
            *lse[r] = _mm512_cvtss_f32(log_sum_exp(_mm512_set1_ps(st->row_max[r]), row_sum));
    }
}

void attnkit_avx512_part_state(const float *out, float l, int64_t value_dim, float *o)
{
    const __m512 factor = _mm512_set1_ps(l);
    for (int64_t c = 0; c < value_dim; c += VECTOR) {
        const int64_t left = value_dim - c;
        store_first(o + c, left, _mm512_mul_ps(load_first(out + c, left), factor));
    }
}
