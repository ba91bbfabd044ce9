/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512 F, BW, DQ and VL: the shapes of the tiles, the inline helpers that several tiles use, and
 * the prototypes of the entries. kernels.h has the contract of each entry, and
 * kernels/vectors/table.h lists all entries.
 */
#ifndef ATTNKIT_AVX512_H
#define ATTNKIT_AVX512_H

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"

#define KERNEL(entry) attnkit_avx512_##entry
#define KERNEL_TABLE attnkit_avx512
#define KERNEL_NAME "avx512"

enum {
    VECTOR = 16, /* floats in a zmm */
    VECTORS = 4, /* zmm across the lanes of a panel */
    LANES = VECTORS * VECTOR,
    MAX_HEIGHT = 8, /* most keys or value columns of a register tile */
    LINE = 16,      /* floats in a cache line */
    DECODE_ROWS = 16,
    F32_DECODE_ROWS = 12,
    FAR_REST_ROWS = VECTOR / 2,
    F32_FAR_REST_ROWS = 0,
    NEAR_REST_BYTES = 1 << 21, /* measured on a Zen 4, which has an L2 of 1 MiB */
    COPIES_ROWS = false,       /* on a Zen 4, copies take 1.0 to 1.04 of the time */
    MATRIX_ROWS = 16,
    F32_MATRIX_ROWS = 6,
    TILE_VECTORS = TILE_KEYS / VECTOR, /* vectors that hold an element of all keys of a tile of K */
};

/* --- Operations under the names that kernels/vectors uses ------------------------------------- */

typedef __m512 floats;
typedef __mmask16 lane_mask;

static inline floats broadcast(float x)
{
    return _mm512_set1_ps(x);
}

static inline floats broadcast_from(const float *from)
{
    return _mm512_set1_ps(*from);
}

static inline floats load_floats(const float *from)
{
    return _mm512_loadu_ps(from);
}

static inline void store_floats(float *to, floats x)
{
    _mm512_storeu_ps(to, x);
}

static inline floats load_aligned(const float *from)
{
    return _mm512_load_ps(from);
}

static inline void store_aligned(float *to, floats x)
{
    _mm512_store_ps(to, x);
}

/* Returns a * b + c with one rounding. fnma_v returns c - a * b, and fms_v a * b - c. */
static inline floats fma_v(floats a, floats b, floats c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline floats fnma_v(floats a, floats b, floats c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

static inline floats fms_v(floats a, floats b, floats c)
{
    return _mm512_fmsub_ps(a, b, c);
}

/* Returns the maximum of x and y, or y where x is NaN. y is not NaN. */
static inline floats max_without_nan(floats x, floats y)
{
    return _mm512_max_ps(x, y);
}

/* Returns the maximum of x and y, or NaN where x is NaN. y is not NaN. */
static inline floats max_with_nan(floats x, floats y)
{
    return _mm512_max_ps(y, x);
}

static inline floats ceil_v(floats x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}

static inline lane_mask equal_v(floats x, floats y)
{
    return _mm512_cmp_ps_mask(x, y, _CMP_EQ_OQ);
}

static inline lane_mask less_v(floats x, floats y)
{
    return _mm512_cmp_ps_mask(x, y, _CMP_LT_OQ);
}

/* Returns for each lane whether it sees a key: whether visible[lane] > key. */
static inline lane_mask seen_v(const int32_t *visible, int key)
{
    return _mm512_cmpgt_epi32_mask(_mm512_loadu_si512(visible), _mm512_set1_epi32(key));
}

/* Returns x where the mask is set, else y. */
static inline floats select_v(lane_mask mask, floats x, floats y)
{
    return _mm512_mask_mov_ps(y, mask, x);
}

/* Splits x into 2^e m with 0.75 <= m < 1.5, the range that log_v needs. Returns m. */
static inline floats split_exponent(floats x, floats *e)
{
    const __m512i larger = _mm512_castps_si512(x * broadcast(1.0f / 0.75f));
    const __m512i exponent =
        _mm512_sub_epi32(_mm512_srli_epi32(larger, 23), _mm512_set1_epi32(127));
    *e = _mm512_cvtepi32_ps(exponent);
    return _mm512_castsi512_ps(
        _mm512_sub_epi32(_mm512_castps_si512(x), _mm512_slli_epi32(exponent, 23)));
}

enum {
    SIDE_BY_SIDE = 4, /* the best number of vectors for exp2_vectors: enough to hide the latency of
                         the instructions */
};

/* Sets x[i] to 2^x[i], or to +0 if x[i] rounds to less than LEAST_POWER. x[i] is <= 0 or NaN. NaN
 * stays NaN. The results have the bits of SLEEF's u10 exp2f in its FMA form. The polynomial in x -
 * round(x) is SLEEF's. The function is inline, because a call would spill the registers of its
 * caller. Each stage of the computation runs on all n vectors before the next stage begins. If one
 * vector after the other went through all stages, a core's scheduler would hold too few sequences
 * of 9 dependent instructions to keep its ports busy. */
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
        /* NaN is not less than LEAST_POWER, so NaN stays. */
        const __mmask16 not_less =
            _mm512_cmp_ps_mask(rounded[i], _mm512_set1_ps(LEAST_POWER), _CMP_NLT_UQ);
        x[i] = _mm512_maskz_scalef_ps(not_less, p[i], rounded[i]);
    }
}

