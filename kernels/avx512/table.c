/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of AVX-512 F, BW, DQ and VL.
 */
#include "kernels/avx512/avx512.h"

const struct kernels attnkit_avx512 = {
    .name = "avx512",
    .vector = VECTOR,
    .lanes = LANES,
    .decode_rows = DECODE_ROWS,
    .f32_decode_rows = F32_DECODE_ROWS,
    .matrix_rows = MATRIX_ROWS,
    .f32_matrix_rows = F32_MATRIX_ROWS,
    .exp2 = attnkit_avx512_exp2,
    .widen = attnkit_avx512_widen,
    .widen_tile = attnkit_avx512_widen_tile,
    .narrow = attnkit_avx512_narrow,
    .rotate = attnkit_avx512_rotate,
    .nonzero = attnkit_avx512_nonzero,
    .pack_q = attnkit_avx512_pack_q,
    .scores = attnkit_avx512_scores,
    .softmax = attnkit_avx512_softmax,
    .adjust = attnkit_avx512_adjust,
    .weighted_v = attnkit_avx512_weighted_v,
    .fold = attnkit_avx512_fold,
    .finish = attnkit_avx512_finish,
    .decode = attnkit_avx512_decode,
    .decode_fold = attnkit_avx512_decode_fold,
    .decode_finish = attnkit_avx512_decode_finish,
    .head_scores = attnkit_avx512_head_scores,
    .head_out = attnkit_avx512_head_out,
    .widen_matrix = attnkit_avx512_widen_matrix,
    .product = attnkit_avx512_product,
    .few_product = attnkit_avx512_few_product,
};
