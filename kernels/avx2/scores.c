/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of a panel: s[key][lane] = chain over d of k[key][d] * q_t[d][lane]. Lanes are query rows,
 * and K is broadcast from memory. prefill.c calls `scores` with one panel and one block of keys at
 * a time. weights.c and careful.c call `scores`, too. In careful.c the lanes are keys.
 *
 * A register tile has 4 keys x 3 vectors. 12 accumulators, 3 vectors of q and 1 broadcast take all
 * 16 ymm. Each d takes 12 FMA and 7 loads. The two FMA ports limit the speed: they take 6 cycles
 * for each d. A tile of 6 x 2 has 8 loads, and was 1 to 3 % slower. The loop is unrolled by 4
 * dimensions to save other instructions, because a thread executes only 3 instructions in a cycle
 * while the other thread of its core is busy. The last panel of an item may have only 2 vectors,
 * with tiles of 6 x 2, or 1 vector, with tiles of 8 x 1.
 */
#include "kernels/avx2/avx2.h"

static inline __attribute__((always_inline)) floats multiply_step(floats k, floats q, floats sum,
                                                                  const bool is_large)
{
    return multiply_add(k, q, sum, is_large);
}

#include "kernels/vectors/scores_tile.h"
/* Defines attnkit_avx2_scores. */
#include "kernels/vectors/scores.h"
