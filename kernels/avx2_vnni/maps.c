/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear maps in integers, by VPDPBUSD of AVX-VNNI: one instruction adds four products of each of 8
 * outputs. The first factor of VPDPBUSD is unsigned, so words have the bytes of the matrix plus
 * 128. To take back the 128, the sums over a block of x begin with -128 times the sum of the
 * block's integers. No sum overflows. The loops are in kernels/vectors/integers/product.h.
 *
 * A register tile for many rows has 3 rows x 4 vectors. 12 integer sums, a vector of words and 3
 * broadcasts take all 16 ymm. So the binary32 sums, to which the integer sums are added, are in L1.
 * A step of 4 inputs takes 12 VPDPBUSD, 3 broadcasts and 4 loads. VPDPBUSD limits the speed. A core
 * of Alder Lake can start two VPDPBUSD in a cycle, and a sum is ready 5 cycles later. So a tile
 * needs 10 vectors of sums to keep the core busy. The tile for few rows, 4 rows x 2 vectors, has
 * only 8.
 */
#include "kernels/avx2/integers/bytes.h"

enum { STEP = 4, ROWS_OF_SUMS = 1 };
enum { ROWS = 3, WIDTH = 4, FEW_ROWS = 4, FEW_WIDTH = 2, ONE_WIDTH = 4, FEW_MOST = 4 };

typedef int8_t input;

static inline float round_block(const float *x, int8_t *integers, int32_t *beginning)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i n[PARTS];
    const float scale = round_inputs(x, n);
    const __m256i bytes = _mm256_permutevar8x32_epi32(
        _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3])), order);
    _mm256_storeu_si256((__m256i *)(void *)integers, bytes);
    const __m256i sum =
        _mm256_add_epi32(_mm256_add_epi32(n[0], n[1]), _mm256_add_epi32(n[2], n[3]));
    __m128i all = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    all = _mm_add_epi32(all, _mm_shuffle_epi32(all, 0x4e));
    all = _mm_add_epi32(all, _mm_shuffle_epi32(all, 0xb1));
    *beginning = -128 * _mm_cvtsi128_si32(all);
    return scale;
}

static inline __m256i begin_sums(int32_t beginning)
{
    return _mm256_set1_epi32(beginning);
}

/* Returns the bytes of a tile for two inputs and all 16 outputs: bytes 2 o and 2 o + 1 belong to
 * output o. */
static inline __m256i interleave_two(const char *bytes)
{
    const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)bytes);
    const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(bytes + TILE_KEYS));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi8(a, b)),
                                   _mm_unpackhi_epi8(a, b), 1);
}

/* Makes the words of 4 inputs: bytes 4 o to 4 o + 3 are the bytes of output o plus 128. */
static inline __attribute__((always_inline)) void make_step(const char *bytes,
                                                            __m256i w[TILE_VECTORS])
{
    const __m256i sign = _mm256_set1_epi8(-128);
    const __m256i first = _mm256_xor_si256(interleave_two(bytes), sign);
    const __m256i second = _mm256_xor_si256(interleave_two(bytes + 2 * TILE_KEYS), sign);
    const __m256i low = _mm256_unpacklo_epi16(first, second);  /* outputs 0 - 3 and 8 - 11 */
    const __m256i high = _mm256_unpackhi_epi16(first, second); /* outputs 4 - 7 and 12 - 15 */
    w[0] = _mm256_permute2x128_si256(low, high, 0x20);
    w[1] = _mm256_permute2x128_si256(low, high, 0x31);
}

static inline __m256i add_products(__m256i sum, __m256i w, const int8_t *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm256_dpbusd_avx_epi32(sum, w, _mm256_set1_epi32(four));
}

static inline __m256i add_stored(__m256i sum, const char *w, const int8_t *x)
{
    return add_products(sum, _mm256_load_si256((const __m256i *)(const void *)w), x);
}

#include "kernels/vectors/integers/product.h"

static void add(int32_t *sum, const uint8_t *w, const int8_t *x)
{
    for (int i = 0; i < MAX_VECTOR; i += VECTOR) {
        __m256i *const sums = (__m256i *)(void *)(sum + i);
        const __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)(w + 4 * i));
        const __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(x + 4 * i));
        _mm256_storeu_si256(sums, _mm256_dpbusd_avx_epi32(_mm256_loadu_si256(sums), a, b));
    }
}

const struct matrix_integer_kernels attnkit_avx2_vnni_matrix_integers = {
    .rows = FEW_MOST,
    .x_bytes = X_BLOCK,
    .words_bytes = WORDS_BLOCK,
    .round_rows = round_rows,
    .make_words = make_words,
    .product = product,
    .few_product = few_product,
    .add = add,
};
