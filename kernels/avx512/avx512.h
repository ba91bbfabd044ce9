/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512 F, BW, DQ and VL: the shape of the tiles, the inline helpers that several of them use,
 * and their prototypes. kernels.h has the contract of each entry, table.c names them all.
 */
#ifndef ATTNKIT_AVX512_H
#define ATTNKIT_AVX512_H

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"

enum {
    VECTOR = 16, /* floats in a zmm */
    VECTORS = 4, /* zmm across the lanes of a panel */
    LANES = VECTORS * VECTOR,
    MAX_HEIGHT = 8, /* of a register tile: keys or value columns */
    LINE = 16,      /* floats in a cache line */
    DECODE_ROWS = 16,
    F32_DECODE_ROWS = 12,
    MATRIX_ROWS = 16,
    F32_MATRIX_ROWS = 6,
    TILE_VECTORS = TILE_KEYS / VECTOR, /* to an element of a tile of K */
};

enum {
    SIDE_BY_SIDE = 4, /* vectors that exp2_vectors is best called with, to hide its long chain */
};

/* x[i] = 2^x[i] for x <= 0 or NaN, or +0 where x rounds to less than LEAST_POWER, with the bits of
 * SLEEF's Sleef_finz_exp2f16_u10avx512f: the same polynomial in x - round(x), scaled;
 * tests/kernels/elementary.c compares every float. Inline, because the call spills what its caller
 * holds in registers, and stage by stage, because a core's scheduler holds too few such chains of 9
 * dependent instructions to keep its ports busy. */
static inline __attribute__((always_inline)) void exp2_vectors(__m512 *x, const int n)
{
    static const float coefficients[] = {0.1339262701e-2f, 0.9618384764e-2f, 0.5550347269e-1f,
                                         0.2402264476e+0f, 0.6931471825e+0f, 1.0f};
    __m512 rounded[SIDE_BY_SIDE], p[SIDE_BY_SIDE];
    for (int i = 0; i < n; i++) {
        rounded[i] = _mm512_roundscale_ps(x[i], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        x[i] = _mm512_sub_ps(x[i], rounded[i]);
        p[i] = _mm512_set1_ps(0.1535920892e-3f);
    }
    for (int k = 0; k < 6; k++)
        for (int i = 0; i < n; i++)
            p[i] = _mm512_fmadd_ps(p[i], x[i], _mm512_set1_ps(coefficients[k]));
    for (int i = 0; i < n; i++) {
        /* A NaN is not less. */
        const __mmask16 not_less =
            _mm512_cmp_ps_mask(rounded[i], _mm512_set1_ps(LEAST_POWER), _CMP_NLT_UQ);
        x[i] = _mm512_maskz_scalef_ps(not_less, p[i], rounded[i]);
    }
}

static inline __m512 exp2_v(__m512 x)
{
    exp2_vectors(&x, 1);
    return x;
}

static inline __m512 minus_infinity(void)
{
    return _mm512_set1_ps(-INFINITY);
}

/* log x for x = 0, NaN, +inf or a normal x > 0, with the bits of scalar_log, which says how, and of
 * SLEEF's Sleef_finz_logf16_u10avx512f. */
static inline __m512 log_v(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f),
                 larger = _mm512_mul_ps(x, _mm512_set1_ps(1.0f / 0.75f));
    const __m512i exponent = _mm512_sub_epi32(_mm512_srli_epi32(_mm512_castps_si512(larger), 23),
                                              _mm512_set1_epi32(127));
    const __m512 e = _mm512_cvtepi32_ps(exponent);
    const __m512 m = _mm512_castsi512_ps(
        _mm512_sub_epi32(_mm512_castps_si512(x), _mm512_slli_epi32(exponent, 23)));

    const __m512 n = _mm512_sub_ps(m, one), d = _mm512_add_ps(m, one);
    const __m512 d_low = _mm512_sub_ps(m, _mm512_sub_ps(d, one));
    const __m512 t = _mm512_div_ps(one, d);
    const __m512 y = _mm512_mul_ps(n, t);
    const __m512 off = _mm512_fnmadd_ps(d_low, t, _mm512_fnmadd_ps(d, t, one));
    const __m512 y_low = _mm512_fmadd_ps(y, off, _mm512_fmsub_ps(t, n, y));
    const __m512 y2 = _mm512_mul_ps(y, y);
    __m512 p = _mm512_set1_ps(0.3027294874e+0f);
    p = _mm512_fmadd_ps(p, y2, _mm512_set1_ps(0.3996108174e+0f));
    p = _mm512_fmadd_ps(p, y2, _mm512_set1_ps(0.6666694880e+0f));

    const __m512 ln2_hi = _mm512_set1_ps(0.69314718246459960938f);
    const __m512 ln2_lo = _mm512_set1_ps(-1.904654323148236017e-09f);
    const __m512 whole = _mm512_mul_ps(ln2_hi, e);
    const __m512 whole_low = _mm512_fmadd_ps(ln2_lo, e, _mm512_fmsub_ps(ln2_hi, e, whole));
    const __m512 twice = _mm512_add_ps(y, y), hi = _mm512_add_ps(whole, twice);
    const __m512 lo =
        _mm512_add_ps(_mm512_add_ps(_mm512_add_ps(_mm512_sub_ps(whole, hi), twice), whole_low),
                      _mm512_add_ps(y_low, y_low));
    const __m512 cube = _mm512_mul_ps(_mm512_mul_ps(y2, y), p);
    const __m512 sum = _mm512_add_ps(hi, cube);
    const __m512 log =
        _mm512_add_ps(sum, _mm512_add_ps(_mm512_add_ps(_mm512_sub_ps(hi, sum), cube), lo));
    /* NaN is neither less nor equal. */
    const __mmask16 finite = _mm512_cmp_ps_mask(x, _mm512_set1_ps(INFINITY), _CMP_LT_OQ);
    const __mmask16 zero = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_EQ_OQ);
    return _mm512_mask_mov_ps(_mm512_mask_mov_ps(x, finite, log), zero, minus_infinity());
}

