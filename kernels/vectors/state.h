/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a chunk and of an item: the state of the first chunk of a panel becomes the total, and
 * the states of later chunks are folded into the total. M is the maximum of a state or total, l the
 * sum of weights, and o the weighted sum of V. A state or a total becomes the result:
 *     out = o / l + 0        lse = M ln 2 + log l
 * In panels the lanes are rows. In decode the elements of a row's o lie side by side in memory. A
 * struct wide_vector holds VECTOR numbers of binary64. The state.c of an instruction set defines
 * this struct and its operations, and then includes this file.
 */
#ifndef ATTNKIT_VECTORS_STATE_H
#define ATTNKIT_VECTORS_STATE_H

#include "kernels/kernels.h"

void KERNEL(begin_total)(const struct total *total, const struct state *chunk, int lanes,
                         int64_t value_dim)
{
    for (int lane = 0; lane < lanes; lane += VECTOR) {
        store_aligned(total->row_max + lane, load_aligned(chunk->row_max + lane));
        store_wide(total->row_sum + lane, load_widened(chunk->row_sum + lane));
    }
    double *const o = total->out;
    const float *const chunk_o = chunk->out;
    for (int64_t i = 0; i < value_dim * lanes; i += VECTOR)
        store_wide(o + i, load_widened(chunk_o + i));
}

/* The factors by which l and o of the total and of the chunk are multiplied before they are
 * added. */
struct fold_factors {
    struct wide_vector total, chunk;
};

/* Replaces M of the total by the larger of M of the total and M of the chunk, in VECTOR lanes.
 * Returns the factors for the sums of the total and of the chunk. */
static inline struct fold_factors fold_max(float *row_max, const float *chunk_max)
{
    const floats max = load_aligned(row_max), other = load_aligned(chunk_max);
    const floats new_max = max_without_nan(other, max), subtrahend = finite_max(new_max);
    floats x[] = {max - subtrahend, other - subtrahend};
    exp2_vectors(x, 2);
    store_aligned(row_max, new_max);
    return (struct fold_factors){widened(x[0]), widened(x[1])};
}

static inline struct wide_vector folded(struct wide_vector total, struct wide_vector chunk,
                                        const struct fold_factors *by)
{
    return (struct wide_vector){
        fma_double(total.low, by->total.low, chunk.low * by->chunk.low),
        fma_double(total.high, by->total.high, chunk.high * by->chunk.high),
    };
}

static inline void fold_vector(double *total, const float *chunk, const struct fold_factors *by)
{
    store_wide(total, folded(load_wide(total), load_widened(chunk), by));
}

void KERNEL(fold)(const struct total *total, const struct state *chunk, int lanes,
                  int64_t value_dim)
{
    for (int lane = 0; lane < lanes; lane += VECTOR) {
        const struct fold_factors by = fold_max(total->row_max + lane, chunk->row_max + lane);
        double *const o = total->out;
        const float *const chunk_o = chunk->out;
        fold_vector(total->row_sum + lane, chunk->row_sum + lane, &by);
        for (int64_t i = lane; i < value_dim * lanes; i += lanes)
            fold_vector(o + i, chunk_o + i, &by);
    }
}

void KERNEL(fold_row)(double *o, const float *chunk, double a, double b, int64_t n)
{
    const doubles total = broadcast_double(a), part = broadcast_double(b);
    const struct fold_factors by = {{total, total}, {part, part}};
    int64_t i = 0;
    for (; i + VECTOR <= n; i += VECTOR)
        fold_vector(o + i, chunk + i, &by);
    if (i < n)
        store_first_wide(
            o + i, n - i,
            folded(load_first_wide(o + i, n - i), widened(load_first(chunk + i, n - i)), &by));
}

static inline floats log_sum_exp(floats row_max, floats row_sum)
{
    const floats log_sum = log_v(row_sum);
    const floats low = fma_v(row_max, broadcast(LN2_LO), log_sum);
    return plain_nan(fma_v(row_max, broadcast(LN2_HI), low));
}

static void finish_lse(floats row_max, floats row_sum, int rows, float *const *lse)
{
    float values[VECTOR];
    store_floats(values, log_sum_exp(row_max, row_sum));
    for (int i = 0; i < VECTOR && i < rows; i++)
        *lse[i] = values[i];
}

uint64_t KERNEL(settle)(int rows, int64_t n, float *const *out)
{
    uint64_t not_finite = 0;
    for (int r = 0; r < rows; r++) {
        floats spoilt = unspoilt();
        for (int64_t i = 0; i < n; i += VECTOR) {
            const floats x = load_first(out[r] + i, n - i);
            spoilt = spoil(spoilt, x, broadcast(0.0f));
            store_first(out[r] + i, n - i, plain_nan(x));
        }
        not_finite |= (uint64_t)is_spoilt(spoilt) << r;
    }
    return not_finite;
}

