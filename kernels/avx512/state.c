/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to a softmax state after its blocks: the first chunk of a panel becomes its total,
 * later ones fold in, and a state or a total becomes the result, out = o / l + 0 and
 * lse = M ln 2 + log l. For panels, with rows across the lanes, and for decode, with a line per
 * row. Called at the end of a chunk and of an item. Registers are plenty; folding is bound by
 * memory, and finishing by the division and the shuffles of its 16x16 transposes.
 */
#include "kernels/avx512/avx512.h"

enum { WIDE = 8 /* doubles in a zmm */ };

static inline void widen_lanes(const float *from, double *to)
{
    for (int i = 0; i < VECTOR; i += WIDE)
        _mm512_store_pd(to + i, _mm512_cvtps_pd(_mm256_load_ps(from + i)));
}

void attnkit_avx512_begin_total(const struct total *total, const struct state *chunk, int lanes,
                                int64_t value_dim)
{
    for (int lane = 0; lane < lanes; lane += VECTOR) {
        _mm512_store_ps(total->row_max + lane, _mm512_load_ps(chunk->row_max + lane));
        widen_lanes(chunk->row_sum + lane, total->row_sum + lane);
    }
    for (int64_t i = 0; i < value_dim * lanes; i += VECTOR)
        widen_lanes(chunk->out + i, total->out + i);
}

/* What l and o of some rows are multiplied by before they are added up. */
struct factors {
    __m512d total[VECTOR / WIDE], chunk[VECTOR / WIDE];
};

/* A binary32 factor for each of 16 rows. */
static inline void widen_factors(__m512 x, __m512d wide[VECTOR / WIDE])
{
    wide[0] = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    wide[1] = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
}

/* Moves M on. */
static inline struct factors fold_max(float *row_max, const float *chunk_max)
{
    const __m512 max = _mm512_load_ps(row_max), other = _mm512_load_ps(chunk_max);
    const __m512 new_max = _mm512_max_ps(other, max), subtrahend = finite_max(new_max);
    __m512 x[] = {_mm512_sub_ps(max, subtrahend), _mm512_sub_ps(other, subtrahend)};
    struct factors by;
    exp2_vectors(x, 2);
    widen_factors(x[0], by.total);
    widen_factors(x[1], by.chunk);
    _mm512_store_ps(row_max, new_max);
    return by;
}

static inline __m512d folded(__m512d total, __m256 chunk, __m512d a, __m512d b)
{
    return _mm512_fmadd_pd(total, a, _mm512_mul_pd(_mm512_cvtps_pd(chunk), b));
}

static inline void fold_lanes(double *total, const float *chunk, const struct factors *by)
{
    for (int i = 0; i < VECTOR / WIDE; i++, total += WIDE, chunk += WIDE)
        _mm512_store_pd(total, folded(_mm512_load_pd(total), _mm256_load_ps(chunk), by->total[i],
                                      by->chunk[i]));
}

void attnkit_avx512_fold(const struct total *total, const struct state *chunk, int lanes,
                         int64_t value_dim)
{
    for (int lane = 0; lane < lanes; lane += VECTOR) {
        const struct factors by = fold_max(total->row_max + lane, chunk->row_max + lane);
        double *o = total->out + lane;
        const float *chunk_o = chunk->out + lane;
        fold_lanes(total->row_sum + lane, chunk->row_sum + lane, &by);
        for (int64_t c = 0; c < value_dim; c++, o += lanes, chunk_o += lanes)
            fold_lanes(o, chunk_o, &by);
    }
}

void attnkit_avx512_fold_row(double *o, const float *chunk, double a, double b, int64_t n)
{
    const __m512d by = _mm512_set1_pd(a), chunk_by = _mm512_set1_pd(b);
    int64_t i = 0;
    for (; i + WIDE <= n; i += WIDE)
        _mm512_storeu_pd(o + i,
                         folded(_mm512_loadu_pd(o + i), _mm256_loadu_ps(chunk + i), by, chunk_by));
    const __mmask8 mask = (__mmask8)first_mask(n - i);
    if (mask)
        _mm512_mask_storeu_pd(o + i, mask,
                              folded(_mm512_maskz_loadu_pd(mask, o + i),
                                     _mm256_maskz_loadu_ps(mask, chunk + i), by, chunk_by));
}

static inline __m512 log_sum_exp(__m512 row_max, __m512 row_sum)
{
    const __m512 log_sum = Sleef_finz_logf16_u10avx512f(row_sum);
    const __m512 low = _mm512_fmadd_ps(row_max, _mm512_set1_ps(LN2_LO), log_sum);
    return plain_nan(_mm512_fmadd_ps(row_max, _mm512_set1_ps(LN2_HI), low));
}

