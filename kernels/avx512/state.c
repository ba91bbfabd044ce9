/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to a softmax state after its blocks: the first chunk of a panel becomes its total,
 * later ones fold in, and a state or a total becomes the result, out = o / l + 0 and
 * lse = M ln 2 + log l. For panels, with rows across the lanes, and for decode, with a line per
 * row. Called at the end of a chunk and of an item. Registers are plenty; folding is bound by
 * memory, and finishing by the division and the shuffles of its 16x16 transposes.
 */
#include "kernels/avx512/avx512.h"

enum { HALF = VECTOR / 2 /* doubles in a zmm */ };

/* Sixteen numbers of binary64. */
struct wide {
    __m512d low, high;
};

static inline struct wide widened(__m512 x)
{
    return (struct wide){_mm512_cvtps_pd(_mm512_castps512_ps256(x)),
                         _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))};
}

static inline __m512 narrowed(struct wide x)
{
    const __m512 low = _mm512_castps256_ps512(_mm512_cvtpd_ps(x.low));
    return _mm512_insertf32x8(low, _mm512_cvtpd_ps(x.high), 1);
}

static inline struct wide load_widened(const float *from)
{
    return (struct wide){_mm512_cvtps_pd(_mm256_loadu_ps(from)),
                         _mm512_cvtps_pd(_mm256_loadu_ps(from + HALF))};
}

static inline struct wide load_wide(const double *from)
{
    return (struct wide){_mm512_loadu_pd(from), _mm512_loadu_pd(from + HALF)};
}

static inline void store_wide(double *to, struct wide x)
{
    _mm512_storeu_pd(to, x.low);
    _mm512_storeu_pd(to + HALF, x.high);
}

/* The first n, as load_first and store_first have them. */
static inline struct wide load_first_wide(const double *from, int64_t n)
{
    const __mmask16 mask = first_mask(n);
    return (struct wide){_mm512_maskz_loadu_pd((__mmask8)mask, from),
                         _mm512_maskz_loadu_pd((__mmask8)(mask >> HALF), from + HALF)};
}

static inline void store_first_wide(double *to, int64_t n, struct wide x)
{
    const __mmask16 mask = first_mask(n);
    _mm512_mask_storeu_pd(to, (__mmask8)mask, x.low);
    _mm512_mask_storeu_pd(to + HALF, (__mmask8)(mask >> HALF), x.high);
}

void attnkit_avx512_begin_total(const struct total *total, const struct state *chunk, int lanes,
                                int64_t value_dim)
{
    for (int lane = 0; lane < lanes; lane += VECTOR) {
        _mm512_store_ps(total->row_max + lane, _mm512_load_ps(chunk->row_max + lane));
        store_wide(total->row_sum + lane, load_widened(chunk->row_sum + lane));
    }
    double *const o = total->out;
    const float *const chunk_o = chunk->out;
    for (int64_t i = 0; i < value_dim * lanes; i += VECTOR)
        store_wide(o + i, load_widened(chunk_o + i));
}

/* What l and o of some rows are multiplied by before they are added up. */
struct factors {
    struct wide total, chunk;
};

/* Moves M on. */
static inline struct factors fold_max(float *row_max, const float *chunk_max)
{
    const __m512 max = _mm512_load_ps(row_max), other = _mm512_load_ps(chunk_max);
    const __m512 new_max = _mm512_max_ps(other, max), subtrahend = finite_max(new_max);
    __m512 x[] = {_mm512_sub_ps(max, subtrahend), _mm512_sub_ps(other, subtrahend)};
    exp2_vectors(x, 2);
    _mm512_store_ps(row_max, new_max);
    return (struct factors){widened(x[0]), widened(x[1])};
}

static inline struct wide folded(struct wide total, struct wide chunk, const struct factors *by)
{
    return (struct wide){
        _mm512_fmadd_pd(total.low, by->total.low, _mm512_mul_pd(chunk.low, by->chunk.low)),
        _mm512_fmadd_pd(total.high, by->total.high, _mm512_mul_pd(chunk.high, by->chunk.high)),
    };
}