/* The divisors l, with 1 in place of 0, and the result of inverse_of for each of them. */
struct divisor {
    struct wide_vector l, inverse;
};

static inline struct divisor wide_divisor(struct wide_vector row_sum)
{
    const struct wide_vector l = {one_for_zero(row_sum.low), one_for_zero(row_sum.high)};
    return (struct divisor){l, {inverse_of_each(l.low), inverse_of_each(l.high)}};
}

/* Returns o / l, correctly rounded by a theorem of Markstein. `inverse` is the rounded 1 / l, or
 * NaN (see inverse_of). Two steps correct o * inverse, each by the remainder o - quotient * l. The
 * result is NaN where `inverse` is NaN, or where o or the quotient is infinite. */
static inline doubles wide_quotient(doubles o, doubles l, doubles inverse)
{
    const doubles rough = o * inverse;
    const doubles q = fma_double(fnma_double(rough, l, o), inverse, rough);
    return fma_double(fnma_double(q, l, o), inverse, q);
}

static inline floats wide_result(struct wide_vector o, const struct divisor *d)
{
    const struct wide_vector x = {wide_quotient(o.low, d->l.low, d->inverse.low),
                                  wide_quotient(o.high, d->l.high, d->inverse.high)};
    return narrowed(x) + broadcast(0.0f);
}

/* The source of o and l: a chunk has them in binary32, a total in binary64. */
enum numbers {
    NARROW, /* o and l from a chunk */
    WIDE,   /* o and l from a total */
    MIXED,  /* o from a chunk, l from a total */
};

/* VECTOR lanes of a panel, and where their results go. Lanes from `rows` on are spare and get no
 * result. */
struct part {
    enum numbers numbers;
    const void *o; /* points at the first of the lanes */
    floats divisor;
    struct divisor wide_divisor;
    int lanes, rows;
    float *const *out;
};

/* Returns column `column` of the result, for the lanes of the part. */
static inline __attribute__((always_inline)) floats quotients(const enum numbers numbers,
                                                              const struct part *p, int64_t column)
{
    const int64_t at = column * p->lanes;
    if (numbers == WIDE)
        return wide_result(load_wide((const double *)p->o + at), &p->wide_divisor);
    const float *const o = (const float *)p->o + at;
    return numbers == MIXED ? wide_result(load_widened(o), &p->wide_divisor)
                            : result(load_aligned(o), p->divisor);
}

/* Computes up to VECTOR columns from `column` on. Transposes these columns so that a register holds
 * a row, and stores the rows. Returns `spoilt`, in which a lane becomes NaN or infinite if a value
 * of this lane is NaN or infinite. */
static inline __attribute__((always_inline)) floats finish_tile(const enum numbers numbers,
                                                                const struct part *p,
                                                                int64_t column, int64_t columns,
                                                                floats spoilt)
{
    floats r[VECTOR];
    for (int i = 0; i < VECTOR; i++)
        r[i] = i < columns ? quotients(numbers, p, column + i) : broadcast(0.0f);
    for (int i = 0; i < VECTOR; i += 2)
        spoilt = spoil(spoilt, r[i], r[i + 1]);
    transpose(r);
    for (int i = 0; i < VECTOR; i++)
        if (i < p->rows)
            store_first(p->out[i] + column, columns, r[i]);
    return spoilt;
}

/* Does the work of finish_tile for the last columns, which fill less than a vector. The function is
 * not inlined: value_dim is a multiple of VECTOR in almost all models, so short code matters more
 * than time. */
static __attribute__((noinline, cold)) floats finish_rest(const struct part *p, int64_t column,
                                                          int64_t columns, floats spoilt)
{
    return finish_tile(p->numbers, p, column, columns, spoilt);
}

/* Finishes all columns of a part. Returns a bit for each lane: 1 if the row of this lane has a
 * value that is NaN or infinite. */
static inline __attribute__((always_inline)) uint64_t
finish_part(const enum numbers numbers, const struct part *p, int64_t value_dim)
{
    floats spoilt = unspoilt();
    int64_t c = 0;
    for (; c + VECTOR <= value_dim; c += VECTOR)
        spoilt = finish_tile(numbers, p, c, VECTOR, spoilt);
    if (c < value_dim)
        spoilt = finish_rest(p, c, value_dim - c, spoilt);
    if (!is_spoilt(spoilt))
        return 0;
    return KERNEL(settle)(p->rows < VECTOR ? p->rows : VECTOR, value_dim, p->out);
}

/* M, l and o of a panel. l and o are binary32 or binary64. */
struct state_source {
    const float *row_max;
    const void *row_sum, *out;
};

