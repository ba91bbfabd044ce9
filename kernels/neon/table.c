/* SPDX-License-Identifier: Apache-2.0
 *
 * NEON (Advanced SIMD of AArch64, 32 registers of 4 floats). Tiles of 8 keys or value columns x 12
 * query rows; decode takes rows in panels of 4.
 */
#include "kernels/neon/neon.h"
#include "kernels/vectors/table.h"
