/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns the scores of a block into weights: s becomes 2^(t - M'), with t = s * scale_log2 and M' =
 * max(M, ceil(max t)). M is row_max of the state. Where a lane does not see the key, t is -inf.
 * `softmax` also sets row_max to M', updates row_sum, and sets rescale to 2^(M - M'). Lanes are
 * query rows, so that no operation is horizontal. prefill.c calls `softmax` between scores and
 * weighted V. heads.c and weights.c call `softmax`, too.
 *
 * The first pass over the keys multiplies the scores by scale_log2, masks them and takes the
 * maximum of each lane, for all vectors of lanes at once. The second pass computes the powers for
 * one vector of lanes after the other, at most SIDE_BY_SIDE keys at a time. exp2 limits the speed
 * of the second pass.
 */
#include "kernels/avx2/avx2.h"

/* Defines attnkit_avx2_softmax. */
#include "kernels/vectors/softmax/panel.h"
