/* SPDX-License-Identifier: Apache-2.0
 *
 * What the NEON tiles share: the shape of a panel, the two elementary functions, loads and stores
 * of 1 to 4 floats (NEON has none with a mask), a transposition, and the entries that table.c
 * collects.
 */
#ifndef ATTNKIT_NEON_H
#define ATTNKIT_NEON_H

#include <arm_neon.h>
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"

enum {
    VECTOR = 4,  /* floats in a vector */
    VECTORS = 3, /* vectors of query rows in a panel */
    LANES = VECTORS * VECTOR,
    FULL = 8,  /* keys or value columns in a register tile: at most 24 sums, 29 of 32 registers */
    TALL = 16, /* the same of a single vector: 16 sums, for 4 pipes with a latency of 4 */
    MATRIX_ROWS = 6, /* of a linear map: 24 sums with the 4 vectors of a tile of the matrix */
};

static inline const float *row_at(struct rows rows, int i)
{
    return (const float *)(rows.first + i * rows.stride);
}

enum {
    SIDE_BY_SIDE = 4, /* vectors that exp2_vectors is best called with, to hide its long chain */
};

/* 2^(n - POWER_HEADROOM), and +0 for n = LEAST_POWER - 1. */
static inline float32x4_t shrunk_power_of_two(int32x4_t n)
{
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127 - POWER_HEADROOM)), 23));
}

/* x[i] = 2^x[i] for x <= 0 or NaN, or +0 where x rounds to less than LEAST_POWER, with the bits of
 * SLEEF's Sleef_finz_exp2f4_u10advsimd: the same polynomial in x - round(x), times
 * 2^POWER_HEADROOM, which changes no bit of a fraction; tests/kernels/elementary.c compares every
 * float. Inline, because the call leaves no vector in its register, and stage by stage, because one
 * such chain after the other would leave the pipes waiting. */
static inline __attribute__((always_inline)) void exp2_vectors(float32x4_t *x, const int n)
{
    static const float coefficients[] = {0.1339262701e-2f, 0.9618384764e-2f, 0.5550347269e-1f,
                                         0.2402264476e+0f, 0.6931471825e+0f, 1.0f};
    const float unit = (float)(1 << POWER_HEADROOM);
    float32x4_t p[SIDE_BY_SIDE];
    int32x4_t power[SIDE_BY_SIDE];
    for (int i = 0; i < n; i++) {
        /* This maximum keeps a NaN. */
        x[i] = vmaxq_f32(x[i], vdupq_n_f32(LEAST_POWER - 1));
        const float32x4_t rounded = vrndnq_f32(x[i]);
        power[i] = vcvtq_s32_f32(rounded);
        x[i] = vsubq_f32(x[i], rounded);
        p[i] = vdupq_n_f32(0.1535920892e-3f * unit);
    }
    for (int k = 0; k < 6; k++)
        for (int i = 0; i < n; i++)
            p[i] = vfmaq_f32(vdupq_n_f32(coefficients[k] * unit), p[i], x[i]);
    for (int i = 0; i < n; i++)
        x[i] = vmulq_f32(p[i], shrunk_power_of_two(power[i]));
}

static inline float32x4_t exp2_v(float32x4_t x)
{
    exp2_vectors(&x, 1);
    return x;
}

/* log x for x = 0, NaN, +inf or a normal x > 0, with the bits of scalar_log, which says how, and of
 * SLEEF's Sleef_finz_logf4_u10advsimd. */
