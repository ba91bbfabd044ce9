/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2, FMA and F16C: the shape of the tiles, the inline helpers that several of them use, and
 * their prototypes. kernels.h has the contract of each entry, table.c names them all.
 */
#ifndef ATTNKIT_AVX2_H
#define ATTNKIT_AVX2_H

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"

enum {
    VECTOR = 8,  /* floats in a ymm */
    VECTORS = 3, /* ymm across the lanes of a panel */
    LANES = VECTORS * VECTOR,
    MAX_HEIGHT = 8, /* of a register tile: keys or value columns */
    LINE = 16,      /* floats in a cache line */
    DECODE_ROWS = 16,
    F32_DECODE_ROWS = 12,
    MATRIX_ROWS = 8,
    F32_MATRIX_ROWS = 4,
    TILE_VECTORS = TILE_KEYS / VECTOR, /* to an element of a tile of K */
};

enum {
    SIDE_BY_SIDE = 4, /* vectors that exp2_vectors is best called with, to hide its long chain */
};

/* 2^(n - POWER_HEADROOM) for the n in the low bits of `rounded`, which is n + 1.5 * 2^23, and +0
 * for n = LEAST_POWER - 1. */
static inline __m256 shrunk_power_of_two(__m256 rounded)
{
    const __m256i shifted = _mm256_slli_epi32(_mm256_castps_si256(rounded), 23);
    return _mm256_castsi256_ps(
        _mm256_add_epi32(shifted, _mm256_set1_epi32((127 - POWER_HEADROOM) << 23)));
}

/* x[i] = 2^x[i] for x <= 0 or NaN, or +0 where x rounds to less than LEAST_POWER, with the bits of
 * SLEEF's Sleef_finz_exp2f8_u10avx2: the same polynomial in x - round(x), times 2^POWER_HEADROOM,
 * which changes no bit of a fraction; tests/kernels/elementary.c compares every float. Inline,
 * because the call spills what its caller holds in registers, and stage by stage, because a core's
 * scheduler holds about three such chains of 10 dependent instructions, not enough to keep its
 * ports busy. */
static inline __attribute__((always_inline)) void exp2_vectors(__m256 *x, const int n)
{
    static const float coefficients[] = {0.1339262701e-2f, 0.9618384764e-2f, 0.5550347269e-1f,
                                         0.2402264476e+0f, 0.6931471825e+0f, 1.0f};
    const float unit = (float)(1 << POWER_HEADROOM);
    /* 1.5 * 2^23: what is added to it is rounded to an integer, in the lowest bits of the sum. */
    const __m256 magic = _mm256_set1_ps(0x1.8p23f);
    __m256 rounded[SIDE_BY_SIDE], p[SIDE_BY_SIDE];
    for (int i = 0; i < n; i++) {
        /* This order of operands keeps a NaN. */
        x[i] = _mm256_max_ps(_mm256_set1_ps(LEAST_POWER - 1), x[i]);
        rounded[i] = _mm256_add_ps(x[i], magic);
        x[i] = _mm256_sub_ps(x[i], _mm256_sub_ps(rounded[i], magic));
        p[i] = _mm256_set1_ps(0.1535920892e-3f * unit);
    }
    for (int k = 0; k < 6; k++)
        for (int i = 0; i < n; i++)
            p[i] = _mm256_fmadd_ps(p[i], x[i], _mm256_set1_ps(coefficients[k] * unit));
    for (int i = 0; i < n; i++)
        x[i] = _mm256_mul_ps(p[i], shrunk_power_of_two(rounded[i]));
}

static inline __m256 exp2_v(__m256 x)
{
    exp2_vectors(&x, 1);
    return x;
}

static inline __m256 minus_infinity(void)
{
    return _mm256_set1_ps(-INFINITY);
}

/* log x for x = 0, NaN, +inf or a normal x > 0, with the bits of scalar_log, which says how, and of
 * SLEEF's Sleef_finz_logf8_u10avx2. */
