/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of AVX2 with the unit AVX-VNNI: the tiles of kernels/avx2, and tiles for integers.
 */
#include "kernels/avx2/avx2.h"

/* A build that leaves out both parts, integers and linear, has no work for the unit. */
#if !defined(ATTNKIT_WITHOUT_INTEGERS) || !defined(ATTNKIT_WITHOUT_LINEAR)
#undef KERNEL_TABLE
#define KERNEL_TABLE attnkit_avx2_vnni
#undef KERNEL_NAME
#define KERNEL_NAME "avx2+vnni"
#define KERNEL_INTEGERS attnkit_avx2_vnni_integers
#define KERNEL_MATRIX_INTEGERS attnkit_avx2_vnni_matrix_integers
#define KERNEL_GROUPED attnkit_avx2_grouped
#include "kernels/vectors/table.h"
#endif
