/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to a softmax state after its blocks: the first chunk of a panel becomes its total,
 * later ones fold in, and a state or a total becomes the result, out = o / l + 0 and
 * lse = M ln 2 + log l. For panels, with rows across the lanes, and for decode, with a line per
 * row. Called at the end of a chunk and of an item. Registers are plenty; folding is bound by
 * memory, and finishing by the division and the shuffles of its 8x8 transposes.
 */
#include "kernels/avx2/avx2.h"

enum { WIDE = 4 /* doubles in a ymm */ };

static inline void widen_lanes(const float *from, double *to)
{
    for (int i = 0; i < VECTOR; i += WIDE)
        _mm256_store_pd(to + i, _mm256_cvtps_pd(_mm_load_ps(from + i)));
}

void attnkit_avx2_begin_total(const struct total *total, const struct state *chunk, int lanes,
                              int64_t value_dim)
{
    for (int lane = 0; lane < lanes; lane += VECTOR) {
        _mm256_store_ps(total->row_max + lane, _mm256_load_ps(chunk->row_max + lane));
        widen_lanes(chunk->row_sum + lane, total->row_sum + lane);
    }
    for (int64_t i = 0; i < value_dim * lanes; i += VECTOR)
        widen_lanes(chunk->out + i, total->out + i);
}

/* What l and o of some rows are multiplied by before they are added up. */
struct factors {
    __m256d total[VECTOR / WIDE], chunk[VECTOR / WIDE];
};

/* A binary32 factor for each of 8 rows. */
static inline void widen_factors(__m256 x, __m256d wide[VECTOR / WIDE])
{
    wide[0] = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    wide[1] = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
}

/* Moves M on. */
static inline struct factors fold_max(float *row_max, const float *chunk_max)
{
    const __m256 max = _mm256_load_ps(row_max), other = _mm256_load_ps(chunk_max);
    const __m256 new_max = _mm256_max_ps(other, max), subtrahend = finite_max(new_max);
    __m256 x[] = {_mm256_sub_ps(max, subtrahend), _mm256_sub_ps(other, subtrahend)};
    struct factors by;
    exp2_vectors(x, 2);
    widen_factors(x[0], by.total);
    widen_factors(x[1], by.chunk);
    _mm256_store_ps(row_max, new_max);
    return by;
}

static inline __m256d folded(__m256d total, __m128 chunk, __m256d a, __m256d b)
{
    return _mm256_fmadd_pd(total, a, _mm256_mul_pd(_mm256_cvtps_pd(chunk), b));
}

static inline void fold_lanes(double *total, const float *chunk, const struct factors *by)
{
    for (int i = 0; i < VECTOR / WIDE; i++, total += WIDE, chunk += WIDE)
        _mm256_store_pd(
            total, folded(_mm256_load_pd(total), _mm_load_ps(chunk), by->total[i], by->chunk[i]));
}

