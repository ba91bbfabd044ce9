/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of 32 products of bf16. A word is one element, as binary32. The loops are in tiles.h and,
 * for few rows, few.h of kernels/vectors/grouped.
 *
 * A register tile of tiles.h has 4 keys or columns x 3 vectors. Each of these 12 sums has two
 * accumulators, one for even and one for odd words of a group. 24 accumulators, 3 vectors with a
 * word of each lane and 1 broadcast take 28 of 32 registers. One word of each of the 4 keys or
 * columns takes 12 fmla, which limit the speed, and 7 loads.
 */
#include "kernels/neon/neon.h"

enum { SUMS = 12 };

static inline floats grouped_step(floats x, floats w, floats sum)
{
    return fma_v(x, w, sum);
}

/* Rounds to the nearest bf16, ties to even. A NaN stays NaN. */
static inline floats to_bf16(floats x)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(x);
    const uint32x4_t last = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t sum = vaddq_u32(bits, vaddq_u32(last, vdupq_n_u32(0x7fff)));
    const uint32x4_t high = vandq_u32(sum, vdupq_n_u32(0xffff0000));
    return vreinterpretq_f32_u32(vornq_u32(high, vceqq_f32(x, x)));
}

/* Defines attnkit_neon_grouped. */
#include "kernels/vectors/grouped/floats.h"
#include "kernels/vectors/grouped/tiles.h"
