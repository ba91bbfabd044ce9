/* SPDX-License-Identifier: Apache-2.0
 *
 * The total of a query row over its chunks: the maximum M, the sum of weights l, and the weighted
 * sum of V, o. This file folds the maximum and the sum of a state into the total, by step 9 of
 * ../README.md, and writes totals for the caller. The tiles and careful.c fold the columns of o of
 * a state. For a sink, fold_sink of this file rescales o of the total.
 */
#ifndef ATTNKIT_TOTAL_H
#define ATTNKIT_TOTAL_H

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"

/* The factors by which o and l are multiplied when a state folds into a total: one factor for o and
 * l of the total, one for o and l of the state. */
struct factors {
    double total, state;
};

/* Returns 2^x for a whole number x <= 0. Returns +0 for x below LEAST_POWER, and NaN for NaN. */
static inline double exact_power(float x)
{
    if (!(x >= LEAST_POWER))
        return x < LEAST_POWER ? 0.0 : (double)x;
    const uint64_t bits = (uint64_t)(1023 + (int)x) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* Returns the factor of a state or total whose maximum is `max`, when the maximum becomes
 * new_max. */
static inline double factor_of(float max, float new_max)
{
    return exact_power(max - (new_max == -INFINITY ? 0.0f : new_max));
}

/* Folds maximum and sum of a state into M and l of a total. Returns the factors for o. The two
 * products of a sum and its factor are exact, so a fused multiply-add would give the same
 * result. */
static inline struct factors fold_sum(float *row_max, double *row_sum, float max, float sum)
{
    const float new_max = max > *row_max ? max : *row_max;
    const struct factors f = {factor_of(*row_max, new_max), factor_of(max, new_max)};
    *row_sum = *row_sum * f.total + (double)sum * f.state;
    *row_max = new_max;
    return f;
}

/* Returns the divisor of o: l, or 1 if l is 0. */
static inline double divisor_of(double row_sum)
{
    return row_sum == 0.0 ? 1.0 : row_sum;
}

/* Recomputes by division the quotients in `out` that are not finite. In vector tiles, quotient_row
 * has computed these quotients from products with inverse_of(divisor). */
static inline void divide_not_finite(const double *o, double divisor, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        const float quotient = (float)(o[i] / divisor);
        if (!(fabsf(out[i]) <= FLT_MAX))
            out[i] = isnan(quotient) ? NAN : quotient + 0.0f;
    }
}

/* Returns a number in the form in which totals go to the caller: every zero is +0, and every NaN
 * has the same bits. */
static inline double plain_double(double x)
{
    return isnan(x) ? (double)NAN : x + 0.0;
}

/* Folds a sink into the total of a row. The numbers of o are `stride` doubles apart. A sink adds
 * nothing to o. If the maximum of the sink is not above the maximum of the row, as in most calls, o
 * stays as it is. */
static inline void fold_sink(struct total line, float max, float sum, int64_t stride,
                             int64_t value_dim)
{
    const struct factors f = fold_sum(line.row_max, line.row_sum, max, sum);
    for (int64_t c = 0; f.total != 1.0 && c < value_dim; c++)
        line.out[c * stride] *= f.total;
}

/* Writes the total of a row to the caller's total `to`. Returns whether a number of o is NaN or
 * infinite. */
static inline bool export_line(struct total to, struct total line, int64_t stride,
                               int64_t value_dim)
{
    bool finite = true;
    *to.row_max = *line.row_max + 0.0f;
    *to.row_sum = plain_double(*line.row_sum);
    for (int64_t c = 0; c < value_dim; c++) {
        to.out[c] = plain_double(line.out[c * stride]);
        finite &= fabs(to.out[c]) <= DBL_MAX;
    }
    return !finite;
}

#endif
