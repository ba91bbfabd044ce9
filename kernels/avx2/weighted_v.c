/* SPDX-License-Identifier: Apache-2.0
 *
 * o[c][lane] = fma(o[c][lane], rescale[lane], chain over keys of p[key][lane] * v[key][c]): lanes
 * are query rows, V is broadcast from memory. prefill.c calls it for every panel and block of keys,
 * after softmax.
 *
 * Tile of 4 columns x 3 vectors: 12 accumulators, 3 of p and 1 broadcast are 16 ymm. Per key it has
 * 12 FMA, bound by the two FMA ports at 6 cycles, and 7 loads. The loop is unrolled by 4 keys to
 * have few other instructions: a core that another thread shares executes only 3 instructions a
 * cycle. Narrower panels, the last ones of an item, have 6 x 2 and 8 x 1.
 */
#include "kernels/avx2/avx2.h"
#include "kernels/vectors/weighted_tile.h"
/* Defines attnkit_avx2_weighted_v. */
#include "kernels/vectors/weighted_v.h"
