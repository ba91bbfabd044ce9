/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles for many heads with few rows and keys. head_scores computes scores with heads in the lanes.
 * head_out computes the result of one head, out = (chain over keys of p * v) / divisor + 0, with
 * value columns in the lanes. p and divisor are fields of struct head_weights. heads.c of
 * kernels/attention calls both functions.
 *
 * A tile of scores has 1 to 3 keys x 1 to 3 rows. At most 9 sums, 3 vectors of q and 1 of k take 13
 * of 32 registers. fmla limits the speed. A tile of the result has 1 to 3 rows x 1 or 4 vectors of
 * columns, with at most 12 sums. The division limits the speed.
 */
#include "kernels/neon/neon.h"
/* Defines attnkit_neon_head_scores and attnkit_neon_head_out. */
#include "kernels/vectors/heads.h"
