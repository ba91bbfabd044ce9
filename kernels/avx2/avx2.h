/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2, FMA and F16C: the shapes of the tiles, the inline helpers that several tiles use, and the
 * prototypes of the entries. kernels.h has the contract of each entry, and kernels/vectors/table.h
 * lists all entries.
 */
#ifndef ATTNKIT_AVX2_H
#define ATTNKIT_AVX2_H

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"

#define KERNEL(entry) attnkit_avx2_##entry
#define KERNEL_TABLE attnkit_avx2
#define KERNEL_NAME "avx2"

enum {
    VECTOR = 8,  /* floats in a ymm */
    VECTORS = 3, /* ymm across the lanes of a panel */
    LANES = VECTORS * VECTOR,
    MAX_HEIGHT = 8, /* most keys or value columns of a register tile */
    LINE = 16,      /* floats in a cache line */
    DECODE_ROWS = 16,
    F32_DECODE_ROWS = 12,
    FAR_REST_ROWS = 0,
    F32_FAR_REST_ROWS = 0,
    NEAR_REST_BYTES = 1 << 20, /* measured on a Zen 3, which has an L2 of 512 KiB */
    COPIES_ROWS = true,
    MATRIX_ROWS = 8,
    F32_MATRIX_ROWS = 4,
    TILE_VECTORS = TILE_KEYS / VECTOR, /* vectors that hold an element of all keys of a tile of K */
};

/* --- Operations under the names that kernels/vectors uses ------------------------------------- */

typedef __m256 floats;
typedef __m256 lane_mask;

static inline floats broadcast(float x)
{
    return _mm256_set1_ps(x);
}

static inline floats broadcast_from(const float *from)
{
    return _mm256_broadcast_ss(from);
}

static inline floats load_floats(const float *from)
{
    return _mm256_loadu_ps(from);
}

static inline void store_floats(float *to, floats x)
{
    _mm256_storeu_ps(to, x);
}

static inline floats load_aligned(const float *from)
{
    return _mm256_load_ps(from);
}

static inline void store_aligned(float *to, floats x)
{
    _mm256_store_ps(to, x);
}

