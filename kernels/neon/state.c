/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to a softmax state after its blocks: the first chunk of a panel becomes its total,
 * later ones fold in, and a state or a total becomes the result, out = o / l + 0 and
 * lse = M ln 2 + log l. For panels, with rows across the lanes, and for decode, with a line per
 * row. Called at the end of a chunk and of an item. Registers are plenty; loads and stores bound
 * the folding, fdiv the finishing.
 */
#include "kernels/neon/neon.h"

enum { HALF = VECTOR / 2 /* doubles in a vector */ };

/* Four numbers of binary64. */
struct wide {
    float64x2_t low, high;
};

static inline struct wide widened(float32x4_t x)
{
    return (struct wide){vcvt_f64_f32(vget_low_f32(x)), vcvt_high_f64_f32(x)};
}

static inline float32x4_t narrowed(struct wide x)
{
    return vcvt_high_f32_f64(vcvt_f32_f64(x.low), x.high);
}

static inline struct wide load_widened(const float *from)
{
    return widened(vld1q_f32(from));
}

static inline struct wide load_wide(const double *from)
{
    return (struct wide){vld1q_f64(from), vld1q_f64(from + HALF)};
}

static inline void store_wide(double *to, struct wide x)
{
    vst1q_f64(to, x.low);
    vst1q_f64(to + HALF, x.high);
}

/* The first n, as load_n and store_n have them, for 1 <= n <= 3. */
static inline struct wide load_n_wide(const double *from, int n)
{
    struct wide x = {vdupq_n_f64(0.0), vdupq_n_f64(0.0)};
    x.low = vld1q_lane_f64(from, x.low, 0);
    if (n > 1)
        x.low = vld1q_lane_f64(from + 1, x.low, 1);
    if (n > 2)
        x.high = vld1q_lane_f64(from + 2, x.high, 0);
    return x;
}

static inline void store_n_wide(double *to, struct wide x, int n)
{
    vst1q_lane_f64(to, x.low, 0);
    if (n > 1)
        vst1q_lane_f64(to + 1, x.low, 1);
    if (n > 2)
        vst1q_lane_f64(to + 2, x.high, 0);
}

