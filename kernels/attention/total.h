/* SPDX-License-Identifier: Apache-2.0
 *
 * The total of a query row over its chunks: maximum and sum, into which those of states fold by
 * step 9 of ../README.md, and the line that goes to the caller. Columns are the tiles' work.
 */
#ifndef ATTNKIT_TOTAL_H
#define ATTNKIT_TOTAL_H

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"

/* The factors of o and l of the total, and of the state that is folded into it. */
struct factors {
    double total, state;
};

/* 2^x for a whole number x <= 0, +0 below LEAST_POWER, NaN for NaN. */
static inline double exact_power(float x)
{
    if (!(x >= LEAST_POWER))
        return x < LEAST_POWER ? 0.0 : (double)x;
    const uint64_t bits = (uint64_t)(1023 + (int)x) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* The factor of a state with this maximum under a new one. */
static inline double factor_of(float max, float new_max)
{
    return exact_power(max - (new_max == -INFINITY ? 0.0f : new_max));
}

/* Moves M and l of a total on. Both products are exact, so that a fused
 * operation would give the same. */
static inline struct factors fold_sum(float *row_max, double *row_sum, float max, float sum)
{
    const float new_max = max > *row_max ? max : *row_max;
    const struct factors f = {factor_of(*row_max, new_max), factor_of(max, new_max)};
    *row_sum = *row_sum * f.total + (double)sum * f.state;
    *row_max = new_max;
    return f;
}

/* The divisor of o. */
static inline double divisor_of(double row_sum)
{
    return row_sum == 0.0 ? 1.0 : row_sum;
}

/* Divides where quotient_row, which multiplies by inverse_of(divisor), has given no finite value.
 */
static inline void divide_not_finite(const double *o, double divisor, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        const float quotient = (float)(o[i] / divisor);
        if (!(fabsf(out[i]) <= FLT_MAX))
            out[i] = isnan(quotient) ? NAN : quotient + 0.0f;
    }
}

/* A number as a total gives it to the caller: a zero is +0 whichever way it came about, and a NaN
 * has the same bits. */
static inline double plain_double(double x)
{
    return isnan(x) ? (double)NAN : x + 0.0;
}

/* A sink folds into the line of a row, o of which is every `stride`th number. It has no value, and
 * mostly is less than the scores: then o stays as it is. */
static inline void fold_sink(struct total line, float max, float sum, int64_t stride,
                             int64_t value_dim)
{
    const struct factors f = fold_sum(line.row_max, line.row_sum, max, sum);
    for (int64_t c = 0; f.total != 1.0 && c < value_dim; c++)
        line.out[c * stride] *= f.total;
}

/* Writes the total of a row to the caller's state. Returns whether a number of o is NaN or
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