/* What is subtracted for a maximum: 0 for one of -inf, which only rows without a finite score
 * have. */
static inline __m512 finite_max(__m512 row_max)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(row_max, minus_infinity(), _CMP_NEQ_UQ), row_max);
}

static inline __m512 ceil_v(__m512 x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}

/* A mask of the first n elements, for any n. */
static inline __mmask16 first_mask(int64_t n)
{
    if (n >= VECTOR)
        return 0xffff;
    return n <= 0 ? 0 : (__mmask16)(0xffff >> (VECTOR - n));
}

/* The first n elements at p, zeros after them; what lies beyond is not touched. */
static inline __m512 load_first(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(first_mask(n), p);
}

static inline void store_first(float *p, int64_t n, __m512 x)
{
    _mm512_mask_storeu_ps(p, first_mask(n), x);
}

/* Elements `at` on of a row, the first n of them as binary32, zeros after them; what lies beyond is
 * not touched. Of TYPE_Q8_0 only the bytes of a block, as TYPE_I8; no scale is applied. */
static inline __attribute__((always_inline)) __m512
load_as_f32(const enum type type, const void *row, int64_t at, int64_t n)
{
    const char *const from = (const char *)row + bytes_of(type, at);
    const __mmask16 mask = first_mask(n);
    switch (type) {
    case TYPE_F16:
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from));
    case TYPE_BF16:
        return _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from)), 16));
    case TYPE_F32:
        return _mm512_maskz_loadu_ps(mask, from);
    default:
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, from)));
    }
}

static inline const float *row_at(struct rows rows, int i)
{
    return (const float *)(rows.first + i * rows.stride);
}

/* Asks the L2 cache for the lines at element i of `n` rows from `first` on, which need not exist: a
 * prefetch never faults. Inlined always, because gcc drops calls of a function that does nothing
 * but prefetch. */
static inline __attribute__((always_inline)) void prefetch(struct rows rows, int first, int64_t i,
                                                           const int n)
{
    if (i < rows.dim)
        for (int j = 0; j < n; j++)
            _mm_prefetch(rows.first + (first + j) * rows.stride + i * (int64_t)sizeof(float),
                         _MM_HINT_T1);
}

/* The height of a register tile of so many vectors: 24 accumulators, which leave room for 4 vectors
 * and a broadcast in 32 zmm, or 8, which keep two ports with a latency of 4 busy. */