void attnkit_neon_begin_total(const struct total *total, const struct state *chunk, int lanes,
                              int64_t value_dim)
{
    for (int lane = 0; lane < lanes; lane += VECTOR) {
        vst1q_f32(total->row_max + lane, vld1q_f32(chunk->row_max + lane));
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
    const float32x4_t max = vld1q_f32(row_max), other = vld1q_f32(chunk_max);
    const float32x4_t new_max = vmaxnmq_f32(max, other), subtrahend = finite_max(new_max);
    float32x4_t x[] = {vsubq_f32(max, subtrahend), vsubq_f32(other, subtrahend)};
    exp2_vectors(x, 2);
    vst1q_f32(row_max, new_max);
    return (struct factors){widened(x[0]), widened(x[1])};
}

static inline struct wide folded(struct wide total, struct wide chunk, const struct factors *by)
{
    return (struct wide){
        vfmaq_f64(vmulq_f64(chunk.low, by->chunk.low), total.low, by->total.low),
        vfmaq_f64(vmulq_f64(chunk.high, by->chunk.high), total.high, by->total.high),
    };
}

static inline void fold_vector(double *total, const float *chunk, const struct factors *by)
{
    store_wide(total, folded(load_wide(total), load_widened(chunk), by));
}

void attnkit_neon_fold(const struct total *total, const struct state *chunk, int lanes,
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

void attnkit_neon_fold_row(double *o, const float *chunk, double a, double b, int64_t n)
{
    const float64x2_t total = vdupq_n_f64(a), part = vdupq_n_f64(b);
    const struct factors by = {{total, total}, {part, part}};
    int64_t i = 0;
    for (; i + VECTOR <= n; i += VECTOR)
        fold_vector(o + i, chunk + i, &by);
    const int left = (int)(n - i);
    if (left > 0)
        store_n_wide(o + i, folded(load_n_wide(o + i, left), widened(load_n(chunk + i, left)), &by),
                     left);
}

static inline float32x4_t log_sum_exp(float32x4_t row_max, float32x4_t row_sum)
{
    const float32x4_t low = vfmaq_n_f32(log_v(row_sum), row_max, LN2_LO);
    return plain_nan(vfmaq_n_f32(low, row_max, LN2_HI));
}

static void finish_lse(float32x4_t row_max, float32x4_t row_sum, int rows, float *const *lse)
{
    float values[VECTOR];
    vst1q_f32(values, log_sum_exp(row_max, row_sum));
    for (int i = 0; i < VECTOR && i < rows; i++)
        *lse[i] = values[i];
}

uint64_t attnkit_neon_settle(int rows, int64_t n, float *const *out)
{
    uint64_t not_finite = 0;
    for (int r = 0; r < rows; r++) {
        float32x4_t spoilt = unspoilt();
        for (int64_t i = 0; i < n; i += VECTOR) {
            const int count = lanes_at(i, n);
            const float32x4_t x = load_n(out[r] + i, count);
            spoilt = spoil(spoilt, x, vdupq_n_f32(0.0f));
            store_n(out[r] + i, plain_nan(x), count);
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
static inline float64x2_t inverse_of_each(float64x2_t l)
{
    const float64x2_t size = vabsq_f64(l);
    const uint64x2_t usual = vandq_u64(vcgeq_f64(size, vdupq_n_f64(LEAST_DIVISOR)),
                                       vcleq_f64(size, vdupq_n_f64(LARGEST_DIVISOR)));
    return vbslq_f64(usual, vdivq_f64(vdupq_n_f64(1.0), l), vdupq_n_f64((double)NAN));
}

static inline struct divisor wide_divisor(struct wide row_sum)
{
    const float64x2_t one = vdupq_n_f64(1.0);
    const struct wide l = {vbslq_f64(vceqzq_f64(row_sum.low), one, row_sum.low),
                           vbslq_f64(vceqzq_f64(row_sum.high), one, row_sum.high)};
    return (struct divisor){l, {inverse_of_each(l.low), inverse_of_each(l.high)}};
}

/* o / l, correctly rounded by a theorem of Markstein: two steps with the remainder, from the
 * rounded 1 / l. NaN where o or the quotient is infinite. */
static inline float64x2_t wide_quotient(float64x2_t o, float64x2_t l, float64x2_t inverse)
{
    const float64x2_t rough = vmulq_f64(o, inverse);
    const float64x2_t q = vfmaq_f64(rough, vfmsq_f64(o, rough, l), inverse);
    return vfmaq_f64(q, vfmsq_f64(o, q, l), inverse);
}

static inline float32x4_t wide_result(struct wide o, const struct divisor *d)
{
    const struct wide x = {wide_quotient(o.low, d->l.low, d->inverse.low),
                           wide_quotient(o.high, d->l.high, d->inverse.high)};
    return vaddq_f32(narrowed(x), vdupq_n_f32(0.0f));
}

/* Where o and l of a result are, and so whether they are binary32 or binary64. */
enum numbers {
    NARROW, /* o and l of a chunk */
    WIDE,   /* of a total */
    MIXED,  /* o of a chunk, l of a total */
};

/* Four lanes of a panel, of which the first `rows` are finished. */
struct part {
    const void *o; /* of the first lane */
    float32x4_t divisor;
    struct divisor wide_divisor;
    int lanes, rows;
    float *const *out;
};

/* A column of the result. */
static inline __attribute__((always_inline)) float32x4_t
quotients(const enum numbers numbers, const struct part *p, int64_t column)
{
    const int64_t at = column * p->lanes;
    if (numbers == WIDE)
        return wide_result(load_wide((const double *)p->o + at), &p->wide_divisor);
    const float *const o = (const float *)p->o + at;
    return numbers == MIXED ? wide_result(load_widened(o), &p->wide_divisor)
                            : result(vld1q_f32(o), p->divisor);
}

/* Returns a bit for each lane, as finish does. */
static inline __attribute__((always_inline)) uint64_t
finish_part(const enum numbers numbers, const struct part *p, int64_t value_dim)
{
    float32x4_t spoilt = unspoilt();
    for (int64_t c = 0; c < value_dim; c += VECTOR) {
        const int columns = lanes_at(c, value_dim);
        float32x4_t x[VECTOR];
        for (int i = 0; i < VECTOR; i++)
            x[i] = i < columns ? quotients(numbers, p, c + i) : vdupq_n_f32(0.0f);
        for (int i = 0; i < VECTOR; i += 2)
            spoilt = spoil(spoilt, x[i], x[i + 1]);
        transpose(x);
        for (int row = 0; row < VECTOR; row++)
            if (row < p->rows)
                store_n(p->out[row] + c, x[row], columns);
    }
    if (!is_spoilt(spoilt))
        return 0;
    return attnkit_neon_settle(p->rows < VECTOR ? p->rows : VECTOR, value_dim, p->out);
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
        float32x4_t row_sum;
        p.o = numbers == WIDE ? (const void *)((const double *)from->out + lane)
                              : (const void *)((const float *)from->out + lane);
        if (numbers != NARROW) {
            const struct wide l = load_wide((const double *)from->row_sum + lane);
            p.wide_divisor = wide_divisor(l);
            row_sum = narrowed(l);
        } else {
            row_sum = vld1q_f32((const float *)from->row_sum + lane);
            p.divisor = divisor_of(row_sum);
        }
        not_finite |= finish_part(numbers, &p, value_dim) << lane;
        if (lse)
            finish_lse(vld1q_f32(from->row_max + lane), row_sum, rows - lane, lse + lane);
    }
    return not_finite;
}

uint64_t attnkit_neon_finish(const struct state *st, int lanes, int64_t value_dim, int rows,
                             float *const *out, float *const *lse)
{
    const struct source from = {st->row_max, st->row_sum, st->out};
    return finish(NARROW, &from, lanes, value_dim, rows, out, lse);
}

uint64_t attnkit_neon_finish_total(const struct total *total, const float *chunk_out, int lanes,
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
static inline float32x4_t finish_row(const float *o, float32x4_t divisor, int64_t n, float *out,
                                     float32x4_t spoilt)
{
    int64_t i = 0;
    for (; i + 2 * VECTOR <= n; i += 2 * VECTOR) {
        const float32x4_t x = result(vld1q_f32(o + i), divisor);
        const float32x4_t y = result(vld1q_f32(o + i + VECTOR), divisor);
        vst1q_f32(out + i, x);
        vst1q_f32(out + i + VECTOR, y);
        spoilt = spoil(spoilt, x, y);
    }
    for (; i < n; i += VECTOR) {
        const int count = lanes_at(i, n);
        const float32x4_t x = result(load_n(o + i, count), divisor);
        store_n(out + i, x, count);
        spoilt = spoil(spoilt, x, x);
    }
    return spoilt;
}

/* A call of its own, so that a call without lse has no frame to make. */
static __attribute__((noinline)) void finish_row_lse(const struct state *st, int rows,
                                                     float *const *lse)
{
    for (int r = 0; r < rows; r += VECTOR)
        finish_lse(vld1q_f32(st->row_max + r), vld1q_f32(st->row_sum + r), rows - r, lse + r);
}

uint64_t attnkit_neon_decode_finish(const struct state *st, int rows, int64_t value_dim,
                                    float *const *out, float *const *lse)
{
    float32x4_t spoilt = unspoilt();
    if (lse)
        finish_row_lse(st, rows, lse);
    for (int r = 0; r < rows; r++) {
        const float32x4_t l = divisor_of(vld1q_dup_f32(st->row_sum + r));
        spoilt = finish_row(st->out + r * value_dim, l, value_dim, out[r], spoilt);
    }
    return is_spoilt(spoilt) ? attnkit_neon_settle(rows, value_dim, out) : 0;
}

bool attnkit_neon_quotient_row(const double *o, double divisor, int64_t n, float *out)
{
    const float64x2_t l = vdupq_n_f64(divisor), inverse = vdupq_n_f64(inverse_of(divisor));
    const struct divisor d = {{l, l}, {inverse, inverse}};
    float32x4_t spoilt = unspoilt();
    int64_t i = 0;
    for (; i + VECTOR <= n; i += VECTOR) {
        const float32x4_t x = wide_result(load_wide(o + i), &d);
        vst1q_f32(out + i, x);
        spoilt = spoil(spoilt, x, x);
    }
    const int left = (int)(n - i);
    if (left > 0) {
        const float32x4_t x = wide_result(load_n_wide(o + i, left), &d);
        store_n(out + i, x, left);
        spoilt = spoil(spoilt, x, x);
    }
    return is_spoilt(spoilt) && attnkit_neon_settle(1, n, &out);
}
