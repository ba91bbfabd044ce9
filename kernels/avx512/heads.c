/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles for many heads with few rows and keys. head_scores computes scores with heads in the lanes.
 * head_out computes the result of one head, out = (chain over keys of p * v) / divisor + 0, with
 * value columns in the lanes. p and divisor are fields of struct head_weights. heads.c of
 * kernels/attention calls both functions.
 *
 * A tile of scores has 1 to 4 keys x 1 to 4 rows. At most 16 sums, 4 vectors of q and 1 vector of k
 * take 21 of 32 zmm. FMA limits the speed. A tile of the result has 1 to 4 rows x up to 4 vectors
 * of columns. The division limits the speed.
 */
#include "kernels/avx512/avx512.h"
/* Defines attnkit_avx512_head_scores and attnkit_avx512_head_out. */
#include "kernels/vectors/heads.h"