static inline void fold_vector(double *total, const float *chunk, const struct factors *by)
{
    store_wide(total, folded(load_wide(total), load_widened(chunk), by));
}

void attnkit_avx512_fold(const struct total *total, const struct state *chunk, int lanes,
                         int64_t value_dim)
{
    for (int lane = 0; lane < lanes; lane += VECTOR) {
        const struct factors by = fold_max(total->row_max + lane, chunk->row_max + lane);
        double *const o = total->out;
        const float *const chunk_o = chunk->out;
        fold_vector(total->row_sum + lane, chunk->row_sum + lane, &by);
        for (int64_t i = lane; i < value_dim * lanes; i += lanes)
            fold_vector(o + i, chunk_o + i, &by);
    }
}

void attnkit_avx512_fold_row(double *o, const float *chunk, double a, double b, int64_t n)
{
    const __m512d total = _mm512_set1_pd(a), part = _mm512_set1_pd(b);
    const struct factors by = {{total, total}, {part, part}};
    int64_t i = 0;
    for (; i + VECTOR <= n; i += VECTOR)
        fold_vector(o + i, chunk + i, &by);
    if (i < n)
        store_first_wide(
            o + i, n - i,
            folded(load_first_wide(o + i, n - i), widened(load_first(chunk + i, n - i)), &by));
}

static inline __m512 log_sum_exp(__m512 row_max, __m512 row_sum)
{
    const __m512 log_sum = log_v(row_sum);
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
        __m512 spoilt = unspoilt();
        for (int64_t i = 0; i < n; i += VECTOR) {
            const __m512 x = load_first(out[r] + i, n - i);
            spoilt = spoil(spoilt, x, _mm512_setzero_ps());
            store_first(out[r] + i, n - i, plain_nan(x));
        }
        not_finite |= (uint64_t)is_spoilt(spoilt) << r;
    }
    return not_finite;
}

/* l, or 1 where it is 0, and what inverse_of gives. */
struct divisor {
    struct wide l, inverse;
};

/* As inverse_of. */
static inline __m512d inverse_of_each(__m512d l)
{
    const __m512d size = _mm512_abs_pd(l);
    const __mmask8 usual = _mm512_cmp_pd_mask(size, _mm512_set1_pd(LEAST_DIVISOR), _CMP_GE_OQ) &
                           _mm512_cmp_pd_mask(size, _mm512_set1_pd(LARGEST_DIVISOR), _CMP_LE_OQ);
    return _mm512_mask_div_pd(_mm512_set1_pd((double)NAN), usual, _mm512_set1_pd(1.0), l);
}

static inline struct divisor wide_divisor(struct wide row_sum)
{
    const __m512d zero = _mm512_setzero_pd(), one = _mm512_set1_pd(1.0);
    const __mmask8 low = _mm512_cmp_pd_mask(row_sum.low, zero, _CMP_EQ_OQ);
    const __mmask8 high = _mm512_cmp_pd_mask(row_sum.high, zero, _CMP_EQ_OQ);
    const struct wide l = {_mm512_mask_mov_pd(row_sum.low, low, one),
                           _mm512_mask_mov_pd(row_sum.high, high, one)};
    return (struct divisor){l, {inverse_of_each(l.low), inverse_of_each(l.high)}};
}

/* o / l, correctly rounded by a theorem of Markstein: two steps with the remainder, from the
 * rounded 1 / l. NaN where o or the quotient is infinite. */
static inline __m512d wide_quotient(__m512d o, __m512d l, __m512d inverse)
{
    const __m512d rough = _mm512_mul_pd(o, inverse);
    const __m512d q = _mm512_fmadd_pd(_mm512_fnmadd_pd(rough, l, o), inverse, rough);
    return _mm512_fmadd_pd(_mm512_fnmadd_pd(q, l, o), inverse, q);
}

