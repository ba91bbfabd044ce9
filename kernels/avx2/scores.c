/* SPDX-License-Identifier: Apache-2.0
 *
 * s[key][lane] = chain over d of k[key][d] * q_t[d][lane]: lanes are query rows, K is broadcast
 * from memory. prefill.c calls it for every panel and block of keys.
 *
 * Tile of 4 keys x 3 vectors: 12 accumulators, 3 of q and 1 broadcast are 16 ymm. Per d it has 12
 * FMA, bound by the two FMA ports at 6 cycles, and 7 loads. A tile of 6 x 2 has 8 loads, and was 1
 * to 3 % slower. The loop is unrolled by 4 d to have few other instructions: a core that another
 * thread shares executes only 3 instructions a cycle. Narrower panels, the last ones of an item,
 * have 6 x 2 and 8 x 1.
 */
#include "kernels/avx2/avx2.h"
#include "kernels/vectors/scores_tile.h"
/* Defines attnkit_avx2_scores. */
#include "kernels/vectors/scores.h"
