/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of 16 bit and byte types and of TYPE_Q8_0 to binary32 and back, 16 elements at a time. Bound
 * by loads and stores, but for the division of each element that becomes a byte.
 * Types with scales have functions of their own: a short row of the others then saves no registers.
 */
#include "kernels/avx512/avx512.h"
#include "kernels/blocks.h"

static inline float float_from_f16(uint16_t half)
{
    return _mm512_cvtss_f32(_mm512_cvtph_ps(_mm256_set1_epi16((short)half)));
}

static inline uint16_t f16_from_float(float x)
{
    return (uint16_t)_mm256_extract_epi16(
        _mm512_cvtps_ph(_mm512_set1_ps(x), _MM_FROUND_TO_NEAREST_INT), 0);
}

static inline __m512 scaled(const enum type type, __m512 x, float scale)
{
    return type == TYPE_I8 ? _mm512_mul_ps(x, _mm512_set1_ps(scale)) : x;
}

/* Elements times `scale`, which other types than TYPE_I8 do without. */
static inline __attribute__((always_inline)) void
widen_elements(const enum type type, const void *row, float scale, int64_t n, float *out)
{
    int64_t i = 0;
    for (; i + VECTOR <= n; i += VECTOR)
        _mm512_storeu_ps(out + i, scaled(type, load_as_f32(type, row, i, VECTOR), scale));
    if (i < n)
        store_first(out + i, n - i, scaled(type, load_as_f32(type, row, i, n - i), scale));
}

static __attribute__((noinline)) void widen_i8(const int8_t *row, const float *scales,
                                               int64_t group, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += group)
        widen_elements(TYPE_I8, row + i, *scales++, group, out + i);
}

/* Bytes of TYPE_F8_E4M3 as binary16 of 2^-8 times the number: the exponents differ by 8, and both
 * have numbers without a hidden bit. All bits set but the sign, the one NaN there, become one here:
 * only then the sum carries into bit 14. */
static inline __m512i f16_from_e4m3(__m256i bytes)
{
    enum { A_OR_NOT_B_WHERE_C = 0x72 }; /* a, or where c is set not b */
    const __m512i wide = _mm512_slli_epi16(_mm512_cvtepi8_epi16(bytes), 7); /* bit 14: the sign */
    const __m512i ones = _mm512_or_si512(wide, _mm512_set1_epi16((short)0xc000));
    const __m512i carried = _mm512_add_epi16(ones, _mm512_set1_epi16(0x80));
    return _mm512_ternarylogic_epi32(wide, carried, _mm512_set1_epi16(0x4000), A_OR_NOT_B_WHERE_C);
}

static inline __m512 product(__m256i halves, float scale, const bool apart)
{
    const __m512 x = _mm512_cvtph_ps(halves);
    const __m512 whole = apart ? _mm512_mul_ps(x, _mm512_set1_ps(256.0f)) : x;
    return _mm512_mul_ps(whole, _mm512_set1_ps(scale));
}

/* `scale` is 2^8 times the scale, unless it is `apart` from this power of two. */
static inline __attribute__((always_inline)) void
widen_e4m3(const char *row, float scale, const bool apart, int64_t n, float *out)
{
    enum { BOTH = 2 * VECTOR };
    int64_t i = 0;
    for (; i + BOTH <= n; i += BOTH) {
        const __m512i half = f16_from_e4m3(_mm256_loadu_si256((const __m256i *)(row + i)));
        const __m256i high = _mm512_extracti64x4_epi64(half, 1);
        _mm512_storeu_ps(out + i, product(_mm512_castsi512_si256(half), scale, apart));
        _mm512_storeu_ps(out + i + VECTOR, product(high, scale, apart));
    }
    for (; i < n; i += VECTOR) {
        const __m128i bytes = _mm_maskz_loadu_epi8(first_mask(n - i), row + i);
        const __m512i half = f16_from_e4m3(_mm256_castsi128_si256(bytes));
        store_first(out + i, n - i, product(_mm512_castsi512_si256(half), scale, apart));
    }
}

static __attribute__((noinline)) void widen_f8(const char *row, const float *scales, int64_t group,
                                               int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += group) {
        const float scale = *scales++;
        if (is_too_large_for_e4m3(scale))
            widen_e4m3(row + i, scale, true, group, out + i);
        else
            widen_e4m3(row + i, scale * 256.0f, false, group, out + i);
    }
}