static inline __m512 wide_result(struct wide o, const struct divisor *d)
{
    const struct wide x = {wide_quotient(o.low, d->l.low, d->inverse.low),
                           wide_quotient(o.high, d->l.high, d->inverse.high)};
    return _mm512_add_ps(narrowed(x), _mm512_setzero_ps());
}

/* Where o and l of a result are, and so whether they are binary32 or binary64. */
enum numbers {
    NARROW, /* o and l of a chunk */
    WIDE,   /* of a total */
    MIXED,  /* o of a chunk, l of a total */
};

/* Sixteen lanes of a panel, of which the first `rows` are finished. */
struct part {
    const void *o; /* of the first lane */
    __m512 divisor;
    struct divisor wide_divisor;
    int lanes, rows;
    float *const *out;
};

/* A column of the result. */
static inline __attribute__((always_inline)) __m512 quotients(const enum numbers numbers,
                                                              const struct part *p, int64_t column)
{
    const int64_t at = column * p->lanes;
    if (numbers == WIDE)
        return wide_result(load_wide((const double *)p->o + at), &p->wide_divisor);
    const float *const o = (const float *)p->o + at;
    return numbers == MIXED ? wide_result(load_widened(o), &p->wide_divisor)
                            : result(_mm512_load_ps(o), p->divisor);
}

/* Up to sixteen columns from `column` on, turned so that a row is in a register. */
static inline __attribute__((always_inline)) __m512 finish_tile(const enum numbers numbers,
                                                                const struct part *p,
                                                                int64_t column, int64_t columns,
                                                                __m512 spoilt)
{
    __m512 r[VECTOR];
    for (int i = 0; i < VECTOR; i++)
        r[i] = i < columns ? quotients(numbers, p, column + i) : _mm512_setzero_ps();
    for (int i = 0; i < VECTOR; i += 2)
        spoilt = spoil(spoilt, r[i], r[i + 1]);
    transpose(r);
    for (int i = 0; i < VECTOR; i++)
        if (i < p->rows)
            store_first(p->out[i] + column, columns, r[i]);
    return spoilt;
}

/* Returns a bit for each lane, as finish does. */
static inline __attribute__((always_inline)) uint64_t
finish_part(const enum numbers numbers, const struct part *p, int64_t value_dim)
{
    __m512 spoilt = unspoilt();
    int64_t c = 0;
    for (; c + VECTOR <= value_dim; c += VECTOR)
        spoilt = finish_tile(numbers, p, c, VECTOR, spoilt);
    if (c < value_dim)
        spoilt = finish_tile(numbers, p, c, value_dim - c, spoilt);
    if (!is_spoilt(spoilt))
        return 0;
    return attnkit_avx512_settle(p->rows < VECTOR ? p->rows : VECTOR, value_dim, p->out);
}

/* M, l and o of a panel, the latter two of binary32 or of binary64. */
struct source {
    const float *row_max;
    const void *row_sum, *out;
};

static inline __attribute__((always_inline)) uint64_t finish(const enum numbers numbers,
                                                             const struct source *from, int lanes,
                                                             int64_t value_dim, int rows,
                                                             float *const *out, float *const *lse)
{
    uint64_t not_finite = 0;
    for (int lane = 0; lane < rows; lane += VECTOR) {
        struct part p = {.lanes = lanes, .rows = rows - lane, .out = out + lane};
        __m512 row_sum;
        p.o = numbers == WIDE ? (const void *)((const double *)from->out + lane)
                              : (const void *)((const float *)from->out + lane);
        if (numbers != NARROW) {
            const struct wide l = load_wide((const double *)from->row_sum + lane);
            p.wide_divisor = wide_divisor(l);
            row_sum = narrowed(l);
        } else {
            row_sum = _mm512_load_ps((const float *)from->row_sum + lane);
            p.divisor = divisor(row_sum);
        }
        not_finite |= finish_part(numbers, &p, value_dim) << lane;
        if (lse)
            finish_lse(_mm512_load_ps(from->row_max + lane), row_sum, rows - lane, lse + lane);
    }
    return not_finite;
}

