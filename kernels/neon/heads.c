/* SPDX-License-Identifier: Apache-2.0
 *
 * Many heads with few rows and keys: scores with heads in the lanes, and the result of one head,
 * out = (chain over keys of fma(p, v, .)) / l + 0, with value columns in the lanes. Called by
 * heads.c of kernels/attention.
 *
 * Scores: 1 to 3 keys by 1 to 3 rows, at most 9 sums, 3 of q and 1 of k in 13 of 32 registers;
 * bound by fmla. Result: 1 to 3 rows by up to 4 vectors of columns: at most 12 sums, with V read
 * from memory; bound by the division.
 */
#include "kernels/neon/neon.h"
/* Defines attnkit_neon_head_scores and attnkit_neon_head_out. */
#include "kernels/vectors/heads.h"
