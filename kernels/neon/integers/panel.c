/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill with integers, by SMLAL of NEON. The loops are in kernels/vectors/integers/panel.h.
 *
 * The word of each of four lanes is split into its two integers. Each integer is multiplied by an
 * integer of K or V. A register tile of scores has 4 keys x 3 vectors: 12 sums, 12 scores, 6 halves
 * of words and a word of K take 31 of 32 registers. Multiplying one word of each lane by one word
 * of each key takes 24 smlal, 6 instructions that split words, and 7 loads. smlal limits the speed.
 */
#include "kernels/neon/neon.h"

enum { MOST_HEIGHT = 8 };

typedef int32x4_t sums_v;

/* The integers of a word of each of four lanes. */
typedef struct {
    int16x4_t low, high;
} lane_words;

typedef int16x4_t word;

static inline int32x4_t no_sums(void)
{
    return vdupq_n_s32(0);
}

static inline float32x4_t sums_as_floats(int32x4_t sum)
{
    return vcvtq_f32_s32(sum);
}

static inline lane_words load_words(const float *from)
{
    const int32x4_t x = vreinterpretq_s32_f32(vld1q_f32(from));
    return (lane_words){vmovn_s32(x), vshrn_n_s32(x, 16)};
}

static inline int16x4_t load_word(const float *from)
{
    return vreinterpret_s16_f32(vld1_dup_f32(from));
}

static inline __attribute__((always_inline)) int32x4_t dot(int32x4_t sum, lane_words x, int16x4_t w,
                                                           const int part)
{
    (void)part; /* every word is multiplied in the same way */
    return vmlal_lane_s16(vmlal_lane_s16(sum, x.low, w, 0), x.high, w, 1);
}

static inline float half_as_float(uint16_t bits)
{
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits))), 0);
}

/* Writes the bytes of a block as integers of 16 bits. Of each four elements, the second and the
 * third swap places, because round_row swaps them in q, too. */
static inline void widen_block(const char *bytes, float *words)
{
    const uint8x16_t order = {0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15};
    int16_t *const to = (int16_t *)(void *)words;
    for (int i = 0; i < Q8_BLOCK; i += 16) {
        const int8x16_t x = vqtbl1q_s8(vld1q_s8((const int8_t *)bytes + i), order);
        vst1q_s16(to + i, vmovl_s8(vget_low_s8(x)));
        vst1q_s16(to + i + 8, vmovl_high_s8(x));
    }
}

static inline void pair_block(const char *one, const char *two, float *words)
{
    int16_t *const to = (int16_t *)(void *)words;
    for (int i = 0; i < Q8_BLOCK; i += 8) {
        const int8x8_t a = vld1_s8((const int8_t *)one + i), b = vld1_s8((const int8_t *)two + i);
        vst1q_s16(to + 2 * i, vmovl_s8(vzip1_s8(a, b)));
        vst1q_s16(to + 2 * i + 8, vmovl_s8(vzip2_s8(a, b)));
    }
}

static inline float32x4_t larger_bits(float32x4_t a, float32x4_t b)
{
    return vreinterpretq_f32_u32(vmaxq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(b)));
}

static inline void store_pair(float *to, float32x4_t low, float32x4_t high)
{
    const int32x4_t lower = vcvtnq_s32_f32(low), upper = vcvtnq_s32_f32(high);
    vst1q_f32(to, vreinterpretq_f32_s32(vsliq_n_s32(lower, upper, 16)));
}

/* A tile of scores is smaller than a tile of columns, because a tile of scores holds a score beside
 * each integer sum. A tile of columns holds only integer sums. */
static inline int score_height(int vectors)
{
    (void)vectors;
    return 4;
}

static inline int column_height(int vectors)
{
    (void)vectors;
    return 8;
}

#include "kernels/vectors/integers/panel_pairs.h"

extern const struct integer_panel_kernels attnkit_neon_integer_panel;
const struct integer_panel_kernels attnkit_neon_integer_panel = {
    .pack_q = pack_q,
    .pack_k = pack_k,
    .pack_v = pack_v,
    .scores = scores,
    .weighted_v = weighted_v,
};