static inline __m256 log_v(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f),
                 larger = _mm256_mul_ps(x, _mm256_set1_ps(1.0f / 0.75f));
    const __m256i exponent = _mm256_sub_epi32(_mm256_srli_epi32(_mm256_castps_si256(larger), 23),
                                              _mm256_set1_epi32(127));
    const __m256 e = _mm256_cvtepi32_ps(exponent);
    const __m256 m = _mm256_castsi256_ps(
        _mm256_sub_epi32(_mm256_castps_si256(x), _mm256_slli_epi32(exponent, 23)));

    const __m256 n = _mm256_sub_ps(m, one), d = _mm256_add_ps(m, one);
    const __m256 d_low = _mm256_sub_ps(m, _mm256_sub_ps(d, one));
    const __m256 t = _mm256_div_ps(one, d);
    const __m256 y = _mm256_mul_ps(n, t);
    const __m256 off = _mm256_fnmadd_ps(d_low, t, _mm256_fnmadd_ps(d, t, one));
    const __m256 y_low = _mm256_fmadd_ps(y, off, _mm256_fmsub_ps(t, n, y));
    const __m256 y2 = _mm256_mul_ps(y, y);
    __m256 p = _mm256_set1_ps(0.3027294874e+0f);
    p = _mm256_fmadd_ps(p, y2, _mm256_set1_ps(0.3996108174e+0f));
    p = _mm256_fmadd_ps(p, y2, _mm256_set1_ps(0.6666694880e+0f));

    const __m256 ln2_hi = _mm256_set1_ps(0.69314718246459960938f);
    const __m256 ln2_lo = _mm256_set1_ps(-1.904654323148236017e-09f);
    const __m256 whole = _mm256_mul_ps(ln2_hi, e);
    const __m256 whole_low = _mm256_fmadd_ps(ln2_lo, e, _mm256_fmsub_ps(ln2_hi, e, whole));
    const __m256 twice = _mm256_add_ps(y, y), hi = _mm256_add_ps(whole, twice);
    const __m256 lo =
        _mm256_add_ps(_mm256_add_ps(_mm256_add_ps(_mm256_sub_ps(whole, hi), twice), whole_low),
                      _mm256_add_ps(y_low, y_low));
    const __m256 cube = _mm256_mul_ps(_mm256_mul_ps(y2, y), p);
    const __m256 sum = _mm256_add_ps(hi, cube);
    const __m256 log =
        _mm256_add_ps(sum, _mm256_add_ps(_mm256_add_ps(_mm256_sub_ps(hi, sum), cube), lo));
    /* NaN is neither less nor equal. */
    const __m256 finite = _mm256_cmp_ps(x, _mm256_set1_ps(INFINITY), _CMP_LT_OQ);
    const __m256 zero = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_EQ_OQ);
    return _mm256_blendv_ps(_mm256_blendv_ps(x, log, finite), minus_infinity(), zero);
}

/* What is subtracted for a maximum: 0 for one of -inf, which only rows without a finite score
 * have. */
static inline __m256 finite_max(__m256 row_max)
{
    return _mm256_andnot_ps(_mm256_cmp_ps(row_max, minus_infinity(), _CMP_EQ_OQ), row_max);
}

/* A mask of the first n elements, for any n. */
static inline __m256i first_mask(int64_t n)
{
    const int count = n < VECTOR ? (int)n : VECTOR;
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* The first n elements at p, zeros after them; what lies beyond is not touched. */
static inline __m256 load_first(const float *p, int64_t n)
{
    return n >= VECTOR ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, first_mask(n));
}

static inline void store_first(float *p, int64_t n, __m256 x)
{
    if (n >= VECTOR)
        _mm256_storeu_ps(p, x);
    else
        _mm256_maskstore_ps(p, first_mask(n), x);
}

/* Elements `at` on of a row, the first n of them as binary32, zeros after them; what lies beyond is
 * not touched. Of TYPE_Q8_0 only the bytes of a block, as TYPE_I8; no scale is applied. */
