/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear maps in integers, by VPMADDWD of AVX-512 BW: bytes of the matrix are widened to 16 bits,
 * the integers of x are stored in 16 bits, and two products of an output are added at once.
 * kernels/vectors/integers/product.h has the loops.
 *
 * A register tile for many rows has 4 rows x 2 vectors. 8 integer sums, 8 sums of binary32, 2
 * vectors of words, a broadcast and a product take 20 of 32 zmm. A step of 2 inputs takes 8
 * VPMADDWD, 8 additions and 6 loads. VPMADDWD and additions limit the speed. Larger tiles were 7 %
 * slower on a Zen 4.
 */
#include "kernels/avx512/integers/bytes.h"

enum { STEP = 2, ROWS_OF_SUMS = 1 };
enum { ROWS = 4, WIDTH = 2, FEW_ROWS = 4, FEW_WIDTH = 2, ONE_WIDTH = 4, FEW_MOST = 4 };

typedef int16_t input;

static inline float round_block(const float *x, int16_t *integers, int32_t *beginning)
{
    __m512i n[2];
    const float scale = round_inputs(x, n);
    for (int i = 0; i < 2; i++)
        _mm256_storeu_si256((__m256i *)(void *)(integers + i * VECTOR),
                            _mm512_cvtepi32_epi16(n[i]));
    *beginning = 0;
    return scale;
}

static inline __m512i begin_sums(int32_t beginning)
{
    (void)beginning; /* always 0 */
    return _mm512_setzero_si512();
}

static inline __attribute__((always_inline)) void make_step(const char *bytes,
                                                            __m512i w[TILE_VECTORS])
{
    const __m128i even = _mm_loadu_si128((const __m128i *)(const void *)bytes);
    const __m128i odd = _mm_loadu_si128((const __m128i *)(const void *)(bytes + TILE_KEYS));
    const __m256i low = _mm256_castsi128_si256(_mm_unpacklo_epi8(even, odd));
    w[0] = _mm512_cvtepi8_epi16(_mm256_inserti128_si256(low, _mm_unpackhi_epi8(even, odd), 1));
}

static inline __m512i broadcast_pair(const int16_t *x)
{
    int32_t pair;
    memcpy(&pair, x, sizeof pair);
    return _mm512_set1_epi32(pair);
}

static inline __m512i add_products(__m512i sum, __m512i w, const int16_t *x)
{
    return _mm512_add_epi32(sum, _mm512_madd_epi16(w, broadcast_pair(x)));
}

static inline __m512i add_stored(__m512i sum, const char *w, const int16_t *x)
{
    return add_products(sum, _mm512_load_si512(w), x);
}

#include "kernels/vectors/integers/product.h"

const struct matrix_integer_kernels attnkit_avx512_matrix_integers = {
    .rows = FEW_MOST,
    .x_bytes = X_BLOCK,
    .words_bytes = WORDS_BLOCK,
    .round_rows = round_rows,
    .make_words = make_words,
    .product = product,
    .few_product = few_product,
};
