/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a chunk and of an item: the state of the first chunk of a panel becomes the total, and
 * the states of later chunks are folded into the total. M is the maximum of a state or total, l the
 * sum of weights, and o the weighted sum of V. A state or a total becomes the result: out = o / l +
 * 0 and lse = M ln 2 + log l. In panels the lanes are rows. In decode the elements of a row's o lie
 * side by side in memory. There are more registers than needed. Loads and stores limit the speed of
 * folding, and fdiv limits the speed of finishing a state. The quotients of a total take products
 * and multiply-adds with 1 / l in place of fdiv.
 */
#include "kernels/neon/neon.h"

enum { HALF = VECTOR / 2 /* doubles in a vector */ };

typedef float64x2_t doubles;

/* Four numbers of binary64. */
struct wide_vector {
    doubles low, high;
};

static inline struct wide_vector widened(float32x4_t x)
{
    return (struct wide_vector){vcvt_f64_f32(vget_low_f32(x)), vcvt_high_f64_f32(x)};
}

static inline float32x4_t narrowed(struct wide_vector x)
{
    return vcvt_high_f32_f64(vcvt_f32_f64(x.low), x.high);
}

static inline struct wide_vector load_widened(const float *from)
{
    return widened(vld1q_f32(from));
}

static inline struct wide_vector load_wide(const double *from)
{
    return (struct wide_vector){vld1q_f64(from), vld1q_f64(from + HALF)};
}

static inline void store_wide(double *to, struct wide_vector x)
{
    vst1q_f64(to, x.low);
    vst1q_f64(to + HALF, x.high);
}

/* Loads the first n doubles, 1 <= n <= 3, as load_first loads floats. store_first_wide stores the
 * first n doubles. */
static inline struct wide_vector load_first_wide(const double *from, int64_t n)
{
    struct wide_vector x = {vdupq_n_f64(0.0), vdupq_n_f64(0.0)};
    x.low = vld1q_lane_f64(from, x.low, 0);
    if (n > 1)
        x.low = vld1q_lane_f64(from + 1, x.low, 1);
    if (n > 2)
        x.high = vld1q_lane_f64(from + 2, x.high, 0);
    return x;
}

static inline void store_first_wide(double *to, int64_t n, struct wide_vector x)
{
    vst1q_lane_f64(to, x.low, 0);
    if (n > 1)
        vst1q_lane_f64(to + 1, x.low, 1);
    if (n > 2)
        vst1q_lane_f64(to + 2, x.high, 0);
}

static inline doubles broadcast_double(double x)
{
    return vdupq_n_f64(x);
}

static inline doubles fma_double(doubles a, doubles b, doubles c)
{
    return vfmaq_f64(c, a, b);
}

/* Returns c - a * b. */
static inline doubles fnma_double(doubles a, doubles b, doubles c)
{
    return vfmsq_f64(c, a, b);
}

/* Returns l, or 1 where l is 0. */
static inline doubles one_for_zero(doubles l)
{
    return vbslq_f64(vceqzq_f64(l), vdupq_n_f64(1.0), l);
}

/* Computes inverse_of for each lane. */
static inline float64x2_t inverse_of_each(float64x2_t l)
{
    const float64x2_t size = vabsq_f64(l);
    const uint64x2_t usual = vandq_u64(vcgeq_f64(size, vdupq_n_f64(LEAST_DIVISOR)),
                                       vcleq_f64(size, vdupq_n_f64(LARGEST_DIVISOR)));
    return vbslq_f64(usual, vdivq_f64(vdupq_n_f64(1.0), l), vdupq_n_f64((double)NAN));
}

/* Defines attnkit_neon_begin_total, attnkit_neon_fold, attnkit_neon_fold_row, attnkit_neon_settle,
 * attnkit_neon_finish, attnkit_neon_finish_total, attnkit_neon_decode_finish and
 * attnkit_neon_quotient_row. */
#include "kernels/vectors/state.h"
