/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to a softmax state after its blocks: the first chunk of a panel becomes its total,
 * later ones fold in, and a state or a total becomes the result, out = o / l + 0 and
 * lse = M ln 2 + log l. For panels, with rows across the lanes, and for decode, with a line per
 * row. Called at the end of a chunk and of an item. Registers are plenty; loads and stores bound
 * the folding, fdiv the finishing.
 */
#include "kernels/neon/neon.h"

enum { WIDE = 2 /* doubles in a vector */ };

/* Four numbers of binary64. */
struct wide {
    float64x2_t half[VECTOR / WIDE];
};

static inline struct wide widened(float32x4_t x)
{
    return (struct wide){{vcvt_f64_f32(vget_low_f32(x)), vcvt_high_f64_f32(x)}};
}

static inline float32x4_t narrowed(struct wide x)
{
    return vcvt_high_f32_f64(vcvt_f32_f64(x.half[0]), x.half[1]);
}

static inline struct wide load_wide(const double *from)
{
    return (struct wide){{vld1q_f64(from), vld1q_f64(from + WIDE)}};
}

/* The first n, 1 <= n <= 4, and no byte behind them; the others are 0. */
static inline struct wide load_wide_n(const double *from, int n)
{
    if (n == VECTOR)
        return load_wide(from);
    struct wide x = {{vld1q_lane_f64(from, vdupq_n_f64(0.0), 0), vdupq_n_f64(0.0)}};
    if (n > 1)
        x.half[0] = vld1q_lane_f64(from + 1, x.half[0], 1);
    if (n > 2)
        x.half[1] = vld1q_lane_f64(from + 2, x.half[1], 0);
    return x;
}

static inline void store_wide(double *to, struct wide x)
{
    vst1q_f64(to, x.half[0]);
    vst1q_f64(to + WIDE, x.half[1]);
}

void attnkit_neon_begin_total(const struct total *total, const struct state *chunk, int lanes,
                              int64_t value_dim)
{
    for (int lane = 0; lane < lanes; lane += VECTOR) {
        vst1q_f32(total->row_max + lane, vld1q_f32(chunk->row_max + lane));
        store_wide(total->row_sum + lane, widened(vld1q_f32(chunk->row_sum + lane)));
    }
    for (int64_t i = 0; i < value_dim * lanes; i += VECTOR)
        store_wide(total->out + i, widened(vld1q_f32(chunk->out + i)));
}

/* What l and o of some rows are multiplied by before they are added up. */
struct factors {
    struct wide total, chunk;
};

/* Moves M on. */
static struct factors fold_max(float *row_max, const float *chunk_max)
{
    const float32x4_t max = vld1q_f32(row_max), other = vld1q_f32(chunk_max);
    const float32x4_t new_max = vmaxnmq_f32(max, other), subtrahend = finite_max(new_max);
    float32x4_t x[] = {vsubq_f32(max, subtrahend), vsubq_f32(other, subtrahend)};
    exp2_vectors(x, 2);
    vst1q_f32(row_max, new_max);
    return (struct factors){widened(x[0]), widened(x[1])};
}

static inline struct wide folded(struct wide total, float32x4_t chunk, const struct factors *by)
{
    const struct wide x = widened(chunk);
    for (int i = 0; i < VECTOR / WIDE; i++)
        total.half[i] =
            vfmaq_f64(vmulq_f64(x.half[i], by->chunk.half[i]), total.half[i], by->total.half[i]);
    return total;
}

static inline void fold_lanes(double *total, const float *chunk, const struct factors *by)
{
    store_wide(total, folded(load_wide(total), vld1q_f32(chunk), by));
}