static inline __attribute__((always_inline)) __m256
load_as_f32(const enum type type, const void *row, int64_t at, int64_t n)
{
    const char *const from = (const char *)row + bytes_of(type, at);
    if (type == TYPE_F32)
        return load_first((const float *)from, n);
    __m128i narrow = _mm_setzero_si128();
    if (n < VECTOR)
        memcpy(&narrow, from, (size_t)bytes_of(type, n));
    else if (type == TYPE_I8)
        narrow = _mm_loadl_epi64((const __m128i *)from);
    else
        narrow = _mm_loadu_si128((const __m128i *)from);
    if (type == TYPE_F16)
        return _mm256_cvtph_ps(narrow);
    if (type == TYPE_BF16)
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(narrow), 16));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(narrow));
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

/* The height of a register tile of so many vectors: 12 accumulators, which leave room for 3 vectors
 * and a broadcast in 16 ymm, or the 8 that two ports with a latency of 4 need to be busy. */
static inline int full_height(int vectors)
{
    return vectors == 3 ? 4 : vectors == 2 ? 6 : 8;
}

enum { LARGE_TILE = 8 /* accumulators */ };

/* sum + a * b. In large tiles surely in the register of the sum: gcc, left to choose in long rounds
 * that need nearly all 16 ymm, moves sums from one register to another, and spills some. */
static inline __attribute__((always_inline)) __m256 multiply_add(__m256 a, __m256 b, __m256 sum,
                                                                 const bool is_large)
{
    if (!is_large)
        return _mm256_fmadd_ps(a, b, sum);
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
    return sum;
}

/* l, or 1 where a row saw nothing: its o is 0, and so is its result. */
static inline __m256 divisor(__m256 row_sum)
{
    const __m256 empty = _mm256_cmp_ps(row_sum, _mm256_setzero_ps(), _CMP_EQ_OQ);
    return _mm256_blendv_ps(row_sum, _mm256_set1_ps(1.0f), empty);
}

/* The sum makes every zero a +0. */
static inline __m256 result(__m256 o, __m256 divisor)
{
    return _mm256_add_ps(_mm256_div_ps(o, divisor), _mm256_setzero_ps());
}

/* A NaN's sign and payload depend on the order of operands: every NaN becomes the same. */
static inline __m256 plain_nan(__m256 y)
{
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    return _mm256_blendv_ps(y, nan, _mm256_cmp_ps(y, y, _CMP_UNORD_Q));
}

/* A lane of `spoilt`, 1 at first, stops being finite where x or y is not; or where the sum of such
 * products is just too large, so that whoever finds it spoilt has to look again. The 1 keeps the
 * sum from being subnormal. */
static inline __m256 unspoilt(void)
{
    return _mm256_set1_ps(1.0f);
}

static inline __m256 spoil(__m256 spoilt, __m256 x, __m256 y)
{
    return _mm256_fmadd_ps(x, y, spoilt);
}

static inline bool is_spoilt(__m256 spoilt)
{
    const __m256 x = _mm256_sub_ps(spoilt, spoilt); /* 0 */
    return _mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)) != 0;
}

