/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of AVX2, FMA and F16C.
 */
#include "kernels/avx2/avx2.h"
#include "kernels/vectors/table.h"