void attnkit_avx2_fold(const struct total *total, const struct state *chunk, int lanes,
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

/* Masks of the first n elements, for n < WIDE. */
static inline __m128i narrow_mask(int64_t n)
{
    return _mm_cmpgt_epi32(_mm_set1_epi32((int)n), _mm_setr_epi32(0, 1, 2, 3));
}

static inline __m256i wide_mask(int64_t n)
{
    return _mm256_cvtepi32_epi64(narrow_mask(n));
}

void attnkit_avx2_fold_row(double *o, const float *chunk, double a, double b, int64_t n)
{
    const __m256d by = _mm256_set1_pd(a), chunk_by = _mm256_set1_pd(b);
    int64_t i = 0;
    for (; i + WIDE <= n; i += WIDE)
        _mm256_storeu_pd(o + i,
                         folded(_mm256_loadu_pd(o + i), _mm_loadu_ps(chunk + i), by, chunk_by));
    if (i < n) {
        const __m256d total = _mm256_maskload_pd(o + i, wide_mask(n - i));
        const __m128 x = _mm_maskload_ps(chunk + i, narrow_mask(n - i));
        _mm256_maskstore_pd(o + i, wide_mask(n - i), folded(total, x, by, chunk_by));
    }
}

static inline __m256 log_sum_exp(__m256 row_max, __m256 row_sum)
{
    const __m256 log_sum = Sleef_finz_logf8_u10avx2(row_sum);
    const __m256 low = _mm256_fmadd_ps(row_max, _mm256_set1_ps(LN2_LO), log_sum);
    return plain_nan(_mm256_fmadd_ps(row_max, _mm256_set1_ps(LN2_HI), low));
}

static void finish_lse(__m256 row_max, __m256 row_sum, int rows, float *const *lse)
{
    float values[VECTOR];
    _mm256_storeu_ps(values, log_sum_exp(row_max, row_sum));
    for (int i = 0; i < VECTOR && i < rows; i++)
        *lse[i] = values[i];
}

uint64_t attnkit_avx2_settle(int rows, int64_t n, float *const *out)
{
    uint64_t not_finite = 0;
    for (int r = 0; r < rows; r++) {
        __m256 spoilt = _mm256_setzero_ps();
        for (int64_t i = 0; i < n; i += VECTOR) {
            const __m256 x = load_first(out[r] + i, n - i);
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

/* Eight l, or what o is divided by. */
struct sums {
    __m256 narrow;               /* binary32 */
    __m256d wide[VECTOR / WIDE]; /* of a total */
};

static inline __m256 narrowed(const __m256d x[VECTOR / WIDE])
{
    return _mm256_set_m128(_mm256_cvtpd_ps(x[1]), _mm256_cvtpd_ps(x[0]));
}

static inline __attribute__((always_inline)) struct sums load_sums(const bool is_total,
                                                                   const void *row_sum, int lane)
{
    struct sums l;
    if (is_total) {
        for (int i = 0; i < VECTOR / WIDE; i++)
            l.wide[i] = _mm256_load_pd((const double *)row_sum + lane + i * WIDE);
        l.narrow = narrowed(l.wide);
    } else {
        l.narrow = _mm256_load_ps((const float *)row_sum + lane);
    }
    return l;
}

static inline __m256d wide_divisor(__m256d row_sum)
{
    const __m256d empty = _mm256_cmp_pd(row_sum, _mm256_setzero_pd(), _CMP_EQ_OQ);
    return _mm256_blendv_pd(row_sum, _mm256_set1_pd(1.0), empty);
}

static inline __attribute__((always_inline)) struct sums divisors(const bool is_total,
                                                                  struct sums l)
{
    l.narrow = divisor(l.narrow);
    for (int i = 0; is_total && i < VECTOR / WIDE; i++)
        l.wide[i] = wide_divisor(l.wide[i]);
    return l;
}

/* Eight lanes of a panel, of which the first `rows` are finished. */
struct lanes {
    const void *o; /* of the first */
    struct sums divisor;
    int lanes, rows;
    float *const *out;
};

/* A column of the result. */
static inline __attribute__((always_inline)) __m256 quotients(const bool is_total,
                                                              const struct lanes *w, int64_t column)
{
    if (!is_total)
        return result(_mm256_load_ps((const float *)w->o + column * w->lanes), w->divisor.narrow);
    const double *const o = (const double *)w->o + column * w->lanes;
    const __m256d wide[] = {_mm256_div_pd(_mm256_load_pd(o), w->divisor.wide[0]),
                            _mm256_div_pd(_mm256_load_pd(o + WIDE), w->divisor.wide[1])};
    return _mm256_add_ps(narrowed(wide), _mm256_setzero_ps());
}

/* Up to eight columns from `column` on, turned so that a row is in a register. */
static inline __attribute__((always_inline)) __m256 finish_tile(const bool is_total,
                                                                const struct lanes *w,
                                                                int64_t column, int64_t columns,
                                                                __m256 spoilt)
{
    __m256 r[VECTOR];
    for (int i = 0; i < VECTOR; i++) {
        r[i] = i < columns ? quotients(is_total, w, column + i) : _mm256_setzero_ps();
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
    __m256 spoilt = _mm256_setzero_ps();
    int64_t c = 0;
    for (; c + VECTOR <= value_dim; c += VECTOR)
        spoilt = finish_tile(is_total, w, c, VECTOR, spoilt);
    if (c < value_dim)
        spoilt = finish_tile(is_total, w, c, value_dim - c, spoilt);
    if (!is_spoilt(spoilt))
        return 0;
    return attnkit_avx2_settle(w->rows < VECTOR ? w->rows : VECTOR, value_dim, w->out);
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
            finish_lse(_mm256_load_ps(from->row_max + lane), l.narrow, rows - lane, lse + lane);
    }
    return not_finite;
}

uint64_t attnkit_avx2_finish(const struct state *st, int lanes, int64_t value_dim, int rows,
                             float *const *out, float *const *lse)
{
    const struct source from = {st->row_max, st->row_sum, st->out};
    return finish(false, &from, lanes, value_dim, rows, out, lse);
}

uint64_t attnkit_avx2_finish_total(const struct total *total, int lanes, int64_t value_dim,
                                   int rows, float *const *out, float *const *lse)
{
    const struct source from = {total->row_max, total->row_sum, total->out};
    return finish(true, &from, lanes, value_dim, rows, out, lse);
}

uint64_t attnkit_avx2_decode_finish(const struct state *st, int rows, int64_t value_dim,
                                    float *const *out, float *const *lse)
{
    __m256 spoilt = _mm256_setzero_ps();
    for (int r = 0; r < rows; r++) {
        const __m256 row_sum = _mm256_set1_ps(st->row_sum[r]);
        const __m256 l = divisor(row_sum);
        const float *o = st->out + r * value_dim;
        int64_t c = 0;
        for (; c + VECTOR <= value_dim; c += VECTOR) {
            const __m256 x = result(_mm256_loadu_ps(o + c), l);
            spoilt = spoil(spoilt, x);
            _mm256_storeu_ps(out[r] + c, x);
        }
        if (c < value_dim) {
            const __m256 x = result(load_first(o + c, value_dim - c), l);
            spoilt = spoil(spoilt, x);
            store_first(out[r] + c, value_dim - c, x);
        }
        if (lse)
            *lse[r] = _mm256_cvtss_f32(log_sum_exp(_mm256_set1_ps(st->row_max[r]), row_sum));
    }
    return is_spoilt(spoilt) ? attnkit_avx2_settle(rows, value_dim, out) : 0;
}

static inline __m128 narrow_result(__m256d o, __m256d divisor)
{
    return _mm_add_ps(_mm256_cvtpd_ps(_mm256_div_pd(o, divisor)), _mm_setzero_ps());
}

bool attnkit_avx2_quotient_row(const double *o, double divisor, int64_t n, float *out)
{
    const __m256d l = _mm256_set1_pd(divisor);
    __m128 spoilt = _mm_setzero_ps();
    int64_t i = 0;
    for (; i + WIDE <= n; i += WIDE) {
        const __m128 x = narrow_result(_mm256_loadu_pd(o + i), l);
        spoilt = _mm_fmadd_ps(x, _mm_setzero_ps(), spoilt);
        _mm_storeu_ps(out + i, x);
    }
    if (i < n) {
        const __m128 x = narrow_result(_mm256_maskload_pd(o + i, wide_mask(n - i)), l);
        spoilt = _mm_fmadd_ps(x, _mm_setzero_ps(), spoilt);
        _mm_maskstore_ps(out + i, narrow_mask(n - i), x);
    }
    return _mm_movemask_ps(_mm_cmpunord_ps(spoilt, spoilt)) && attnkit_avx2_settle(1, n, &out);
}

/* The new M and l of some rows, and the factors of both o. */
struct fold {
    __m256 row_max, row_sum, a, b;
};

static inline struct fold fold_rows(__m256 max, __m256 sum, __m256 chunk_max, __m256 chunk_sum)
{
    struct fold f;
    f.row_max = _mm256_max_ps(chunk_max, max);
    const __m256 subtrahend = finite_max(f.row_max);
    f.a = exp2_v(_mm256_sub_ps(max, subtrahend));
    f.b = exp2_v(_mm256_sub_ps(chunk_max, subtrahend));
    f.row_sum = _mm256_fmadd_ps(sum, f.a, _mm256_mul_ps(chunk_sum, f.b));
    return f;
}

static inline __m256 fold_out(__m256 o, __m256 chunk, struct fold f)
{
    return _mm256_fmadd_ps(o, f.a, _mm256_mul_ps(chunk, f.b));
}

void attnkit_avx2_fold_f32(const struct state *total, const struct state *chunk, int lanes,
                           int64_t value_dim)
{
    for (int lane = 0; lane < lanes; lane += VECTOR) {
        const struct fold f =
            fold_rows(_mm256_load_ps(total->row_max + lane), _mm256_load_ps(total->row_sum + lane),
                      _mm256_load_ps(chunk->row_max + lane), _mm256_load_ps(chunk->row_sum + lane));
        _mm256_store_ps(total->row_max + lane, f.row_max);
        _mm256_store_ps(total->row_sum + lane, f.row_sum);
        for (int64_t i = lane; i < value_dim * lanes; i += lanes)
            _mm256_store_ps(total->out + i, fold_out(_mm256_load_ps(total->out + i),
                                                     _mm256_load_ps(chunk->out + i), f));
    }
}

void attnkit_avx2_decode_fold(const struct state *total, const struct state *chunk, int rows,
                              int64_t value_dim)
{
    for (int r = 0; r < rows; r++) {
        const struct fold f =
            fold_rows(_mm256_set1_ps(total->row_max[r]), _mm256_set1_ps(total->row_sum[r]),
                      _mm256_set1_ps(chunk->row_max[r]), _mm256_set1_ps(chunk->row_sum[r]));
        total->row_max[r] = _mm256_cvtss_f32(f.row_max);
        total->row_sum[r] = _mm256_cvtss_f32(f.row_sum);
        float *o = total->out + r * value_dim;
        const float *chunk_o = chunk->out + r * value_dim;
        for (int64_t c = 0; c < value_dim; c += VECTOR) {
            const int64_t left = value_dim - c;
            store_first(o + c, left,
                        fold_out(load_first(o + c, left), load_first(chunk_o + c, left), f));
        }
    }
}

void attnkit_avx2_part_state(const float *out, float l, int64_t value_dim, float *o)
{
    const __m256 factor = _mm256_set1_ps(l);
    for (int64_t c = 0; c < value_dim; c += VECTOR) {
        const int64_t left = value_dim - c;
        store_first(o + c, left, _mm256_mul_ps(load_first(out + c, left), factor));
    }
}
