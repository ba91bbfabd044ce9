/* SPDX-License-Identifier: Apache-2.0
 *
 * Weighted V of a panel: o[c][lane] = fma(o[c][lane], rescale[lane], chain over keys of
 * p[key][lane] * v[key][c]). Lanes are query rows, and V is broadcast from memory. prefill.c calls
 * weighted_v with one panel and one block of keys at a time, after softmax.
 *
 * A register tile has 6 columns x 4 vectors. 24 accumulators, 4 vectors of p and 1 broadcast take
 * 29 of 32 zmm. Each key takes 24 FMA and 10 loads. The FMA ports limit the speed: they take 12
 * cycles for each key, or 24 cycles on a CPU where a zmm takes two passes. The tile has this shape
 * so that there are fewer than half as many loads as FMA: Ice Lake was seen to sustain only 1.1
 * loads of a zmm in a cycle. The loop is unrolled by 4 keys to save other instructions, because a
 * thread executes only 3 instructions in a cycle while the other thread of its core is busy. The
 * last panel of an item may have only 1 to 3 vectors, with tiles of 8 columns.
 */
#include "kernels/avx512/avx512.h"
#include "kernels/vectors/weighted_tile.h"
/* Defines attnkit_avx512_weighted_v. */
#include "kernels/vectors/weighted_v.h"