/* Returns the number that is subtracted from scores: the maximum, or 0 where the maximum is -inf. A
 * maximum is -inf only in rows without a finite score. */
static inline __m512 finite_max(__m512 row_max)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(row_max, broadcast(-INFINITY), _CMP_NEQ_UQ),
                               row_max);
}

/* Returns a mask of the first n elements, for any n. */
static inline __mmask16 first_mask(int64_t n)
{
    if (n >= VECTOR)
        return 0xffff;
    return n <= 0 ? 0 : (__mmask16)(0xffff >> (VECTOR - n));
}

/* Returns the first n elements at p, with zeros after them. Memory after the n elements is not
 * touched. */
static inline __m512 load_first(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(first_mask(n), p);
}

static inline void store_first(float *p, int64_t n, __m512 x)
{
    _mm512_mask_storeu_ps(p, first_mask(n), x);
}

/* Returns n elements of a row from element `at` on as binary32, with zeros after them. Memory after
 * the n elements is not touched. No scale is applied. For the bytes of a TYPE_Q8_0 block, `row` is
 * the address of the bytes. The type is then TYPE_I8. It may also be TYPE_Q8_0 if `at` is 0. */
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

/* Loads one element of each of TILE_KEYS keys as binary32. No scale is applied. */
static inline __attribute__((always_inline)) void load_line(const enum type type, const void *from,
                                                            floats x[TILE_VECTORS])
{
    for (int j = 0; j < TILE_VECTORS; j++)
        x[j] = load_as_f32(type, from, j * VECTOR, VECTOR);
}

/* Returns the height of a register tile that is `vectors` vectors wide. The height is a number of
 * keys or value columns. A tile of 4 vectors has 24 accumulators, which leave room for 4 vectors
 * and a broadcast in 32 zmm. Tiles of fewer vectors have at least 8 accumulators, which keep two
 * ports with a latency of 4 cycles busy. */
static inline int full_height(int vectors)
{
    return vectors == 4 ? 6 : 8;
}

static inline int panel_height(int64_t left, int vectors)
{
    return tile_height(left, full_height(vectors));
}

enum { LARGE_TILE = 16 /* accumulators */ };

/* Returns sum + a * b. In large tiles the assembly keeps the sum in its register. Without the
 * assembly, gcc moves sums from one register to another and spills some, in long loop bodies. */
static inline __attribute__((always_inline)) __m512 multiply_add(__m512 a, __m512 b, __m512 sum,
                                                                 const bool is_large)
{
    if (!is_large)
        return _mm512_fmadd_ps(a, b, sum);
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

/* Returns y with every NaN replaced by 0x7fc00000, because the sign and payload of a NaN depend on
 * the order of operands. */
static inline __m512 plain_nan(__m512 y)
{
    const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(y, y, _CMP_UNORD_Q), nan);
}

/* Returns sum + *x * w by one instruction, which broadcasts *x. On a Zen 4 this instruction costs
 * no more than a multiply-add of registers, while a separate broadcast would take a cycle of its
 * own. */
static inline __attribute__((always_inline)) __m512 multiply_add_one(const float *x, __m512 w,
                                                                     __m512 sum)
{
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*x));
    return sum;
}

/* Returns whether a lane is NaN or infinite. */
static inline bool is_spoilt(__m512 spoilt)
{
    enum { NAN_OR_INFINITY = 0x99 };
    return _mm512_fpclass_ps_mask(spoilt, NAN_OR_INFINITY) != 0;
}

/* Transposes: r[i][j] becomes r[j][i]. In the comments a, b, c, d are rows and numbers are
 * columns. */
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

#include "kernels/vectors/entries.h"

#define KERNEL_TOGETHER_ROWS attnkit_avx512_together_rows

void attnkit_avx512_decode_together(const struct heads_block *block, float scale_log2);
int attnkit_avx512_together_rows(enum type type, int64_t dim, int heads, bool gaps);
#include "kernels/vectors/floats.h"

#endif
