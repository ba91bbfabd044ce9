/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounds inputs of linear maps to bytes, and makes words of 8 inputs, for NEON with and without
 * units. A file defines ROWS_OF_SUMS (kernels/vectors/integers/product.h), and then includes this
 * header.
 */
#ifndef ATTNKIT_NEON_BYTES_H
#define ATTNKIT_NEON_BYTES_H

#include "kernels/integers.h"
#include "kernels/neon/neon.h"

enum { STEP = 8 };

typedef int8_t input;

/* Words of 4 outputs: a vector with inputs 0 to 3, and a vector with inputs 4 to 7. */
typedef int8x16x2_t words_v;

static inline float round_block(const float *x, int8_t *integers, int32_t *beginning)
{
    enum { PARTS = Q8_BLOCK / VECTOR };
    float32x4_t part[PARTS];
    int16x4_t n[PARTS];
    uint32x4_t most = vdupq_n_u32(0);
    for (int i = 0; i < PARTS; i++) {
        part[i] = vld1q_f32(x + i * VECTOR);
        most = vmaxq_u32(most, vreinterpretq_u32_f32(vabsq_f32(part[i])));
    }
    const struct integer_scale s = byte_scale_of(vmaxvq_u32(most));
    for (int i = 0; i < PARTS; i++)
        n[i] = isnan(s.scale) ? vdup_n_s16(0)
                              : vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(part[i], s.inverse)));
    for (int i = 0; i < PARTS; i += 2)
        vst1_s8(integers + i * VECTOR * ROWS_OF_SUMS, vmovn_s16(vcombine_s16(n[i], n[i + 1])));
    *beginning = 0;
    return s.scale;
}

/* Makes words of 4 inputs of the TILE_KEYS outputs of a tile: bytes 4 o to 4 o + 3 belong to output
 * o. */
static inline __attribute__((always_inline)) void interleave(const int8_t *bytes,
                                                             int8x16_t w[TILE_VECTORS])
{
    const int8x16_t a = vld1q_s8(bytes), b = vld1q_s8(bytes + TILE_KEYS);
    const int8x16_t c = vld1q_s8(bytes + 2 * TILE_KEYS), d = vld1q_s8(bytes + 3 * TILE_KEYS);
    const int16x8_t ab[2] = {vreinterpretq_s16_s8(vzip1q_s8(a, b)),
                             vreinterpretq_s16_s8(vzip2q_s8(a, b))};
    const int16x8_t cd[2] = {vreinterpretq_s16_s8(vzip1q_s8(c, d)),
                             vreinterpretq_s16_s8(vzip2q_s8(c, d))};
    for (int half = 0; half < 2; half++) {
        w[2 * half] = vreinterpretq_s8_s16(vzip1q_s16(ab[half], cd[half]));
        w[2 * half + 1] = vreinterpretq_s8_s16(vzip2q_s16(ab[half], cd[half]));
    }
}

static inline __attribute__((always_inline)) void make_step(const char *bytes,
                                                            words_v w[TILE_VECTORS])
{
    int8x16_t first[TILE_VECTORS], second[TILE_VECTORS];
    interleave((const int8_t *)bytes, first);
    interleave((const int8_t *)bytes + 4 * TILE_KEYS, second);
    for (int j = 0; j < TILE_VECTORS; j++)
        w[j] = (words_v){{first[j], second[j]}};
}

#endif