uint64_t attnkit_avx512_finish(const struct state *st, int lanes, int64_t value_dim, int rows,
                               float *const *out, float *const *lse)
{
    const struct source from = {st->row_max, st->row_sum, st->out};
    return finish(NARROW, &from, lanes, value_dim, rows, out, lse);
}

uint64_t attnkit_avx512_finish_total(const struct total *total, const float *chunk_out, int lanes,
                                     int64_t value_dim, int rows, float *const *out,
                                     float *const *lse)
{
    struct source from = {total->row_max, total->row_sum, total->out};
    if (!chunk_out)
        return finish(WIDE, &from, lanes, value_dim, rows, out, lse);
    from.out = chunk_out;
    return finish(MIXED, &from, lanes, value_dim, rows, out, lse);
}

/* A row of the result. */
static inline __m512 finish_row(const float *o, __m512 divisor, int64_t n, float *out,
                                __m512 spoilt)
{
    int64_t i = 0;
    for (; i + 2 * VECTOR <= n; i += 2 * VECTOR) {
        const __m512 x = result(_mm512_loadu_ps(o + i), divisor);
        const __m512 y = result(_mm512_loadu_ps(o + i + VECTOR), divisor);
        _mm512_storeu_ps(out + i, x);
        _mm512_storeu_ps(out + i + VECTOR, y);
        spoilt = spoil(spoilt, x, y);
    }
    if (i + VECTOR <= n) {
        const __m512 x = result(_mm512_loadu_ps(o + i), divisor);
        _mm512_storeu_ps(out + i, x);
        spoilt = spoil(spoilt, x, x);
        i += VECTOR;
    }
    if (i < n) {
        const __m512 x = result(load_first(o + i, n - i), divisor);
        store_first(out + i, n - i, x);
        spoilt = spoil(spoilt, x, x);
    }
    return spoilt;
}

/* A call of its own, so that a call without lse has no frame to make. */
static __attribute__((noinline)) void finish_row_lse(const struct state *st, int rows,
                                                     float *const *lse)
{
    for (int r = 0; r < rows; r += VECTOR)
        finish_lse(_mm512_loadu_ps(st->row_max + r), _mm512_loadu_ps(st->row_sum + r), rows - r,
                   lse + r);
}

uint64_t attnkit_avx512_decode_finish(const struct state *st, int rows, int64_t value_dim,
                                      float *const *out, float *const *lse)
{
    __m512 spoilt = unspoilt();
    if (lse)
        finish_row_lse(st, rows, lse);
    for (int r = 0; r < rows; r++) {
        const __m512 l = divisor(_mm512_set1_ps(st->row_sum[r]));
        spoilt = finish_row(st->out + r * value_dim, l, value_dim, out[r], spoilt);
    }
    return is_spoilt(spoilt) ? attnkit_avx512_settle(rows, value_dim, out) : 0;
}

bool attnkit_avx512_quotient_row(const double *o, double divisor, int64_t n, float *out)
{
    const __m512d l = _mm512_set1_pd(divisor), inverse = _mm512_set1_pd(inverse_of(divisor));
    const struct divisor d = {{l, l}, {inverse, inverse}};
    __m512 spoilt = unspoilt();
    int64_t i = 0;
    for (; i + VECTOR <= n; i += VECTOR) {
        const __m512 x = wide_result(load_wide(o + i), &d);
        _mm512_storeu_ps(out + i, x);
        spoilt = spoil(spoilt, x, x);
    }
    if (i < n) {
        const __m512 x = wide_result(load_first_wide(o + i, n - i), &d);
        store_first(out + i, n - i, x);
        spoilt = spoil(spoilt, x, x);
    }
    return is_spoilt(spoilt) && attnkit_avx512_settle(1, n, &out);
}
