/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of NEON with the unit I8MM: the tiles of kernels/neon, and tiles for integers. Prefill
 * with integers has the tiles of kernels/neon_dotprod. The unit runs only on CPUs that have
 * DotProd, too (dispatch/cpu/isa.c).
 */
#include "kernels/neon/neon.h"

/* A build that leaves out both parts, integers and linear, has no work for the unit. */
#if !defined(ATTNKIT_WITHOUT_INTEGERS) || !defined(ATTNKIT_WITHOUT_LINEAR)
#include "kernels/neon/integers/trial.h"

static void multiply(int32_t *sum, const int8_t *a, const int8_t *b)
{
    for (int i = 0; i < MAX_VECTOR; i += VECTOR) {
        const int8x16_t x = vld1q_s8(a + 4 * i), y = vld1q_s8(b + 4 * i);
        vst1q_s32(sum + i, vmmlaq_s32(vld1q_s32(sum + i), x, y));
    }
}

static const struct byte_kernels bytes = {.dot = dot, .multiply = multiply};

#undef KERNEL_TABLE
#define KERNEL_TABLE attnkit_neon_i8mm
#undef KERNEL_NAME
#define KERNEL_NAME "neon+i8mm"
#define KERNEL_BYTES &bytes
#define KERNEL_INTEGERS attnkit_neon_i8mm_integers
#define KERNEL_MATRIX_INTEGERS attnkit_neon_i8mm_matrix_integers
#define KERNEL_GROUPED attnkit_neon_grouped
#include "kernels/vectors/table.h"
#endif
