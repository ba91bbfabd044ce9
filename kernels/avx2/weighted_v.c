/* SPDX-License-Identifier: Apache-2.0
 *
 * Weighted V of a panel: o[c][lane] = fma(o[c][lane], rescale[lane], chain over keys of
 * p[key][lane] * v[key][c]). Lanes are query rows, and V is broadcast from memory. prefill.c calls
 * weighted_v with one panel and one block of keys at a time, after softmax.
 *
 * A register tile has 4 columns x 3 vectors. 12 accumulators, 3 vectors of p and 1 broadcast take
 * all 16 ymm. Each key takes 12 FMA and 7 loads. The two FMA ports limit the speed: they take 6
 * cycles for each key. The loop is unrolled by 4 keys to save other instructions, because a thread
 * executes only 3 instructions in a cycle while the other thread of its core is busy. The last
 * panel of an item may have only 2 vectors, with tiles of 6 x 2, or 1 vector, with tiles of 8 x 1.
 */
#include "kernels/avx2/avx2.h"
#include "kernels/vectors/weighted_tile.h"
/* Defines attnkit_avx2_weighted_v. */
#include "kernels/vectors/weighted_v.h"
