/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of AVX-512 with the unit AVX512_BF16: the tiles of kernels/avx512, tiles for pairs and
 * for groups of products, and the tiles for integers of kernels/avx512_vnni. Every CPU with
 * AVX512_BF16 has AVX512_VNNI, too.
 */
#include "kernels/avx512_bf16/avx512_bf16.h"

static const struct pair_kernels pairs = {
    .add = attnkit_avx512_bf16_add,
    .add_one = attnkit_avx512_bf16_add_one,
    .pair = attnkit_avx512_bf16_pair,
    .scores = attnkit_avx512_bf16_scores,
#ifndef ATTNKIT_WITHOUT_LINEAR
    .pair_matrix = attnkit_avx512_bf16_pair_matrix,
    .product = attnkit_avx512_bf16_product,
#endif
};

/* Only AMD's CPUs choose this unit. On a Zen 4, decode_together of AVX-512 saves time only with
 * rows of TYPE_F32 and at least 3 heads. Decode from 8 KV heads with 16384 keys takes 0.8 to 0.9 of
 * the time with one head after the other (bench/README.md). */
static int together_rows(enum type type, int64_t dim, int heads, bool gaps)
{
    enum { LEAST_HEADS = 3 };
    return type == TYPE_F32 && heads >= LEAST_HEADS
               ? attnkit_avx512_together_rows(type, dim, heads, gaps)
               : 0;
}

#undef KERNEL_TOGETHER_ROWS
#define KERNEL_TOGETHER_ROWS together_rows
/* If K and V are in L3, decode_together takes up to 1.2 of the time with one head after the other.
 * 8 cores of a Zen 4 share 32 MiB of L3. Other data and other heads use L3, too. */
#define KERNEL_TOGETHER_BYTES (1 << 24)
#define KERNEL_PAIRS &pairs
#define KERNEL_INTEGERS attnkit_avx512_vnni_integers
#define KERNEL_MATRIX_INTEGERS attnkit_avx512_vnni_matrix_integers
#define KERNEL_GROUPED attnkit_avx512_bf16_grouped
#undef KERNEL
#define KERNEL(entry) attnkit_avx512_##entry
#include "kernels/vectors/table.h"