static inline int full_height(int vectors)
{
    return vectors == 4 ? 6 : 8;
}

enum { LARGE_TILE = 16 /* accumulators */ };

/* sum + a * b. In large tiles surely in the register of the sum: gcc, left to choose, moves sums
 * from one register to another in long rounds, and spills some. */
static inline __attribute__((always_inline)) __m512 multiply_add(__m512 a, __m512 b, __m512 sum,
                                                                 const bool is_large)
{
    if (!is_large)
        return _mm512_fmadd_ps(a, b, sum);
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

/* l, or 1 where a row saw nothing: its o is 0, and so is its result. */
static inline __m512 divisor(__m512 row_sum)
{
    const __mmask16 empty = _mm512_cmp_ps_mask(row_sum, _mm512_setzero_ps(), _CMP_EQ_OQ);
    return _mm512_mask_mov_ps(row_sum, empty, _mm512_set1_ps(1.0f));
}

/* The sum makes every zero a +0. */
static inline __m512 result(__m512 o, __m512 divisor)
{
    return _mm512_add_ps(_mm512_div_ps(o, divisor), _mm512_setzero_ps());
}

/* A NaN's sign and payload depend on the order of operands: every NaN becomes the same. */
static inline __m512 plain_nan(__m512 y)
{
    const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(y, y, _CMP_UNORD_Q), nan);
}

/* A lane of `spoilt`, 1 at first, stops being finite where x or y is not; or where the sum of such
 * products is just too large, so that whoever finds it spoilt has to look again. The 1 keeps the
 * sum from being subnormal. */
static inline __m512 unspoilt(void)
{
    return _mm512_set1_ps(1.0f);
}

/* sum + *x * w in one instruction, which broadcasts x. On a Zen 4 it costs no more than one of
 * registers, where a broadcast takes a cycle of its own. */
static inline __attribute__((always_inline)) __m512 multiply_add_one(const float *x, __m512 w,
                                                                     __m512 sum)
{
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*x));
    return sum;
}

static inline __m512 spoil(__m512 spoilt, __m512 x, __m512 y)
{
    return _mm512_fmadd_ps(x, y, spoilt);
}

static inline bool is_spoilt(__m512 spoilt)
{
    enum { NAN_OR_INFINITY = 0x99 };
    return _mm512_fpclass_ps_mask(spoilt, NAN_OR_INFINITY) != 0;
}

