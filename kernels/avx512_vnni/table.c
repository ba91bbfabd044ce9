/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of AVX-512 with the unit AVX512_VNNI: the tiles of kernels/avx512, and tiles for
 * integers.
 */
#include "kernels/avx512/avx512.h"

#undef KERNEL_TABLE
#define KERNEL_TABLE attnkit_avx512_vnni
#undef KERNEL_NAME
#define KERNEL_NAME "avx512+vnni"
#define KERNEL_INTEGERS attnkit_avx512_vnni_integers
#define KERNEL_MATRIX_INTEGERS attnkit_avx512_vnni_matrix_integers
#define KERNEL_GROUPED attnkit_avx512_grouped
#include "kernels/vectors/table.h"
