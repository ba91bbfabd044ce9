/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear maps in integers, by VPMADDWD: bytes of the matrix are widened to 16 bits, the integers of
 * x are stored in 16 bits, and two products of an output are added at once.
 * kernels/vectors/integers/product.h has the loops.
 *
 * A register tile for many rows has 3 rows x 4 vectors. 12 integer sums, a broadcast and a product
 * take 14 of 16 ymm. So the binary32 sums, to which the integer sums are added, are in L1. A step
 * of 2 inputs takes 12 VPMADDWD, 12 additions and 3 broadcasts. The number of instructions limits
 * the speed. VPMADDUBSW would need as many instructions. One of its factors is unsigned, so VPSIGNB
 * would have to move the signs to the other factor. The 16-bit sums of VPMADDUBSW have room for two
 * products only, so VPMADDWD would have to widen them before each addition.
 */
#include "kernels/avx2/integers/bytes.h"

enum { STEP = 2, ROWS_OF_SUMS = 1 };
enum { ROWS = 3, WIDTH = 4, FEW_ROWS = 4, FEW_WIDTH = 2, ONE_WIDTH = 4, FEW_MOST = 4 };

typedef int16_t input;
static inline float round_block(const float *x, int16_t *integers, int32_t *beginning)
{
    __m256i n[PARTS];
    const float scale = round_inputs(x, n);
    for (int i = 0; i < PARTS; i += 2) {
        const __m256i packed = _mm256_packs_epi32(n[i], n[i + 1]);
        _mm256_storeu_si256((__m256i *)(void *)(integers + i * VECTOR),
                            _mm256_permute4x64_epi64(packed, 0xd8));
    }
    *beginning = 0;
    return scale;
}

static inline __m256i begin_sums(int32_t beginning)
{
    (void)beginning; /* always 0 */
    return _mm256_setzero_si256();
}

static inline __attribute__((always_inline)) void make_step(const char *bytes,
                                                            __m256i w[TILE_VECTORS])
{
    const __m128i even = _mm_loadu_si128((const __m128i *)(const void *)bytes);
    const __m128i odd = _mm_loadu_si128((const __m128i *)(const void *)(bytes + TILE_KEYS));
    w[0] = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(even, odd));
    w[1] = _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(even, odd));
}

static inline __m256i broadcast_pair(const int16_t *x)
{
    int32_t pair;
    memcpy(&pair, x, sizeof pair);
    return _mm256_set1_epi32(pair);
}

static inline __m256i add_products(__m256i sum, __m256i w, const int16_t *x)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(w, broadcast_pair(x)));
}

/* VPMADDWD reads the words from memory. Without the assembly, the compiler would load the words
 * into registers by separate instructions, and there are too few registers. */
static inline __m256i add_stored(__m256i sum, const char *w, const int16_t *x)
{
    __m256i products;
    __asm__("vpmaddwd %2, %1, %0"
            : "=x"(products)
            : "x"(broadcast_pair(x)), "m"(*(const __m256i *)(const void *)w));
    return _mm256_add_epi32(sum, products);
}

#include "kernels/vectors/integers/product.h"

const struct matrix_integer_kernels attnkit_avx2_matrix_integers = {
    .rows = FEW_MOST,
    .x_bytes = X_BLOCK,
    .words_bytes = WORDS_BLOCK,
    .round_rows = round_rows,
    .make_words = make_words,
    .product = product,
    .few_product = few_product,
};
