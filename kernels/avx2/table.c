/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of AVX2, FMA and F16C.
 */
#include "kernels/avx2/avx2.h"

const struct kernels attnkit_avx2 = {
    .name = "avx2",
    .vector = VECTOR,
    .lanes = LANES,
    .decode_rows = DECODE_ROWS,
    .f32_decode_rows = F32_DECODE_ROWS,
    .matrix_rows = MATRIX_ROWS,
    .f32_matrix_rows = F32_MATRIX_ROWS,
    .exp2 = attnkit_avx2_exp2,
    .widen = attnkit_avx2_widen,
    .widen_tile = attnkit_avx2_widen_tile,
    .narrow = attnkit_avx2_narrow,
    .rotate = attnkit_avx2_rotate,
    .nonzero = attnkit_avx2_nonzero,
    .pack_q = attnkit_avx2_pack_q,
    .scores = attnkit_avx2_scores,
    .softmax = attnkit_avx2_softmax,
    .adjust = attnkit_avx2_adjust,
    .weighted_v = attnkit_avx2_weighted_v,
    .fold = attnkit_avx2_fold,
    .finish = attnkit_avx2_finish,
    .decode = attnkit_avx2_decode,
    .decode_fold = attnkit_avx2_decode_fold,
    .decode_finish = attnkit_avx2_decode_finish,
    .head_scores = attnkit_avx2_head_scores,
    .head_out = attnkit_avx2_head_out,
    .widen_matrix = attnkit_avx2_widen_matrix,
    .product = attnkit_avx2_product,
    .few_product = attnkit_avx2_few_product,
};