static inline float32x4_t log_v(float32x4_t x)
{
    const float32x4_t one = vdupq_n_f32(1.0f), larger = vmulq_n_f32(x, 1.0f / 0.75f);
    const int32x4_t exponent = vsubq_s32(
        vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_f32(larger), 23)), vdupq_n_s32(127));
    const float32x4_t e = vcvtq_f32_s32(exponent);
    const float32x4_t m =
        vreinterpretq_f32_s32(vsubq_s32(vreinterpretq_s32_f32(x), vshlq_n_s32(exponent, 23)));

    const float32x4_t n = vsubq_f32(m, one), d = vaddq_f32(m, one);
    const float32x4_t d_low = vsubq_f32(m, vsubq_f32(d, one));
    const float32x4_t t = vdivq_f32(one, d);
    const float32x4_t y = vmulq_f32(n, t);
    const float32x4_t off = vfmsq_f32(vfmsq_f32(one, d, t), d_low, t);
    const float32x4_t y_low = vfmaq_f32(vfmaq_f32(vnegq_f32(y), t, n), y, off);
    const float32x4_t y2 = vmulq_f32(y, y);
    float32x4_t p = vdupq_n_f32(0.3027294874e+0f);
    p = vfmaq_f32(vdupq_n_f32(0.3996108174e+0f), p, y2);
    p = vfmaq_f32(vdupq_n_f32(0.6666694880e+0f), p, y2);

    const float ln2_hi = 0.69314718246459960938f, ln2_lo = -1.904654323148236017e-09f;
    const float32x4_t whole = vmulq_n_f32(e, ln2_hi);
    const float32x4_t whole_low = vfmaq_n_f32(vfmaq_n_f32(vnegq_f32(whole), e, ln2_hi), e, ln2_lo);
    const float32x4_t twice = vaddq_f32(y, y), hi = vaddq_f32(whole, twice);
    const float32x4_t lo = vaddq_f32(vaddq_f32(vaddq_f32(vsubq_f32(whole, hi), twice), whole_low),
                                     vaddq_f32(y_low, y_low));
    const float32x4_t cube = vmulq_f32(vmulq_f32(y2, y), p);
    const float32x4_t sum = vaddq_f32(hi, cube);
    const float32x4_t log = vaddq_f32(sum, vaddq_f32(vaddq_f32(vsubq_f32(hi, sum), cube), lo));
    /* NaN is neither less nor equal. */
    const uint32x4_t finite = vcltq_f32(x, vdupq_n_f32(INFINITY)), zero = vceqzq_f32(x);
    return vbslq_f32(zero, vdupq_n_f32(-INFINITY), vbslq_f32(finite, log, x));
}

/* What is subtracted for a maximum of -inf, which only rows without a finite score have. */
static inline float32x4_t finite_max(float32x4_t row_max)
{
    const uint32x4_t none = vceqq_f32(row_max, vdupq_n_f32(-INFINITY));
    return vbslq_f32(none, vdupq_n_f32(0.0f), row_max);
}

/* acc + x * y[lane]; `lane` is a constant once the caller's loop is unrolled. */
static inline __attribute__((always_inline)) float32x4_t fma_lane(float32x4_t acc, float32x4_t x,
                                                                  float32x4_t y, int lane)
{
    switch (lane) {
    case 0:
        return vfmaq_laneq_f32(acc, x, y, 0);
    case 1:
        return vfmaq_laneq_f32(acc, x, y, 1);
    case 2:
        return vfmaq_laneq_f32(acc, x, y, 2);
    default:
        return vfmaq_laneq_f32(acc, x, y, 3);
    }
}

/* *at in a register. The empty statement keeps clang from loading it into all lanes of a vector,
 * for which cores need one of the pipes of fmla; fmla takes it from the first lane. */
static inline float load_scalar(const float *at)
{
    float x = *at;
    __asm__("" : "+w"(x));
    return x;
}

/* How many lanes of a vector at index `at` lie before index `end` > at: 1 .. 4. */
static inline int lanes_at(int64_t at, int64_t end)
{
    return end - at < 4 ? (int)(end - at) : 4;
}

/* tile_height in prefill: of FULL, or TALL for a single vector where not just a few rows remain
 * after it. */
static inline int panel_height(int64_t left, int vectors)
{
    if (vectors == 1 && (left == TALL || left >= TALL + FULL))
        return TALL;
    return tile_height(left, FULL);
}

/* The first n floats, 1 <= n <= 4, and no byte behind them; the other lanes are 0. */
static inline float32x4_t load_n(const float *from, int n)
{
    if (n == 4)
        return vld1q_f32(from);
    float32x4_t x = vld1q_lane_f32(from, vdupq_n_f32(0.0f), 0);
    if (n > 1)
        x = vld1q_lane_f32(from + 1, x, 1);
    if (n > 2)
        x = vld1q_lane_f32(from + 2, x, 2);
    return x;
}

/* Stores the first n lanes, 1 <= n <= 4, and no byte behind them. */
static inline void store_n(float *to, float32x4_t x, int n)
{
    if (n == 4) {
        vst1q_f32(to, x);
        return;
    }
    vst1q_lane_f32(to, x, 0);
    if (n > 1)
        vst1q_lane_f32(to + 1, x, 1);
    if (n > 2)
        vst1q_lane_f32(to + 2, x, 2);
}

/* Elements `at` on of a row, the first n of them, 1 <= n <= 4, as binary32; the other lanes are 0,
 * and no byte behind them is read. Of TYPE_Q8_0 only the bytes of a block, as TYPE_I8; no scale is
 * applied. */
static inline __attribute__((always_inline)) float32x4_t
load_as_f32(const enum type type, const void *row, int64_t at, int n)
{
    const char *const from = (const char *)row + bytes_of(type, at);
    if (type == TYPE_F32)
        return load_n((const float *)from, n);
    uint64_t narrow = 0;
    memcpy(&narrow, from, (size_t)bytes_of(type, n));
    if (type == TYPE_F16)
        return vcvt_f32_f16(vcreate_f16(narrow));
    if (type == TYPE_BF16)
        return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vcreate_u16(narrow)), 16));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(narrow)))));
}

