/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of a panel of bf16, in pairs of dimensions. The loops are in kernels/vectors/scores.h and
 * scores_tile.h.
 *
 * A register tile has 6 keys x 4 vectors. 24 accumulators, 4 vectors of q and 1 broadcast take 29
 * of 32 zmm. Each pair of dimensions takes 24 VDPBF16PS and 10 loads. The VDPBF16PS limit the
 * speed: a Zen 4 starts one VDPBF16PS in a cycle. It starts FMAs of a zmm at the same rate, but an
 * FMA multiplies one dimension instead of two.
 */
#include "kernels/avx512_bf16/avx512_bf16.h"
#include "kernels/vectors/scores_tile.h"
/* Defines attnkit_avx512_bf16_scores. */
#include "kernels/vectors/scores.h"
