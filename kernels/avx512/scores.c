/* SPDX-License-Identifier: Apache-2.0
 *
 * s[key][lane] = chain over d of k[key][d] * q_t[d][lane]: lanes are query rows, K is broadcast
 * from memory. prefill.c calls it for every panel and block of keys.
 *
 * Tile of 6 keys x 4 vectors: 24 accumulators, 4 of q and 1 broadcast are 29 of 32 zmm. Per d it
 * has 24 FMA, bound by the FMA ports at 12 cycles, or 24 where a zmm takes two passes, and 10
 * loads, fewer than half a load per FMA: Ice Lake was seen to sustain 1.1 loads of a zmm per cycle.
 * A round of 4 d has one more instruction: a core that another thread shares executes only 3
 * instructions a cycle. A tile of 7 x 4 or 12 x 2 with broadcasts in the FMA has fewer
 * instructions, and was 10 % slower. Narrower panels, the last ones of an item, have tiles of 8.
 */
#include "kernels/avx512/avx512.h"
#include "kernels/vectors/scores_tile.h"
/* Defines attnkit_avx512_scores. */
#include "kernels/vectors/scores.h"
