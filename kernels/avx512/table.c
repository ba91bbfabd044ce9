/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of AVX-512 F, BW, DQ and VL.
 */
#include "kernels/avx512/avx512.h"

#define KERNEL_INTEGERS attnkit_avx512_integers
#define KERNEL_MATRIX_INTEGERS attnkit_avx512_matrix_integers
#define KERNEL_GROUPED attnkit_avx512_grouped
#include "kernels/vectors/table.h"
