/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of AVX-512 F, BW, DQ and VL.
 */
#include "kernels/avx512/avx512.h"
#include "kernels/vectors/table.h"
