/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of AVX2, FMA and F16C.
 */
#include "kernels/avx2/avx2.h"

#define KERNEL_INTEGERS attnkit_avx2_integers
#define KERNEL_MATRIX_INTEGERS attnkit_avx2_matrix_integers
#define KERNEL_GROUPED attnkit_avx2_grouped
#include "kernels/vectors/table.h"