/* r[i][j] becomes r[j][i]. In the comments a, b, c, d are rows and numbers are columns. */
static inline void transpose(__m512 r[VECTOR])
{
    __m512 pair[VECTOR]; /* a0 b0 a1 b1 | a4 b4 a5 b5 | ..., then a2 b2 a3 b3 | ... */
    for (int i = 0; i < VECTOR; i += 2) {
        pair[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        pair[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    __m512
        quad[VECTOR]; /* quad[4 g + j], of rows 4 g on: aj bj cj dj | aj+4 bj+4 cj+4 dj+4 | ... */
    for (int i = 0; i < VECTOR; i += 4)
        for (int j = 0; j < 2; j++) {
            quad[i + 2 * j] = _mm512_shuffle_ps(pair[i + j], pair[i + j + 2], 0x44);
            quad[i + 2 * j + 1] = _mm512_shuffle_ps(pair[i + j], pair[i + j + 2], 0xee);
        }
    for (int j = 0; j < 4; j++) {
        /* Columns j and j + 8, then j + 4 and j + 12, of rows 0 .. 7 and 8 .. 15. */
        const __m512 even_low = _mm512_shuffle_f32x4(quad[j], quad[j + 4], 0x88);
        const __m512 even_high = _mm512_shuffle_f32x4(quad[j + 8], quad[j + 12], 0x88);
        const __m512 odd_low = _mm512_shuffle_f32x4(quad[j], quad[j + 4], 0xdd);
        const __m512 odd_high = _mm512_shuffle_f32x4(quad[j + 8], quad[j + 12], 0xdd);
        r[j] = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
        r[j + 4] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
        r[j + 8] = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
        r[j + 12] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
    }
}

void attnkit_avx512_exp2(const float *x, float *y, size_t n);
void attnkit_avx512_widen(enum type type, const void *row, const float *scales, int64_t group,
                          int64_t n, float *out);
void attnkit_avx512_widen_blocks(enum type type, const char *row, int64_t n, float *out);
void attnkit_avx512_unpack(enum type type, const struct rows *rows, int count, void *to);
void attnkit_avx512_narrow_blocks(enum type type, const float *x, int64_t n, char *row);
void attnkit_avx512_widen_tile(enum type type, const void *tile, const float *scales, int64_t group,
                               int64_t n, float *out);
void attnkit_avx512_narrow(enum type type, const float *x, int64_t n, int64_t group, void *row,
                           float *scales);
void attnkit_avx512_pack_q(const float *const *rows, int lanes, int64_t head_dim, float *q_t);
void attnkit_avx512_scores(const float *q_t, int lanes, const struct rows *k, int keys, float *s,
                           const struct rows *ahead);
void attnkit_avx512_softmax(float *s, int lanes, int keys, const int32_t *visible, float scale_log2,
                            const struct state *st, float *rescale);
void attnkit_avx512_adjust(const struct adjust *how, const float *bias, size_t n, float *s);
void attnkit_avx512_weighted_v(const float *p, int lanes, const float *rescale,
                               const struct rows *v, int keys, float *o, const struct rows *ahead);
void attnkit_avx512_begin_total(const struct total *total, const struct state *chunk, int lanes,
                                int64_t value_dim);
void attnkit_avx512_fold(const struct total *total, const struct state *chunk, int lanes,
                         int64_t value_dim);
uint64_t attnkit_avx512_finish(const struct state *st, int lanes, int64_t value_dim, int rows,
                               float *const *out, float *const *lse);
uint64_t attnkit_avx512_finish_total(const struct total *total, const float *chunk_out, int lanes,
                                     int64_t value_dim, int rows, float *const *out,
                                     float *const *lse);
void attnkit_avx512_decode(const struct decode_block *block, int rows, float scale_log2);
uint64_t attnkit_avx512_decode_finish(const struct state *st, int rows, int64_t value_dim,
                                      float *const *out, float *const *lse);
void attnkit_avx512_fold_row(double *o, const float *chunk, double a, double b, int64_t n);
bool attnkit_avx512_quotient_row(const double *o, double divisor, int64_t n, float *out);
void attnkit_avx512_head_scores(const float *q_t, const float *k_t, int rows, int keys,
                                int64_t head_dim, float *s);
uint64_t attnkit_avx512_head_out(const struct head_weights *weights, const struct rows *v, int rows,
                                 float *const *out);
void attnkit_avx512_rotate(float *x, const float *cos, const float *sin, int64_t pairs,
                           bool interleaved);
void attnkit_avx512_nonzero(const unsigned char *bytes, uint64_t words[KEY_BLOCK / 64]);
void attnkit_avx512_same_ids(const int32_t *ids, int32_t own, uint64_t words[KEY_BLOCK / 64]);
bool attnkit_avx512_unmasked(enum type type, const void *numbers, uint64_t words[KEY_BLOCK / 64]);
void attnkit_avx512_bias_line(const struct bias_line *what, float *line);
void attnkit_avx512_keep_line(const struct keep_line *what, float *line);
void attnkit_avx512_fill_pointers(const void *first, ptrdiff_t bytes, int count, void *pointers);
void attnkit_avx512_compact_line(const uint64_t keys[KEY_BLOCK / 64], float *line);
void attnkit_avx512_spread_line(const uint64_t keys[KEY_BLOCK / 64], const float *numbers,
                                const uint64_t own[KEY_BLOCK / 64], float none, float *line);
void attnkit_avx512_mean(const struct rows *rows, int64_t count, float *mean);
void attnkit_avx512_multiply(const float *factors, size_t n, float *s);
void attnkit_avx512_widen_matrix(enum type type, const void *tile, int64_t n, float *out);
void attnkit_avx512_product(const struct product *p);
void attnkit_avx512_few_product(const struct few_product *p);

/* For results that may have a value that is not finite: makes every NaN the same, and returns a bit
 * for each row that has such a value. */
__attribute__((cold)) uint64_t attnkit_avx512_settle(int rows, int64_t n, float *const *out);

extern const struct kernels attnkit_avx512;

#endif