void attnkit_neon_fold(const struct total *total, const struct state *chunk, int lanes,
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

void attnkit_neon_fold_row(double *o, const float *chunk, double a, double b, int64_t n)
{
    const float64x2_t total = vdupq_n_f64(a), part = vdupq_n_f64(b);
    const struct factors by = {{{total, total}}, {{part, part}}};
    int64_t i = 0;
    for (; i + VECTOR <= n; i += VECTOR)
        fold_lanes(o + i, chunk + i, &by);
    for (; i < n; i++)
        o[i] = fma(o[i], a, (double)chunk[i] * b);
}

static float32x4_t log_sum_exp(float32x4_t row_max, float32x4_t row_sum)
{
    const float32x4_t low = vfmaq_n_f32(log_v(row_sum), row_max, LN2_LO);
    return plain_nan(vfmaq_n_f32(low, row_max, LN2_HI));
}

static void finish_lse(float32x4_t row_max, float32x4_t row_sum, int rows, float *const *lse)
{
    float lane[VECTOR];
    vst1q_f32(lane, log_sum_exp(row_max, row_sum));
    for (int i = 0; i < rows; i++)
        *lse[i] = lane[i];
}

uint64_t attnkit_neon_settle(int rows, int64_t n, float *const *out)
{
    uint64_t not_finite = 0;
    for (int r = 0; r < rows; r++) {
        float32x4_t spoilt = vdupq_n_f32(0.0f);
        for (int64_t i = 0; i < n; i += VECTOR) {
            const int count = lanes_at(i, n);
            const float32x4_t x = load_n(out[r] + i, count);
            spoilt = spoil(spoilt, x);
            store_n(out[r] + i, plain_nan(x), count);
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

/* Four l, or what o is divided by. */
struct sums {
    float32x4_t narrow; /* binary32 */
    struct wide wide;   /* of a total */
};

static inline __attribute__((always_inline)) struct sums load_sums(const bool is_total,
                                                                   const void *row_sum, int lane)
{
    struct sums l;
    if (is_total) {
        l.wide = load_wide((const double *)row_sum + lane);
        l.narrow = narrowed(l.wide);
    } else {
        l.narrow = vld1q_f32((const float *)row_sum + lane);
    }
    return l;
}

static inline float64x2_t wide_divisor(float64x2_t row_sum)
{
    return vbslq_f64(vceqzq_f64(row_sum), vdupq_n_f64(1.0), row_sum);
}

static inline __attribute__((always_inline)) struct sums divisors(const bool is_total,
                                                                  struct sums l)
{
    l.narrow = divisor_of(l.narrow);
    for (int i = 0; is_total && i < VECTOR / WIDE; i++)
        l.wide.half[i] = wide_divisor(l.wide.half[i]);
    return l;
}

/* Four lanes of a panel, of which the first `rows`, 1 .. 4, are finished. */
struct lanes {
    const void *o; /* of the first */
    struct sums divisor;
    int lanes, rows;
    float *const *out;
};

/* A column of the result. */
static inline __attribute__((always_inline)) float32x4_t
quotients(const bool is_total, const struct lanes *w, int64_t column)
{
    if (!is_total)
        return result(vld1q_f32((const float *)w->o + column * w->lanes), w->divisor.narrow);
    struct wide x = load_wide((const double *)w->o + column * w->lanes);
    for (int i = 0; i < VECTOR / WIDE; i++)
        x.half[i] = vdivq_f64(x.half[i], w->divisor.wide.half[i]);
    return vaddq_f32(narrowed(x), vdupq_n_f32(0.0f));
}

/* Returns a bit for each lane, as finish does. */
static inline __attribute__((always_inline)) uint64_t
finish_lanes(const bool is_total, const struct lanes *w, int64_t value_dim)
{
    float32x4_t spoilt = vdupq_n_f32(0.0f);
    for (int64_t c = 0; c < value_dim; c += VECTOR) {
        const int columns = lanes_at(c, value_dim);
        float32x4_t x[VECTOR];
        for (int i = 0; i < VECTOR; i++) {
            x[i] = i < columns ? quotients(is_total, w, c + i) : vdupq_n_f32(0.0f);
            spoilt = spoil(spoilt, x[i]);
        }
        transpose(x);
        for (int row = 0; row < VECTOR; row++)
            if (row < w->rows)
                store_n(w->out[row] + c, x[row], columns);
    }
    return is_spoilt(spoilt) ? attnkit_neon_settle(w->rows, value_dim, w->out) : 0;
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
                                .rows = lanes_at(lane, rows),
                                .out = out + lane};
        not_finite |= finish_lanes(is_total, &w, value_dim) << lane;
        if (lse)
            finish_lse(vld1q_f32(from->row_max + lane), l.narrow, w.rows, lse + lane);
    }
    return not_finite;
}

uint64_t attnkit_neon_finish(const struct state *st, int lanes, int64_t value_dim, int rows,
                             float *const *out, float *const *lse)
{
    const struct source from = {st->row_max, st->row_sum, st->out};
    return finish(false, &from, lanes, value_dim, rows, out, lse);
}

uint64_t attnkit_neon_finish_total(const struct total *total, int lanes, int64_t value_dim,
                                   int rows, float *const *out, float *const *lse)
{
    const struct source from = {total->row_max, total->row_sum, total->out};
    return finish(true, &from, lanes, value_dim, rows, out, lse);
}

uint64_t attnkit_neon_decode_finish(const struct state *st, int rows, int64_t value_dim,
                                    float *const *out, float *const *lse)
{
    float32x4_t spoilt = vdupq_n_f32(0.0f);
    for (int r = 0; r < rows; r++) {
        const float32x4_t row_sum = vld1q_dup_f32(st->row_sum + r);
        const float32x4_t l = divisor_of(row_sum);
        const float *o = st->out + r * value_dim;
        for (int64_t c = 0; c < value_dim; c += VECTOR) {
            const int columns = lanes_at(c, value_dim);
            const float32x4_t x = result(load_n(o + c, columns), l);
            spoilt = spoil(spoilt, x);
            store_n(out[r] + c, x, columns);
        }
        if (lse)
            store_n(lse[r], log_sum_exp(vld1q_dup_f32(st->row_max + r), row_sum), 1);
    }
    return is_spoilt(spoilt) ? attnkit_neon_settle(rows, value_dim, out) : 0;
}

bool attnkit_neon_quotient_row(const double *o, double divisor, int64_t n, float *out)
{
    const float64x2_t l = vdupq_n_f64(divisor);
    float32x4_t spoilt = vdupq_n_f32(0.0f);
    for (int64_t i = 0; i < n; i += VECTOR) {
        const int count = lanes_at(i, n);
        struct wide x = load_wide_n(o + i, count);
        for (int j = 0; j < VECTOR / WIDE; j++)
            x.half[j] = vdivq_f64(x.half[j], l);
        const float32x4_t y = vaddq_f32(narrowed(x), vdupq_n_f32(0.0f));
        spoilt = spoil(spoilt, y);
        store_n(out + i, y, count);
    }
    return is_spoilt(spoilt) && attnkit_neon_settle(1, n, &out);
}

/* The new maximum, and the powers of two that total and chunk are multiplied by. */
struct narrow_factors {
    float32x4_t row_max, total, chunk;
};

static struct narrow_factors fold_factors(float32x4_t total_max, float32x4_t chunk_max)
{
    const float32x4_t new_max = vmaxnmq_f32(total_max, chunk_max);
    const float32x4_t subtrahend = finite_max(new_max);
    return (struct narrow_factors){new_max, exp2_v(vsubq_f32(total_max, subtrahend)),
                                   exp2_v(vsubq_f32(chunk_max, subtrahend))};
}

static inline float32x4_t narrow_folded(float32x4_t total, float32x4_t chunk,
                                        struct narrow_factors by)
{
    return vfmaq_f32(vmulq_f32(chunk, by.chunk), total, by.total);
}

void attnkit_neon_fold_f32(const struct state *total, const struct state *chunk, int lanes,
                           int64_t value_dim)
{
    for (int lane = 0; lane < lanes; lane += 4) {
        const struct narrow_factors by =
            fold_factors(vld1q_f32(total->row_max + lane), vld1q_f32(chunk->row_max + lane));
        const float32x4_t row_sum =
            narrow_folded(vld1q_f32(total->row_sum + lane), vld1q_f32(chunk->row_sum + lane), by);
        vst1q_f32(total->row_max + lane, by.row_max);
        vst1q_f32(total->row_sum + lane, row_sum);
        for (int64_t i = lane; i < value_dim * lanes; i += lanes)
            vst1q_f32(total->out + i,
                      narrow_folded(vld1q_f32(total->out + i), vld1q_f32(chunk->out + i), by));
    }
}

static void decode_fold_row(float *total, const float *chunk, int64_t value_dim,
                            struct narrow_factors by)
{
    for (int64_t c = 0; c < value_dim; c += 4) {
        const int columns = lanes_at(c, value_dim);
        store_n(total + c,
                narrow_folded(load_n(total + c, columns), load_n(chunk + c, columns), by), columns);
    }
}

void attnkit_neon_decode_fold(const struct state *total, const struct state *chunk, int rows,
                              int64_t value_dim)
{
    for (int r = 0; r < rows; r++) {
        const struct narrow_factors by =
            fold_factors(vld1q_dup_f32(total->row_max + r), vld1q_dup_f32(chunk->row_max + r));
        const float32x4_t row_sum =
            narrow_folded(vld1q_dup_f32(total->row_sum + r), vld1q_dup_f32(chunk->row_sum + r), by);
        store_n(total->row_max + r, by.row_max, 1);
        store_n(total->row_sum + r, row_sum, 1);
        decode_fold_row(total->out + r * value_dim, chunk->out + r * value_dim, value_dim, by);
    }
}

void attnkit_neon_part_state(const float *out, float l, int64_t value_dim, float *o)
{
    for (int64_t c = 0; c < value_dim; c += 4) {
        const int columns = lanes_at(c, value_dim);
        store_n(o + c, vmulq_n_f32(load_n(out + c, columns), l), columns);
    }
}