static void finish_lse(__m512 row_max, __m512 row_sum, int rows, float *const *lse)
{
    float values[VECTOR];
    _mm512_storeu_ps(values, log_sum_exp(row_max, row_sum));
    for (int i = 0; i < VECTOR && i < rows; i++)
        *lse[i] = values[i];
}

uint64_t attnkit_avx512_settle(int rows, int64_t n, float *const *out)
{
    uint64_t not_finite = 0;
    for (int r = 0; r < rows; r++) {
        __m512 spoilt = _mm512_setzero_ps();
        for (int64_t i = 0; i < n; i += VECTOR) {
            const __m512 x = load_first(out[r] + i, n - i);
            spoilt = spoil(spoilt, x);
            store_first(out[r] + i, n - i, plain_nan(x));
        }
        not_finite |= (uint64_t)is_spoilt(spoilt) << r;
    }
    return not_finite;
}

/* M, l and o of a panel. Of a total, l and o are binary64. */
struct source {
    const float *row_max;
    const void *row_sum, *out;
};

/* Sixteen l, or what o is divided by. */
struct sums {
    __m512 narrow;               /* binary32 */
    __m512d wide[VECTOR / WIDE]; /* of a total */
};

static inline __m512 narrowed(const __m512d x[VECTOR / WIDE])
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(x[0])), _mm512_cvtpd_ps(x[1]),
                              1);
}

static inline __attribute__((always_inline)) struct sums load_sums(const bool is_total,
                                                                   const void *row_sum, int lane)
{
    struct sums l;
    if (is_total) {
        for (int i = 0; i < VECTOR / WIDE; i++)
            l.wide[i] = _mm512_load_pd((const double *)row_sum + lane + i * WIDE);
        l.narrow = narrowed(l.wide);
    } else {
        l.narrow = _mm512_load_ps((const float *)row_sum + lane);
    }
    return l;
}

static inline __m512d wide_divisor(__m512d row_sum)
{
    const __mmask8 empty = _mm512_cmp_pd_mask(row_sum, _mm512_setzero_pd(), _CMP_EQ_OQ);
    return _mm512_mask_mov_pd(row_sum, empty, _mm512_set1_pd(1.0));
}

static inline __attribute__((always_inline)) struct sums divisors(const bool is_total,
                                                                  struct sums l)
{
    l.narrow = divisor(l.narrow);
    for (int i = 0; is_total && i < VECTOR / WIDE; i++)
        l.wide[i] = wide_divisor(l.wide[i]);
    return l;
}

/* Sixteen lanes of a panel, of which the first `rows` are finished. */
struct lanes {
    const void *o; /* of the first */
    struct sums divisor;
    int lanes, rows;
    float *const *out;
};

/* A column of the result. */
static inline __attribute__((always_inline)) __m512 quotients(const bool is_total,
                                                              const struct lanes *w, int64_t column)
{
    if (!is_total)
        return result(_mm512_load_ps((const float *)w->o + column * w->lanes), w->divisor.narrow);
    const double *const o = (const double *)w->o + column * w->lanes;
    const __m512d wide[] = {_mm512_div_pd(_mm512_load_pd(o), w->divisor.wide[0]),
                            _mm512_div_pd(_mm512_load_pd(o + WIDE), w->divisor.wide[1])};
    return _mm512_add_ps(narrowed(wide), _mm512_setzero_ps());
}

/* Up to sixteen columns from `column` on, turned so that a row is in a register. */
static inline __attribute__((always_inline)) __m512 finish_tile(const bool is_total,
                                                                const struct lanes *w,
                                                                int64_t column, int64_t columns,
                                                                __m512 spoilt)
{
    __m512 r[VECTOR];
    for (int i = 0; i < VECTOR; i++) {
        r[i] = i < columns ? quotients(is_total, w, column + i) : _mm512_setzero_ps();
        spoilt = spoil(spoilt, r[i]);
    }
    transpose(r);
    for (int i = 0; i < VECTOR; i++)
        if (i < w->rows)
            store_first(w->out[i] + column, columns, r[i]);
    return spoilt;
}

/* Returns a bit for each lane, as finish does. */
static inline __attribute__((always_inline)) uint64_t
finish_lanes(const bool is_total, const struct lanes *w, int64_t value_dim)
{
    __m512 spoilt = _mm512_setzero_ps();
    int64_t c = 0;
    for (; c + VECTOR <= value_dim; c += VECTOR)
        spoilt = finish_tile(is_total, w, c, VECTOR, spoilt);
    if (c < value_dim)
        spoilt = finish_tile(is_total, w, c, value_dim - c, spoilt);
    if (!is_spoilt(spoilt))
        return 0;
    return attnkit_avx512_settle(w->rows < VECTOR ? w->rows : VECTOR, value_dim, w->out);
}

