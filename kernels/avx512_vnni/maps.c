/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear maps in integers, by VPDPBUSD of AVX512_VNNI: one instruction adds four products to each
 * of 16 sums. The first factor of the instruction is unsigned, so words have the bytes of the
 * matrix plus 128. To make up for the 128, the sums over a block of x begin with -128 times the sum
 * of the block's integers. No sum overflows. The loops are in kernels/vectors/integers/product.h.
 *
 * A register tile of `product` has 8 rows x 1 vector. 8 integer sums, 8 sums of binary32 and a
 * vector of words take 17 of 32 zmm. A step of 4 inputs takes a load of words and 8 VPDPBUSD. The
 * VPDPBUSD read and broadcast x. VPDPBUSD limits the speed. A tile of more vectors would save no
 * VPDPBUSD.
 */
#include "kernels/avx512/integers/bytes.h"

enum { STEP = 4, ROWS_OF_SUMS = 1 };
enum { ROWS = 8, WIDTH = 1, FEW_ROWS = 4, FEW_WIDTH = 2, ONE_WIDTH = 4, FEW_MOST = 4 };

typedef int8_t input;

static inline float round_block(const float *x, int8_t *integers, int32_t *beginning)
{
    __m512i n[2];
    const float scale = round_inputs(x, n);
    for (int i = 0; i < 2; i++)
        _mm_storeu_si128((__m128i *)(void *)(integers + i * VECTOR), _mm512_cvtepi32_epi8(n[i]));
    *beginning = -128 * _mm512_reduce_add_epi32(_mm512_add_epi32(n[0], n[1]));
    return scale;
}

static inline __m512i begin_sums(int32_t beginning)
{
    return _mm512_set1_epi32(beginning);
}

/* Makes the words of 4 inputs: bytes 4 o to 4 o + 3 are the 4 bytes of output o, each plus 128. */
static inline __attribute__((always_inline)) void make_step(const char *bytes,
                                                            __m512i w[TILE_VECTORS])
{
    const __m512i four_outputs =
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i four_inputs =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m512i by_output =
        _mm512_permutexvar_epi32(four_outputs, _mm512_loadu_si512((const void *)bytes));
    w[0] = _mm512_xor_si512(_mm512_shuffle_epi8(by_output, four_inputs), _mm512_set1_epi8(-128));
}

static inline __m512i add_products(__m512i sum, __m512i w, const int8_t *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(four));
}

static inline __m512i add_stored(__m512i sum, const char *w, const int8_t *x)
{
    return add_products(sum, _mm512_load_si512(w), x);
}

#include "kernels/vectors/integers/product.h"

static void add(int32_t *sum, const uint8_t *w, const int8_t *x)
{
    const __m512i sums = _mm512_loadu_si512(sum);
    _mm512_storeu_si512(sum,
                        _mm512_dpbusd_epi32(sums, _mm512_loadu_si512(w), _mm512_loadu_si512(x)));
}

const struct matrix_integer_kernels attnkit_avx512_vnni_matrix_integers = {
    .rows = FEW_MOST,
    .x_bytes = X_BLOCK,
    .words_bytes = WORDS_BLOCK,
    .round_rows = round_rows,
    .make_words = make_words,
    .product = product,
    .few_product = few_product,
    .add = add,
};
