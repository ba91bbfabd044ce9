/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill with integers, by SDOT of the unit DotProd. The loops are in
 * kernels/vectors/integers/panel.h.
 *
 * In each lane, four 16-bit integers are stored as two words of four bytes: the first word has the
 * high limbs of the integers, the second word has the low limbs (kernels/neon/integers/limbs.h).
 * Both words are multiplied by the same four bytes of K or V. The loops multiply each word of a
 * lane by a word of K or V of its own, so each word of K or V is stored twice. A register tile of
 * scores has 4 keys x 3 vectors. 12 sums of high limbs, 12 sums of low limbs, 3 vectors of words of
 * q and a word of K take 28 of 32 registers. The 12 vectors of binary32 scores do not fit into the
 * other registers, and lie in memory, that is, in L1. Multiplying one word of each lane by one word
 * of each key takes 12 SDOT and 7 loads.
 */
#include "kernels/neon/neon.h"

#include "kernels/integers.h"

enum {
    MOST_HEIGHT = 8,
    QUAD = 4, /* elements or keys of a word */
};

/* The sums of the products of high limbs, and of low limbs. */
typedef struct {
    int32x4_t high, low;
} sums_v;

typedef int8x16_t lane_words;
typedef int8x8_t word;

static inline sums_v no_sums(void)
{
    return (sums_v){vdupq_n_s32(0), vdupq_n_s32(0)};
}

static inline float32x4_t sums_as_floats(sums_v sum)
{
    return vcvtq_f32_s32(vaddq_s32(vshlq_n_s32(sum.high, 8), sum.low));
}

static inline int8x16_t load_words(const float *from)
{
    return vreinterpretq_s8_f32(vld1q_f32(from));
}

static inline int8x8_t load_word(const float *from)
{
    return vreinterpret_s8_f32(vld1_dup_f32(from));
}

/* Adds four products to each lane of `sum`. SDOT is written as assembly, so that compilers keep
 * each sum in the same register. */
static inline __attribute__((always_inline)) int32x4_t add_dot(int32x4_t sum, int8x16_t x,
                                                               int8x8_t w)
{
    __asm__("sdot %0.4s, %1.16b, %2.4b[0]" : "+w"(sum) : "w"(x), "w"(w));
    return sum;
}

static inline __attribute__((always_inline)) sums_v dot(sums_v sum, int8x16_t x, int8x8_t w,
                                                        const int part)
{
    if (part == 0)
        sum.high = add_dot(sum.high, x, w);
    else
        sum.low = add_dot(sum.low, x, w);
    return sum;
}

static inline float half_as_float(uint16_t bits)
{
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits))), 0);
}

/* Every four bytes of the block become a word, and each word is stored twice. */
static inline void widen_block(const char *bytes, float *words)
{
    for (int i = 0; i < Q8_BLOCK; i += 16) {
        const float32x4_t x = vreinterpretq_f32_s8(vld1q_s8((const int8_t *)bytes + i));
        vst1q_f32(words + i / 2, vzip1q_f32(x, x));
        vst1q_f32(words + i / 2 + VECTOR, vzip2q_f32(x, x));
    }
}

static inline float32x4_t larger_bits(float32x4_t a, float32x4_t b)
{
    return vreinterpretq_f32_u32(vmaxq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(b)));
}

/* Splits the four integers of each lane into limbs. `even` has integers 0 and 2, `odd` has integers
 * 1 and 3. */
static inline void store_limbs(float *high, float *low, int16x8_t even, int16x8_t odd)
{
    const int16x8_t upper = vsliq_n_s16(vrshrq_n_s16(even, 8), vrshrq_n_s16(odd, 8), 8);
    vst1q_f32(high, vreinterpretq_f32_s16(upper));
    vst1q_f32(low, vreinterpretq_f32_s16(vsliq_n_s16(even, odd, 8)));
}

static inline int score_height(int vectors)
{
    (void)vectors;
    return 4;
}

static inline int column_height(int vectors)
{
    return vectors == 3 ? 4 : 8;
}

#include "kernels/vectors/integers/panel.h"

/* Packs rows as pack_q does, and then splits the integers into limbs, in place. Of each four
 * elements, a rounded row has elements 0 and 2 in one word, and elements 1 and 3 in the next word.
 * After the split, the first word has the four high limbs, and the second word the four low limbs.
 */
static void pack_limbs(const float *const *rounded, int lanes, int64_t dim, float *q_t)
{
    pack_q(rounded, lanes, dim, q_t);
    float *words = q_t + 2 * (dim / Q8_BLOCK) * lanes;
    for (int64_t d = 0; d < dim; d += QUAD, words += 2 * lanes)
        for (int lane = 0; lane < lanes; lane += VECTOR)
            store_limbs(words + lane, words + lanes + lane,
                        vreinterpretq_s16_f32(vld1q_f32(words + lane)),
                        vreinterpretq_s16_f32(vld1q_f32(words + lanes + lane)));
}