static inline __attribute__((always_inline)) uint64_t finish(const bool is_total,
                                                             const struct source *from, int lanes,
                                                             int64_t value_dim, int rows,
                                                             float *const *out, float *const *lse)
{
    const size_t size = is_total ? sizeof(double) : sizeof(float);
    uint64_t not_finite = 0;
    for (int lane = 0; lane < rows; lane += VECTOR) {
        const struct sums l = load_sums(is_total, from->row_sum, lane);
        const struct lanes w = {.o = (const char *)from->out + (size_t)lane * size,
                                .divisor = divisors(is_total, l),
                                .lanes = lanes,
                                .rows = rows - lane,
                                .out = out + lane};
        not_finite |= finish_lanes(is_total, &w, value_dim) << lane;
        if (lse)
            finish_lse(_mm512_load_ps(from->row_max + lane), l.narrow, rows - lane, lse + lane);
    }
    return not_finite;
}

uint64_t attnkit_avx512_finish(const struct state *st, int lanes, int64_t value_dim, int rows,
                               float *const *out, float *const *lse)
{
    const struct source from = {st->row_max, st->row_sum, st->out};
    return finish(false, &from, lanes, value_dim, rows, out, lse);
}

uint64_t attnkit_avx512_finish_total(const struct total *total, int lanes, int64_t value_dim,
                                     int rows, float *const *out, float *const *lse)
{
    const struct source from = {total->row_max, total->row_sum, total->out};
    return finish(true, &from, lanes, value_dim, rows, out, lse);
}

uint64_t attnkit_avx512_decode_finish(const struct state *st, int rows, int64_t value_dim,
                                      float *const *out, float *const *lse)
{
    __m512 spoilt = _mm512_setzero_ps();
    for (int r = 0; r < rows; r++) {
        const __m512 row_sum = _mm512_set1_ps(st->row_sum[r]);
        const __m512 l = divisor(row_sum);
        const float *o = st->out + r * value_dim;
        int64_t c = 0;
        for (; c + VECTOR <= value_dim; c += VECTOR) {
            const __m512 x = result(_mm512_loadu_ps(o + c), l);
            spoilt = spoil(spoilt, x);
            _mm512_storeu_ps(out[r] + c, x);
        }
        if (c < value_dim) {
            const __m512 x = result(load_first(o + c, value_dim - c), l);
            spoilt = spoil(spoilt, x);
            store_first(out[r] + c, value_dim - c, x);
        }
        if (lse)
            *lse[r] = _mm512_cvtss_f32(log_sum_exp(_mm512_set1_ps(st->row_max[r]), row_sum));
    }
    return is_spoilt(spoilt) ? attnkit_avx512_settle(rows, value_dim, out) : 0;
}

static inline __m256 narrow_result(__m512d o, __m512d divisor)
{
    return _mm256_add_ps(_mm512_cvtpd_ps(_mm512_div_pd(o, divisor)), _mm256_setzero_ps());
}

bool attnkit_avx512_quotient_row(const double *o, double divisor, int64_t n, float *out)
{
    const __m512d l = _mm512_set1_pd(divisor);
    const __m256 zero = _mm256_setzero_ps();
    __m256 spoilt = zero;
    int64_t i = 0;
    for (; i + WIDE <= n; i += WIDE) {
        const __m256 x = narrow_result(_mm512_loadu_pd(o + i), l);
        spoilt = _mm256_fmadd_ps(x, zero, spoilt);
        _mm256_storeu_ps(out + i, x);
    }
    const __mmask8 mask = (__mmask8)first_mask(n - i);
    if (mask) {
        const __m256 x = narrow_result(_mm512_maskz_loadu_pd(mask, o + i), l);
        spoilt = _mm256_fmadd_ps(x, zero, spoilt);
        _mm256_mask_storeu_ps(out + i, mask, x);
    }
    return _mm256_cmp_ps_mask(spoilt, spoilt, _CMP_UNORD_Q) && attnkit_avx512_settle(1, n, &out);
}

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

void attnkit_avx512_fold_f32(const struct state *total, const struct state *chunk, int lanes,
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

void attnkit_avx512_part_state(const float *out, float l, int64_t value_dim, float *o)
{
    const __m512 factor = _mm512_set1_ps(l);
    for (int64_t c = 0; c < value_dim; c += VECTOR) {
        const int64_t left = value_dim - c;
        store_first(o + c, left, _mm512_mul_ps(load_first(out + c, left), factor));
    }
}
