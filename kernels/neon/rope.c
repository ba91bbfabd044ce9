/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotation of pairs of elements: 2 pairs in a vector if the pairs are interleaved, else 4 pairs in
 * two vectors. In calls with a rotation, kernels/cache/append.c calls `rotate` for each row of each
 * head. All loads come from L1.
 */
#include "kernels/neon/neon.h"

/* Rotates two pairs x = a0 a1 b0 b1, with the cosines c = ca ca cb cb and the sines s = sa sa sb
 * sb. Only the first n floats are read and written. */
static inline void rotate_two(float *x, float32x4_t c, float32x4_t s, int n)
{
    const uint32x4_t even = vreinterpretq_u32_u64(vdupq_n_u64(0x80000000)); /* even lanes */
    const float32x4_t pair = load_first(x, n);
    const uint32x4_t turned = vreinterpretq_u32_f32(vmulq_f32(vrev64q_f32(pair), s));
    const float32x4_t y = vfmaq_f32(vreinterpretq_f32_u32(veorq_u32(turned, even)), pair, c);
    store_first(x, n, plain_nan(y));
}

static void rotate_interleaved(float *x, const float *cos, const float *sin, int64_t pairs)
{
    for (int64_t i = 0; i < pairs; i += VECTOR) {
        const int n = lanes_at(i, pairs);
        const float32x4_t c = load_first(cos + i, n), s = load_first(sin + i, n);
        rotate_two(x + 2 * i, vzip1q_f32(c, c), vzip1q_f32(s, s), n < 2 ? 2 : 4);
        if (n > 2)
            rotate_two(x + 2 * i + 4, vzip2q_f32(c, c), vzip2q_f32(s, s), 2 * n - 4);
    }
}

/* Defines attnkit_neon_rotate. */
#include "kernels/vectors/rope.h"