static __attribute__((noinline)) void widen_q8_0(const char *block, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += Q8_BLOCK, block += Q8_BLOCK_BYTES) {
        uint16_t scale;
        memcpy(&scale, block, sizeof scale);
        widen_elements(TYPE_I8, block + sizeof scale, float_from_f16(scale), Q8_BLOCK, out + i);
    }
}

void attnkit_avx512_widen(enum type type, const void *row, const float *scales, int64_t group,
                          int64_t n, float *out)
{
    switch (type) {
    case TYPE_F32:
        memcpy(out, row, (size_t)n * sizeof *out);
        break;
    case TYPE_F16:
        widen_elements(TYPE_F16, row, 1.0f, n, out);
        break;
    case TYPE_BF16:
        widen_elements(TYPE_BF16, row, 1.0f, n, out);
        break;
    case TYPE_I8:
        widen_i8(row, scales, group, n, out);
        break;
    case TYPE_Q8_0:
        widen_q8_0(row, n, out);
        break;
    case TYPE_F8_E4M3:
        widen_f8(row, scales, group, n, out);
        break;
    default:
        attnkit_avx512_widen_blocks(type, row, n, out);
    }
}

/* Where the next element of all keys of a tile of K is, and what it is multiplied by. */
struct tile {
    const char *k;
    const float *scales;
    int64_t group, left; /* elements that share a scale, and those until the next one */
    __m512 scale[TILE_VECTORS];
};

static inline __attribute__((always_inline)) void next_scales(const enum type type,
                                                              struct tile *tile)
{
    const bool apart = type == TYPE_I8;
    for (int j = 0; j < TILE_VECTORS; j++)
        tile->scale[j] = apart ? load_as_f32(TYPE_F32, tile->scales, j * VECTOR, VECTOR)
                               : load_as_f32(TYPE_F16, tile->k, j * VECTOR, VECTOR);
    if (apart)
        tile->scales += TILE_KEYS;
    else
        tile->k += bytes_of(TYPE_F16, TILE_KEYS);
    tile->left = tile->group;
}

/* x[j]: the next element of VECTOR keys, times its scale. */
static inline __attribute__((always_inline)) void
next_element(const enum type type, struct tile *tile, __m512 x[TILE_VECTORS])
{
    const bool scaled = type == TYPE_I8 || type == TYPE_Q8_0;
    const enum type stored = type == TYPE_Q8_0 ? TYPE_I8 : type;
    if (scaled && tile->left == 0)
        next_scales(type, tile);
    for (int j = 0; j < TILE_VECTORS; j++) {
        x[j] = load_as_f32(stored, tile->k, j * VECTOR, VECTOR);
        if (scaled)
            x[j] = _mm512_mul_ps(x[j], tile->scale[j]);
    }
    tile->k += bytes_of(stored, TILE_KEYS);
    tile->left--;
}

/* VECTOR elements of each key at a time are transposed. */
static inline __attribute__((always_inline)) void widen_tile(const enum type type, const void *k,
                                                             const float *scales, int64_t group,
                                                             int64_t n, float *out)
{
    struct tile tile = {.k = k, .scales = scales, .group = type == TYPE_I8 ? group : Q8_BLOCK};
    for (int64_t d = 0; d < n; d += VECTOR) {
        const int count = n - d < VECTOR ? (int)(n - d) : VECTOR;
        __m512 x[VECTOR][TILE_VECTORS];
        for (int i = 0; i < VECTOR; i++) {
            for (int j = 0; j < TILE_VECTORS; j++)
                x[i][j] = _mm512_setzero_ps();
            if (i < count)
                next_element(type, &tile, x[i]);
        }
        for (int j = 0; j < TILE_VECTORS; j++) {
            __m512 row[VECTOR];
            for (int i = 0; i < VECTOR; i++)
                row[i] = x[i][j];
            transpose(row);
            for (int i = 0; i < VECTOR; i++)
                store_first(out + (j * VECTOR + i) * n + d, count, row[i]);
        }
    }
}

void attnkit_avx512_widen_tile(enum type type, const void *tile, const float *scales, int64_t group,
                               int64_t n, float *out)
{
    switch (type) {
    case TYPE_F32:
        widen_tile(TYPE_F32, tile, scales, group, n, out);
        break;
    case TYPE_F16:
        widen_tile(TYPE_F16, tile, scales, group, n, out);
        break;
    case TYPE_BF16:
        widen_tile(TYPE_BF16, tile, scales, group, n, out);
        break;
    case TYPE_I8:
        widen_tile(TYPE_I8, tile, scales, group, n, out);
        break;
    case TYPE_Q8_0:
        widen_tile(TYPE_Q8_0, tile, scales, group, n, out);
        break;
    default:
        __builtin_trap();
    }
}

