/* SPDX-License-Identifier: Apache-2.0
 *
 * o[c][lane] = fma(o[c][lane], rescale[lane], chain over keys of p[key][lane] * v[key][c]): lanes
 * are query rows, V is broadcast from memory. prefill.c calls it for every panel and block of keys,
 * after softmax.
 *
 * Tile of 6 columns x 4 vectors: 24 accumulators, 4 of p and 1 broadcast are 29 of 32 zmm. Per key
 * it has 24 FMA, bound by the FMA ports at 12 cycles, or 24 where a zmm takes two passes, and 10
 * loads, fewer than half a load per FMA: Ice Lake was seen to sustain 1.1 loads of a zmm per cycle.
 * The loop is unrolled by 4 keys to have few other instructions: a core that another thread shares
 * executes only 3 instructions a cycle. Narrower panels, the last ones of an item, have tiles of 8.
 */
#include "kernels/avx512/avx512.h"
#include "kernels/vectors/weighted_tile.h"
/* Defines attnkit_avx512_weighted_v. */
#include "kernels/vectors/weighted_v.h"
