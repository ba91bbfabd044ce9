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

/* Only AMD's CPUs choose this unit. On a Zen 4, calls of 8 KV heads would take 1.01 to 1.07 of
 * their time with decode_together of AVX-512 (bench/README.md). */
#undef KERNEL_TOGETHER
#define KERNEL_PAIRS &pairs
#define KERNEL_INTEGERS attnkit_avx512_vnni_integers
#define KERNEL_MATRIX_INTEGERS attnkit_avx512_vnni_matrix_integers
#define KERNEL_GROUPED attnkit_avx512_bf16_grouped
#undef KERNEL
#define KERNEL(entry) attnkit_avx512_##entry
#include "kernels/vectors/table.h"