/* Makes the words of Q8_BLOCK columns of four keys, and a copy of these words. A word has the bytes
 * of the four keys in their order. round_quads puts the weights of the keys in the same order. */
static inline void quad_block(const char *const row[QUAD], float *words, float *copy)
{
    for (int i = 0; i < Q8_BLOCK; i += 16) {
        int8x16_t x[QUAD];
        for (int j = 0; j < QUAD; j++)
            x[j] = vld1q_s8((const int8_t *)row[j] + i);
        for (int half = 0; half < 2; half++) {
            const int16x8_t a =
                vreinterpretq_s16_s8(half == 0 ? vzip1q_s8(x[0], x[1]) : vzip2q_s8(x[0], x[1]));
            const int16x8_t b =
                vreinterpretq_s16_s8(half == 0 ? vzip1q_s8(x[2], x[3]) : vzip2q_s8(x[2], x[3]));
            const float32x4_t low = vreinterpretq_f32_s16(vzip1q_s16(a, b));
            const float32x4_t high = vreinterpretq_f32_s16(vzip2q_s16(a, b));
            const int at = i + 8 * half;
            vst1q_f32(words + at, low);
            vst1q_f32(words + at + VECTOR, high);
            vst1q_f32(copy + at, low);
            vst1q_f32(copy + at + VECTOR, high);
        }
    }
}

/* Makes the words of V. If fewer than four keys are left, the words have zeros for the missing
 * keys. */
static void pack_quads(const struct key_rows *v, int first, int count, float *words)
{
    static const char zeros[Q8_BLOCK];
    for (int i = first; i < first + count; i += QUAD)
        for (int64_t c = 0; c < v->dim; c += Q8_BLOCK) {
            const int64_t at = integers_in_row(v->type, c);
            float *const scales = scales_of_columns(words, v->dim, c) + i;
            const char *row[QUAD];
            for (int j = 0; j < QUAD; j++) {
                const bool is_there = i + j < first + count;
                row[j] = is_there ? v->row[i + j] + at : zeros;
                scales[j] = is_there ? scale_of(v, i + j, c) : 0.0f;
                scales[KEY_BLOCK + j] = fabsf(scales[j]);
            }
            float *const to = words + i / 2 * v->dim + c;
            quad_block(row, to, to + v->dim);
        }
}

/* Returns the integers of the weights of key i, or 0 if there is no key i among `keys`. */
static inline __attribute__((always_inline)) int32x4_t
integer_weights(const struct scaled_keys *keys, int i, int lanes, int lane, float32x4_t inverse)
{
    if (i < 0 || i >= keys->count)
        return vdupq_n_s32(0);
    return vcvtnq_s32_f32(scaled_weight(keys, i, lanes, lane, inverse));
}

/* Makes the words of weights. Returns the number of words of a lane. The keys of a block form
 * groups of four. Each group in which at least one key is among `keys` gets two words. Then words
 * of zeros follow, up to a multiple of UNROLL words. column_tile multiplies these zeros by the
 * bytes at the next places of V's words. These bytes may have any values. */
static inline __attribute__((always_inline)) int round_quads(const struct scaled_keys *keys,
                                                             const float32x4_t inverse[VECTORS],
                                                             float *parts, const int vectors)
{
    const int lanes = vectors * VECTOR, before = keys->first % QUAD, step = UNROLL / 2 * QUAD;
    const int end = (before + keys->count + step - 1) / step * step - before;
    for (int i = -before; i < end; i += QUAD, parts += 2 * lanes)
        for (int j = 0; j < vectors; j++) {
            int32x4_t n[QUAD];
            for (int k = 0; k < QUAD; k++)
                n[k] = integer_weights(keys, i + k, lanes, j * VECTOR, inverse[j]);
            store_limbs(parts + j * VECTOR, parts + lanes + j * VECTOR,
                        vreinterpretq_s16_s32(vsliq_n_s32(n[0], n[2], 16)),
                        vreinterpretq_s16_s32(vsliq_n_s32(n[1], n[3], 16)));
        }
    return (end + before) / QUAD * 2;
}

static void weigh_quads(const float *p, int lanes, const float *rescale, const float *v,
                        int64_t dim, int first, int keys, float *o, float *parts)
{
    const struct weighing w = {p, rescale, v, dim, first, keys, o, parts};
    weigh(&w, lanes, round_quads, QUAD);
}

extern const struct integer_panel_kernels attnkit_neon_dotprod_integer_panel;
const struct integer_panel_kernels attnkit_neon_dotprod_integer_panel = {
    .pack_q = pack_limbs,
    .pack_k = pack_k,
    .pack_v = pack_quads,
    .scores = scores,
    .weighted_v = weigh_quads,
};