/* Returns a * b + c with one rounding. fnma_v returns c - a * b, and fms_v a * b - c. */
static inline floats fma_v(floats a, floats b, floats c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline floats fnma_v(floats a, floats b, floats c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

static inline floats fms_v(floats a, floats b, floats c)
{
    return _mm256_fmsub_ps(a, b, c);
}

/* Returns the maximum of x and y, or y where x is NaN. y is not NaN. */
static inline floats max_without_nan(floats x, floats y)
{
    return _mm256_max_ps(x, y);
}

/* Returns the maximum of x and y, or NaN where x is NaN. y is not NaN. */
static inline floats max_with_nan(floats x, floats y)
{
    return _mm256_max_ps(y, x);
}

static inline floats ceil_v(floats x)
{
    return _mm256_ceil_ps(x);
}

static inline lane_mask equal_v(floats x, floats y)
{
    return _mm256_cmp_ps(x, y, _CMP_EQ_OQ);
}

static inline lane_mask less_v(floats x, floats y)
{
    return _mm256_cmp_ps(x, y, _CMP_LT_OQ);
}

/* Returns for each lane whether it sees a key: whether visible[lane] > key. */
static inline lane_mask seen_v(const int32_t *visible, int key)
{
    const __m256i end = _mm256_loadu_si256((const __m256i_u *)visible);
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(end, _mm256_set1_epi32(key)));
}

/* Returns x where the mask is set, else y. */
static inline floats select_v(lane_mask mask, floats x, floats y)
{
    return _mm256_blendv_ps(y, x, mask);
}

/* Splits x into 2^e m with 0.75 <= m < 1.5, the range that log_v needs. Returns m. */
static inline floats split_exponent(floats x, floats *e)
{
    const __m256i larger = _mm256_castps_si256(x * broadcast(1.0f / 0.75f));
    const __m256i exponent =
        _mm256_sub_epi32(_mm256_srli_epi32(larger, 23), _mm256_set1_epi32(127));
    *e = _mm256_cvtepi32_ps(exponent);
    return _mm256_castsi256_ps(
        _mm256_sub_epi32(_mm256_castps_si256(x), _mm256_slli_epi32(exponent, 23)));
}

enum {
    SIDE_BY_SIDE = 4, /* the best number of vectors for exp2_vectors: enough to hide the latency of
                         the instructions */
};

/* Returns 2^(n - POWER_HEADROOM), or +0 for n = LEAST_POWER - 1. `rounded` is n + 1.5 * 2^23, so
 * its low bits are n. */
static inline __m256 shrunk_power_of_two(__m256 rounded)
{
    const __m256i shifted = _mm256_slli_epi32(_mm256_castps_si256(rounded), 23);
    return _mm256_castsi256_ps(
        _mm256_add_epi32(shifted, _mm256_set1_epi32((127 - POWER_HEADROOM) << 23)));
}

/* Sets x[i] to 2^x[i], or to +0 if x[i] rounds to less than LEAST_POWER. x[i] is <= 0 or NaN. NaN
 * stays NaN. The results have the bits of SLEEF's u10 exp2f in its FMA form. The polynomial in x -
 * round(x) is SLEEF's, times 2^POWER_HEADROOM. This factor changes only exponents. The function is
 * inline, because a call would spill the registers of its caller. Each stage of the computation
 * runs on all n vectors before the next stage begins. If one vector after the other went through
 * all stages, a core's scheduler would hold only about three sequences of 11 dependent
 * instructions, too few to keep its ports busy. */
static inline __attribute__((always_inline)) void exp2_vectors(__m256 *x, const int n)
{
    static const float coefficients[] = {0.1339262701e-2f, 0.9618384764e-2f, 0.5550347269e-1f,
                                         0.2402264476e+0f, 0.6931471825e+0f, 1.0f};
    const float unit = (float)(1 << POWER_HEADROOM);
    /* 1.5 * 2^23: adding a number to `magic` rounds the number to an integer, in the lowest bits of
     * the sum. */
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

/* Returns the number that is subtracted from scores and maxima: the maximum, or 0 where the maximum
 * is -inf. A maximum is -inf only in rows without a finite score. */
static inline __m256 finite_max(__m256 row_max)
{
    return _mm256_andnot_ps(_mm256_cmp_ps(row_max, broadcast(-INFINITY), _CMP_EQ_OQ), row_max);
}

/* Returns a mask of the first n elements, for any n. */
static inline __m256i first_mask(int64_t n)
{
    const int count = n < VECTOR ? (int)n : VECTOR;
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* Returns the first n elements at p, but at most VECTOR, with zeros after them. Memory after these
 * elements is not touched. */
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

/* Returns n <= VECTOR elements of a row from element `at` on as binary32, with zeros after them.
 * Memory after the n elements is not touched. No scale is applied. For the bytes of a TYPE_Q8_0
 * block, type is TYPE_I8. */
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

/* Loads TILE_KEYS elements, one for each key of a tile, as binary32. No scale is applied. */
static inline __attribute__((always_inline)) void load_line(const enum type type, const void *from,
                                                            floats x[TILE_VECTORS])
{
    for (int j = 0; j < TILE_VECTORS; j++)
        x[j] = load_as_f32(type, from, j * VECTOR, VECTOR);
}

/* Returns the height of a register tile that is `vectors` vectors wide. The height is a number of
 * keys or value columns. A tile of 2 or 3 vectors has 12 accumulators, which leave room for 3
 * vectors and a broadcast in 16 ymm. A tile of one vector has 8 accumulators, which keep two ports
 * with a latency of 4 busy. */
static inline int full_height(int vectors)
{
    return vectors == 3 ? 4 : vectors == 2 ? 6 : 8;
}

static inline int panel_height(int64_t left, int vectors)
{
    return tile_height(left, full_height(vectors));
}

enum { LARGE_TILE = 8 /* fewest accumulators of a large tile */ };

/* Returns sum + a * b. In large tiles the assembly keeps the sum in its register. Without the
 * assembly, gcc moves sums from one register to another and spills some, in long loop bodies that
 * need nearly all 16 ymm. */
static inline __attribute__((always_inline)) __m256 multiply_add(__m256 a, __m256 b, __m256 sum,
                                                                 const bool is_large)
{
    if (!is_large)
        return _mm256_fmadd_ps(a, b, sum);
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
    return sum;
}

/* Returns y with every NaN replaced by 0x7fc00000, because the sign and payload of a NaN depend on
 * the order of operands. */
static inline __m256 plain_nan(__m256 y)
{
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    return _mm256_blendv_ps(y, nan, _mm256_cmp_ps(y, y, _CMP_UNORD_Q));
}

static inline bool is_spoilt(__m256 spoilt)
{
    const __m256 x = _mm256_sub_ps(spoilt, spoilt); /* 0, or NaN where a lane is not finite */
    return _mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)) != 0;
}

/* Transposes: r[i][j] becomes r[j][i]. In the comments a, b, c, d are rows and numbers are
 * columns. */
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

#include "kernels/vectors/entries.h"

#define KERNEL_TOGETHER_ROWS attnkit_avx2_together_rows

void attnkit_avx2_decode_together(const struct heads_block *block, float scale_log2);
int attnkit_avx2_together_rows(enum type type, int64_t dim, int heads, bool gaps);

#include "kernels/vectors/floats.h"

#endif