/* r[i][j] becomes r[j][i]. In the comments a, b, c, d are rows and numbers are columns. */
static inline void transpose(__m256 r[VECTOR])
{
    __m256 pair[VECTOR]; /* a0 b0 a1 b1 | a4 b4 a5 b5, then a2 b2 a3 b3 | a6 b6 a7 b7 */
    for (int i = 0; i < VECTOR; i += 2) {
        pair[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        pair[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    __m256 quad[VECTOR]; /* quad[j]: aj bj cj dj | aj+4 bj+4 cj+4 dj+4 */
    for (int i = 0; i < VECTOR; i += 4)
        for (int j = 0; j < 2; j++) {
            quad[i + 2 * j] = _mm256_shuffle_ps(pair[i + j], pair[i + j + 2], 0x44);
            quad[i + 2 * j + 1] = _mm256_shuffle_ps(pair[i + j], pair[i + j + 2], 0xee);
        }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x31);
    }
}

void attnkit_avx2_exp2(const float *x, float *y, size_t n);
void attnkit_avx2_widen(enum type type, const void *row, const float *scales, int64_t group,
                        int64_t n, float *out);
void attnkit_avx2_widen_blocks(enum type type, const char *row, int64_t n, float *out);
void attnkit_avx2_unpack(enum type type, const struct rows *rows, int count, void *to);
void attnkit_avx2_narrow_blocks(enum type type, const float *x, int64_t n, char *row);
void attnkit_avx2_widen_tile(enum type type, const void *tile, const float *scales, int64_t group,
                             int64_t n, float *out);
void attnkit_avx2_narrow(enum type type, const float *x, int64_t n, int64_t group, void *row,
                         float *scales);
void attnkit_avx2_pack_q(const float *const *rows, int lanes, int64_t head_dim, float *q_t);
void attnkit_avx2_scores(const float *q_t, int lanes, const struct rows *k, int keys, float *s,
                         const struct rows *ahead);
void attnkit_avx2_softmax(float *s, int lanes, int keys, const int32_t *visible, float scale_log2,
                          const struct state *st, float *rescale);
void attnkit_avx2_adjust(const struct adjust *how, const float *bias, size_t n, float *s);
void attnkit_avx2_weighted_v(const float *p, int lanes, const float *rescale, const struct rows *v,
                             int keys, float *o, const struct rows *ahead);
void attnkit_avx2_begin_total(const struct total *total, const struct state *chunk, int lanes,
                              int64_t value_dim);
void attnkit_avx2_fold(const struct total *total, const struct state *chunk, int lanes,
                       int64_t value_dim);
uint64_t attnkit_avx2_finish(const struct state *st, int lanes, int64_t value_dim, int rows,
                             float *const *out, float *const *lse);
uint64_t attnkit_avx2_finish_total(const struct total *total, const float *chunk_out, int lanes,
                                   int64_t value_dim, int rows, float *const *out,
                                   float *const *lse);
void attnkit_avx2_decode(const struct decode_block *block, int rows, float scale_log2);
uint64_t attnkit_avx2_decode_finish(const struct state *st, int rows, int64_t value_dim,
                                    float *const *out, float *const *lse);
void attnkit_avx2_fold_row(double *o, const float *chunk, double a, double b, int64_t n);
bool attnkit_avx2_quotient_row(const double *o, double divisor, int64_t n, float *out);
void attnkit_avx2_head_scores(const float *q_t, const float *k_t, int rows, int keys,
                              int64_t head_dim, float *s);
uint64_t attnkit_avx2_head_out(const struct head_weights *weights, const struct rows *v, int rows,
                               float *const *out);
void attnkit_avx2_rotate(float *x, const float *cos, const float *sin, int64_t pairs,
                         bool interleaved);
void attnkit_avx2_nonzero(const unsigned char *bytes, uint64_t words[KEY_BLOCK / 64]);
void attnkit_avx2_same_ids(const int32_t *ids, int32_t own, uint64_t words[KEY_BLOCK / 64]);
bool attnkit_avx2_unmasked(enum type type, const void *numbers, uint64_t words[KEY_BLOCK / 64]);
void attnkit_avx2_bias_line(const struct bias_line *what, float *line);
void attnkit_avx2_keep_line(const struct keep_line *what, float *line);
void attnkit_avx2_fill_pointers(const void *first, ptrdiff_t bytes, int count, void *pointers);
void attnkit_avx2_compact_line(const uint64_t keys[KEY_BLOCK / 64], float *line);
void attnkit_avx2_spread_line(const uint64_t keys[KEY_BLOCK / 64], const float *numbers,
                              const uint64_t own[KEY_BLOCK / 64], float none, float *line);
void attnkit_avx2_mean(const struct rows *rows, int64_t count, float *mean);
void attnkit_avx2_multiply(const float *factors, size_t n, float *s);
void attnkit_avx2_widen_matrix(enum type type, const void *tile, int64_t n, float *out);
void attnkit_avx2_product(const struct product *p);
void attnkit_avx2_few_product(const struct few_product *p);

/* For results that may have a value that is not finite: makes every NaN the same, and returns a bit
 * for each row that has such a value. */
__attribute__((cold)) uint64_t attnkit_avx2_settle(int rows, int64_t n, float *const *out);

extern const struct kernels attnkit_avx2;

#endif
