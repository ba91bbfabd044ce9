/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear maps of bf16, in pairs of inputs. The loops are in kernels/avx512/product.h.
 *
 * A register tile has 8 rows x 3 tiles of the matrix. 24 accumulators, 3 vectors of w and 1
 * broadcast take 28 of 32 zmm. Each pair of inputs takes 24 VDPBF16PS and 19 loads: 3 of w, 4 of x
 * for the rows whose pair stays in a register, and 12 in the VDPBF16PS of the other 4 rows. The
 * VDPBF16PS limit the speed: a Zen 4 starts one VDPBF16PS in a cycle.
 */
#include "kernels/avx512_bf16/avx512_bf16.h"
/* Defines attnkit_avx512_bf16_product. */
#include "kernels/avx512/product.h"
