/* SPDX-License-Identifier: Apache-2.0
 *
 * Many heads with few rows and keys: scores with heads in the lanes, and the result of one head,
 * out = (chain over keys of fma(p, v, .)) / l + 0, with value columns in the lanes. Called by
 * heads.c of kernels/attention.
 *
 * Scores: 1 to 3 keys by 1 to 3 rows, at most 9 sums, 3 of q and 1 of k in 13 of 16 ymm; bound by
 * FMA. Result: 1 to 3 rows by up to 4 vectors of columns: at most 12 sums, 3 weights and 1 of v;
 * bound by the division.
 */
#include "kernels/avx2/avx2.h"
/* Defines attnkit_avx2_head_scores and attnkit_avx2_head_out. */
#include "kernels/vectors/heads.h"
