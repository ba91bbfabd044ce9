/* SPDX-License-Identifier: Apache-2.0
 *
 * Many heads with few rows and keys: scores with heads in the lanes, and the result of one head,
 * out = (chain over keys of fma(p, v, .)) / l + 0, with value columns in the lanes. Called by
 * heads.c of kernels/attention.
 *
 * Scores: 1 to 4 keys by 1 to 4 rows, at most 16 sums, 4 of q and 1 of k in 21 of 32 zmm; bound by
 * FMA. Result: 1 to 4 rows by up to 4 vectors of columns; bound by the division.
 */
#include "kernels/avx512/avx512.h"
/* Defines attnkit_avx512_head_scores and attnkit_avx512_head_out. */
#include "kernels/vectors/heads.h"