/* max |x| / 127. As integers, magnitudes have the order of the numbers, and NaN comes last. */
static float scale_of(const float *x, int64_t n)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i most = _mm512_setzero_si512();
    for (int64_t i = 0; i < n; i += VECTOR) {
        const __m512i bits = _mm512_castps_si512(load_first(x + i, n - i));
        most = _mm512_max_epi32(most, _mm512_and_si512(bits, magnitude));
    }
    const __m128i largest = _mm_cvtsi32_si128(_mm512_reduce_max_epi32(most));
    return _mm_cvtss_f32(_mm_castsi128_ps(largest)) / 127.0f;
}

static inline __m256i bf16_from_f32(__m512 x)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i is_odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), is_odd);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i half = _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(half, 16));
}

/* To nearest, in -127 .. 127. */
static inline __m256i bytes_from_f32(__m512 x)
{
    const __m128i bytes = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x));
    return _mm256_castsi128_si256(_mm_max_epi8(bytes, _mm_set1_epi8(-127)));
}

static inline __m256i narrowed(const enum type type, __m512 x, float scale)
{
    switch (type) {
    case TYPE_F16:
        return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
    case TYPE_BF16:
        return bf16_from_f32(x);
    default:
        return bytes_from_f32(_mm512_div_ps(x, _mm512_set1_ps(scale)));
    }
}

/* The first n as elements `at` on of a row, and no byte behind them. */
static inline __attribute__((always_inline)) void
store_elements(const enum type type, void *row, int64_t at, int64_t n, __m256i elements)
{
    char *const to = (char *)row + bytes_of(type, at);
    if (type == TYPE_I8)
        _mm_mask_storeu_epi8(to, first_mask(n), _mm256_castsi256_si128(elements));
    else
        _mm256_mask_storeu_epi16(to, first_mask(n), elements);
}

static inline __attribute__((always_inline)) void
narrow_elements(const enum type type, const float *x, float scale, int64_t n, void *row)
{
    int64_t i = 0;
    for (; i + VECTOR <= n; i += VECTOR)
        store_elements(type, row, i, VECTOR, narrowed(type, _mm512_loadu_ps(x + i), scale));
    if (i < n)
        store_elements(type, row, i, n - i, narrowed(type, load_first(x + i, n - i), scale));
}

static bool is_usable(float scale)
{
    return scale > 0.0f && scale < INFINITY;
}

/* Elements of a scale that is not. Returns it as it is stored: any NaN is 0x7fc00000. */
static float zero_bytes(float scale, int64_t n, int8_t *bytes)
{
    for (int64_t i = 0; i < n; i++)
        bytes[i] = 0;
    return isnan(scale) ? NAN : scale;
}

static __attribute__((noinline)) void narrow_i8(const float *x, int64_t n, int64_t group,
                                                int8_t *row, float *scales)
{
    for (int64_t i = 0; i < n; i += group) {
        float scale = scale_of(x + i, group);
        if (is_usable(scale))
            narrow_elements(TYPE_I8, x + i, scale, group, row + i);
        else
            scale = zero_bytes(scale, group, row + i);
        *scales++ = scale;
    }
}

static __attribute__((noinline)) void narrow_q8_0(const float *x, int64_t n, char *block)
{
    for (int64_t i = 0; i < n; i += Q8_BLOCK, block += Q8_BLOCK_BYTES) {
        uint16_t half = f16_from_float(scale_of(x + i, Q8_BLOCK));
        const float scale = float_from_f16(half);
        if (is_usable(scale))
            narrow_elements(TYPE_I8, x + i, scale, Q8_BLOCK, block + sizeof half);
        else
            half = f16_from_float(zero_bytes(scale, Q8_BLOCK, (int8_t *)block + sizeof half));
        memcpy(block, &half, sizeof half);
    }
}

void attnkit_avx512_narrow(enum type type, const float *x, int64_t n, int64_t group, void *row,
                           float *scales)
{
    switch (type) {
    case TYPE_F32:
        memcpy(row, x, (size_t)n * sizeof *x);
        break;
    case TYPE_F16:
        narrow_elements(TYPE_F16, x, 1.0f, n, row);
        break;
    case TYPE_BF16:
        narrow_elements(TYPE_BF16, x, 1.0f, n, row);
        break;
    case TYPE_I8:
        narrow_i8(x, n, group, row, scales);
        break;
    case TYPE_Q8_0:
        narrow_q8_0(x, n, row);
        break;
    default:
        attnkit_avx512_narrow_blocks(type, x, n, row);
    }
}