/* 8 elements as binary32, of TYPE_I8 as integers of 16 bits. */
static inline __attribute__((always_inline)) void widen_halves(const enum type type, uint16x8_t x,
                                                               float32x4_t wide[2])
{
    if (type == TYPE_F16) {
        wide[0] = vcvt_f32_f16(vget_low_f16(vreinterpretq_f16_u16(x)));
        wide[1] = vcvt_high_f32_f16(vreinterpretq_f16_u16(x));
    } else if (type == TYPE_BF16) {
        wide[0] = vreinterpretq_f32_u16(vzip1q_u16(vdupq_n_u16(0), x));
        wide[1] = vreinterpretq_f32_u16(vzip2q_u16(vdupq_n_u16(0), x));
    } else {
        const int16x8_t integers = vreinterpretq_s16_u16(x);
        wide[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(integers)));
        wide[1] = vcvtq_f32_s32(vmovl_high_s16(integers));
    }
}

enum {
    TILE_VECTORS = TILE_KEYS / VECTOR, /* of keys, in a tile of K */
};

/* TILE_KEYS elements as binary32, those of TYPE_I8 without a scale. */
static inline __attribute__((always_inline)) void load_line(const enum type type, const void *from,
                                                            float32x4_t x[TILE_VECTORS])
{
    if (type == TYPE_F32) {
        for (int i = 0; i < TILE_VECTORS; i++)
            x[i] = vld1q_f32((const float *)from + i * VECTOR);
        return;
    }
    uint16x8_t halves[2];
    if (type == TYPE_I8) {
        const int8x16_t bytes = vld1q_s8(from);
        halves[0] = vreinterpretq_u16_s16(vmovl_s8(vget_low_s8(bytes)));
        halves[1] = vreinterpretq_u16_s16(vmovl_high_s8(bytes));
    } else {
        halves[0] = vld1q_u16(from);
        halves[1] = vld1q_u16((const uint16_t *)from + 8);
    }
    for (int i = 0; i < 2; i++)
        widen_halves(type, halves[i], x + 2 * i);
}

/* x[i][j] becomes x[j][i]:
 *   a0 a1 a2 a3      a0 b0 a2 b2      a0 b0 c0 d0
 *   b0 b1 b2 b3  ->  a1 b1 a3 b3  ->  a1 b1 c1 d1
 *   c0 c1 c2 c3      c0 d0 c2 d2      a2 b2 c2 d2
 *   d0 d1 d2 d3      c1 d1 c3 d3      a3 b3 c3 d3 */
static inline __attribute__((always_inline)) void transpose(float32x4_t x[4])
{
    const float64x2_t ab02 = vreinterpretq_f64_f32(vtrn1q_f32(x[0], x[1]));
    const float64x2_t ab13 = vreinterpretq_f64_f32(vtrn2q_f32(x[0], x[1]));
    const float64x2_t cd02 = vreinterpretq_f64_f32(vtrn1q_f32(x[2], x[3]));
    const float64x2_t cd13 = vreinterpretq_f64_f32(vtrn2q_f32(x[2], x[3]));
    x[0] = vreinterpretq_f32_f64(vtrn1q_f64(ab02, cd02));
    x[1] = vreinterpretq_f32_f64(vtrn1q_f64(ab13, cd13));
    x[2] = vreinterpretq_f32_f64(vtrn2q_f64(ab02, cd02));
    x[3] = vreinterpretq_f32_f64(vtrn2q_f64(ab13, cd13));
}

/* What o is divided by: l, or 1 for a row that saw no key with a weight. */
static inline float32x4_t divisor_of(float32x4_t row_sum)
{
    return vbslq_f32(vceqzq_f32(row_sum), vdupq_n_f32(1.0f), row_sum);
}

/* A zero comes out as +0. */
static inline float32x4_t result(float32x4_t o, float32x4_t divisor)
{
    return vaddq_f32(vdivq_f32(o, divisor), vdupq_n_f32(0.0f));
}

/* A NaN's sign and payload depend on the order of operands: every NaN becomes the same. */
static inline float32x4_t plain_nan(float32x4_t y)
{
    const float32x4_t nan = vreinterpretq_f32_u32(vdupq_n_u32(0x7fc00000));
    return vbslq_f32(vceqq_f32(y, y), y, nan);
}

/* A lane of `spoilt`, 1 at first, stops being finite where x or y is not; or where the sum of such
 * products is just too large, so that whoever finds it spoilt has to look again. The 1 keeps the
 * sum from being subnormal. */
static inline float32x4_t unspoilt(void)
{
    return vdupq_n_f32(1.0f);
}