static inline __attribute__((always_inline)) uint64_t finish(const enum numbers numbers,
                                                             const struct state_source *from,
                                                             int lanes, int64_t value_dim, int rows,
                                                             float *const *out, float *const *lse)
{
    uint64_t not_finite = 0;
    for (int lane = 0; lane < rows; lane += VECTOR) {
        struct part p = {
            .numbers = numbers, .lanes = lanes, .rows = rows - lane, .out = out + lane};
        floats row_sum;
        p.o = numbers == WIDE ? (const void *)((const double *)from->out + lane)
                              : (const void *)((const float *)from->out + lane);
        if (numbers != NARROW) {
            const struct wide_vector l = load_wide((const double *)from->row_sum + lane);
            p.wide_divisor = wide_divisor(l);
            row_sum = narrowed(l);
        } else {
            row_sum = load_aligned((const float *)from->row_sum + lane);
            p.divisor = divisor(row_sum);
        }
        not_finite |= finish_part(numbers, &p, value_dim) << lane;
        if (lse)
            finish_lse(load_aligned(from->row_max + lane), row_sum, rows - lane, lse + lane);
    }
    return not_finite;
}

uint64_t KERNEL(finish)(const struct state *st, int lanes, int64_t value_dim, int rows,
                        float *const *out, float *const *lse)
{
    const struct state_source from = {st->row_max, st->row_sum, st->out};
    return finish(NARROW, &from, lanes, value_dim, rows, out, lse);
}

uint64_t KERNEL(finish_total)(const struct total *total, const float *chunk_out, int lanes,
                              int64_t value_dim, int rows, float *const *out, float *const *lse)
{
    struct state_source from = {total->row_max, total->row_sum, total->out};
    if (!chunk_out)
        return finish(WIDE, &from, lanes, value_dim, rows, out, lse);
    from.out = chunk_out;
    return finish(MIXED, &from, lanes, value_dim, rows, out, lse);
}

/* Computes and stores a row of the result. Returns `spoilt`, in which a lane becomes NaN or
 * infinite if a value of this lane is NaN or infinite. */
static inline floats finish_row(const float *o, floats divisor, int64_t n, float *out,
                                floats spoilt)
{
    int64_t i = 0;
    for (; i + 2 * VECTOR <= n; i += 2 * VECTOR) {
        const floats x = result(load_floats(o + i), divisor);
        const floats y = result(load_floats(o + i + VECTOR), divisor);
        store_floats(out + i, x);
        store_floats(out + i + VECTOR, y);
        spoilt = spoil(spoilt, x, y);
    }
    if (i + VECTOR <= n) {
        const floats x = result(load_floats(o + i), divisor);
        store_floats(out + i, x);
        spoilt = spoil(spoilt, x, x);
        i += VECTOR;
    }
    if (i < n) {
        const floats x = result(load_first(o + i, n - i), divisor);
        store_first(out + i, n - i, x);
        spoilt = spoil(spoilt, x, x);
    }
    return spoilt;
}

/* Stores lse of each row. The function is not inlined, so that a call without lse makes no stack
 * frame. */
static __attribute__((noinline)) void finish_row_lse(const struct state *st, int rows,
                                                     float *const *lse)
{
    for (int r = 0; r < rows; r += VECTOR)
        finish_lse(load_floats(st->row_max + r), load_floats(st->row_sum + r), rows - r, lse + r);
}

uint64_t KERNEL(decode_finish)(const struct state *st, int rows, int64_t value_dim,
                               float *const *out, float *const *lse)
{
    floats spoilt = unspoilt();
    if (lse)
        finish_row_lse(st, rows, lse);
    for (int r = 0; r < rows; r++) {
        const floats l = divisor(broadcast(st->row_sum[r]));
        spoilt = finish_row(st->out + r * value_dim, l, value_dim, out[r], spoilt);
    }
    return is_spoilt(spoilt) ? KERNEL(settle)(rows, value_dim, out) : 0;
}

bool KERNEL(quotient_row)(const double *o, double divisor, int64_t n, float *out)
{
    const doubles l = broadcast_double(divisor), inverse = broadcast_double(inverse_of(divisor));
    const struct divisor d = {{l, l}, {inverse, inverse}};
    floats spoilt = unspoilt();
    int64_t i = 0;
    for (; i + VECTOR <= n; i += VECTOR) {
        const floats x = wide_result(load_wide(o + i), &d);
        store_floats(out + i, x);
        spoilt = spoil(spoilt, x, x);
    }
    if (i < n) {
        const floats x = wide_result(load_first_wide(o + i, n - i), &d);
        store_first(out + i, n - i, x);
        spoilt = spoil(spoilt, x, x);
    }
    return is_spoilt(spoilt) && KERNEL(settle)(1, n, &out);
}

#endif
