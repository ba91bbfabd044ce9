/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of NEON with the unit DotProd: the tiles of kernels/neon, and tiles for integers.
 */
#include "kernels/neon/neon.h"

/* A build that leaves out both parts, integers and linear, has no work for the unit. */
#if !defined(ATTNKIT_WITHOUT_INTEGERS) || !defined(ATTNKIT_WITHOUT_LINEAR)
#include "kernels/neon/integers/trial.h"

static const struct byte_kernels bytes = {.dot = dot};

#undef KERNEL_TABLE
#define KERNEL_TABLE attnkit_neon_dotprod
#undef KERNEL_NAME
#define KERNEL_NAME "neon+dotprod"
#define KERNEL_BYTES &bytes
#define KERNEL_INTEGERS attnkit_neon_dotprod_integers
#define KERNEL_MATRIX_INTEGERS attnkit_neon_dotprod_matrix_integers
#define KERNEL_GROUPED attnkit_neon_grouped
#include "kernels/vectors/table.h"
#endif
