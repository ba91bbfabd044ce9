/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of a panel: s[key][lane] = chain over d of k[key][d] * q_t[d][lane]. Lanes are query rows,
 * and K is broadcast from memory. prefill.c calls `scores` with one panel and one block of keys at
 * a time. weights.c and careful.c call `scores`, too. In careful.c the lanes are keys.
 *
 * A register tile has 6 keys x 4 vectors. 24 accumulators, 4 vectors of q and 1 broadcast take 29
 * of 32 zmm. Each d takes 24 FMA and 10 loads. The FMA ports limit the speed: they take 12 cycles
 * for each d, or 24 cycles on a CPU where a zmm takes two passes. The tile has this shape so that
 * there are fewer than half as many loads as FMA: Ice Lake was seen to sustain only 1.1 loads of a
 * zmm in a cycle. The loop is unrolled by 4 d to save other instructions, because a thread executes
 * only 3 instructions in a cycle while the other thread of its core is busy. A tile of 7 x 4 or 12
 * x 2 with broadcasts in the FMA has fewer instructions, but was 10 % slower. The last panel of an
 * item may have only 1 to 3 vectors, with tiles of 8 keys.
 */
#include "kernels/avx512/avx512.h"

static inline __attribute__((always_inline)) floats multiply_step(floats k, floats q, floats sum,
                                                                  const bool is_large)
{
    return multiply_add(k, q, sum, is_large);
}

#include "kernels/vectors/scores_tile.h"
/* Defines attnkit_avx512_scores. */
#include "kernels/vectors/scores.h"
