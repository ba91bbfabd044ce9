/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of AVX-512 with the unit AMX: the tiles of kernels/avx512, tiles for groups of products
 * of bf16, and the tiles for integers of kernels/avx512_vnni. Every CPU with AMX has AVX512_VNNI
 * and AVX512_BF16, too. The tiles for pairs of kernels/avx512_bf16 are not in this table, because
 * Intel's CPUs with AMX do fewer multiply-adds in a second by VDPBF16PS than by FMA
 * (dispatch/cpu/cpu_x86.c).
 */
#include "kernels/avx512/avx512.h"

#undef KERNEL_TABLE
#define KERNEL_TABLE attnkit_avx512_amx
#undef KERNEL_NAME
#define KERNEL_NAME "avx512+amx"
#define KERNEL_INTEGERS attnkit_avx512_vnni_integers
#define KERNEL_MATRIX_INTEGERS attnkit_avx512_vnni_matrix_integers
#define KERNEL_GROUPED attnkit_avx512_amx_grouped
#include "kernels/vectors/table.h"