static inline float32x4_t spoil(float32x4_t spoilt, float32x4_t x, float32x4_t y)
{
    return vfmaq_f32(spoilt, x, y);
}

/* The maximum of a NaN and anything is a NaN. */
static inline bool is_spoilt(float32x4_t spoilt)
{
    return !(vmaxvq_f32(vabsq_f32(spoilt)) < INFINITY);
}

/* The entries of the table, see ../kernels.h. */
void attnkit_neon_exp2(const float *x, float *y, size_t n);
void attnkit_neon_widen(enum type type, const void *row, const float *scales, int64_t group,
                        int64_t n, float *out);
void attnkit_neon_widen_blocks(enum type type, const char *row, int64_t n, float *out);
void attnkit_neon_unpack(enum type type, const struct rows *rows, int count, void *to);
void attnkit_neon_narrow_blocks(enum type type, const float *x, int64_t n, char *row);
void attnkit_neon_widen_tile(enum type type, const void *tile, const float *scales, int64_t group,
                             int64_t n, float *out);
void attnkit_neon_narrow(enum type type, const float *x, int64_t n, int64_t group, void *row,
                         float *scales);
void attnkit_neon_pack_q(const float *const *rows, int lanes, int64_t head_dim, float *q_t);
void attnkit_neon_scores(const float *q_t, int lanes, const struct rows *k, int keys, float *s,
                         const struct rows *ahead);
void attnkit_neon_softmax(float *s, int lanes, int keys, const int32_t *visible, float scale_log2,
                          const struct state *st, float *rescale);
void attnkit_neon_adjust(const struct adjust *how, const float *bias, size_t n, float *s);
void attnkit_neon_weighted_v(const float *p, int lanes, const float *rescale, const struct rows *v,
                             int keys, float *o, const struct rows *ahead);
void attnkit_neon_begin_total(const struct total *total, const struct state *chunk, int lanes,
                              int64_t value_dim);
void attnkit_neon_fold(const struct total *total, const struct state *chunk, int lanes,
                       int64_t value_dim);
uint64_t attnkit_neon_finish(const struct state *st, int lanes, int64_t value_dim, int rows,
                             float *const *out, float *const *lse);
uint64_t attnkit_neon_finish_total(const struct total *total, const float *chunk_out, int lanes,
                                   int64_t value_dim, int rows, float *const *out,
                                   float *const *lse);
void attnkit_neon_decode(const struct decode_block *block, int rows, float scale_log2);
uint64_t attnkit_neon_decode_finish(const struct state *st, int rows, int64_t value_dim,
                                    float *const *out, float *const *lse);
void attnkit_neon_fold_row(double *o, const float *chunk, double a, double b, int64_t n);
bool attnkit_neon_quotient_row(const double *o, double divisor, int64_t n, float *out);
void attnkit_neon_head_scores(const float *q_t, const float *k_t, int rows, int keys,
                              int64_t head_dim, float *s);
uint64_t attnkit_neon_head_out(const struct head_weights *weights, const struct rows *v, int rows,
                               float *const *out);
void attnkit_neon_rotate(float *x, const float *cos, const float *sin, int64_t pairs,
                         bool interleaved);
void attnkit_neon_nonzero(const unsigned char *bytes, uint64_t words[KEY_BLOCK / 64]);
void attnkit_neon_same_ids(const int32_t *ids, int32_t own, uint64_t words[KEY_BLOCK / 64]);
bool attnkit_neon_unmasked(enum type type, const void *numbers, uint64_t words[KEY_BLOCK / 64]);
void attnkit_neon_bias_line(const struct bias_line *what, float *line);
void attnkit_neon_keep_line(const struct keep_line *what, float *line);
void attnkit_neon_fill_pointers(const void *first, ptrdiff_t bytes, int count, void *pointers);
void attnkit_neon_compact_line(const uint64_t keys[KEY_BLOCK / 64], float *line);
void attnkit_neon_spread_line(const uint64_t keys[KEY_BLOCK / 64], const float *numbers,
                              const uint64_t own[KEY_BLOCK / 64], float none, float *line);
void attnkit_neon_mean(const struct rows *rows, int64_t count, float *mean);
void attnkit_neon_multiply(const float *factors, size_t n, float *s);
void attnkit_neon_widen_matrix(enum type type, const void *tile, int64_t n, float *out);
void attnkit_neon_product(const struct product *p);
void attnkit_neon_few_product(const struct few_product *p);

/* For results that may have a value that is not finite: makes every NaN the same, and returns a bit
 * for each row that has such a value. */
__attribute__((cold)) uint64_t attnkit_neon_settle(int rows, int64_t n, float *const *out);

extern const struct kernels attnkit_neon;

#endif
