/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of NEON (Advanced SIMD of AArch64, 32 registers of 4 floats). A register tile of
 * prefill has 8 keys or value columns x 12 query rows. Decode takes rows in panels of 4.
 */
#include "kernels/neon/neon.h"

#define KERNEL_INTEGERS attnkit_neon_integers
#define KERNEL_MATRIX_INTEGERS attnkit_neon_matrix_integers
#define KERNEL_GROUPED attnkit_neon_grouped
#include "kernels/vectors/table.h"
