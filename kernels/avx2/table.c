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
    .exp2 = attnkit_avx2_exp2,
    .widen = attnkit_avx2_widen,
    .unpack = attnkit_avx2_unpack,
    .widen_tile = attnkit_avx2_widen_tile,
    .narrow = attnkit_avx2_narrow,
#ifndef ATTNKIT_WITHOUT_APPEND
    .rotate = attnkit_avx2_rotate,
#endif
    .fill_pointers = attnkit_avx2_fill_pointers,
    .nonzero = attnkit_avx2_nonzero,
    .same_ids = attnkit_avx2_same_ids,
    .unmasked = attnkit_avx2_unmasked,
    .bias_line = attnkit_avx2_bias_line,
    .keep_line = attnkit_avx2_keep_line,
    .compact_line = attnkit_avx2_compact_line,
    .spread_line = attnkit_avx2_spread_line,
    .mean = attnkit_avx2_mean,
    .pack_q = attnkit_avx2_pack_q,
    .scores = attnkit_avx2_scores,
    .softmax = attnkit_avx2_softmax,
    .adjust = attnkit_avx2_adjust,
    .multiply = attnkit_avx2_multiply,
    .weighted_v = attnkit_avx2_weighted_v,
    .begin_total = attnkit_avx2_begin_total,
    .fold = attnkit_avx2_fold,
    .finish = attnkit_avx2_finish,
    .finish_total = attnkit_avx2_finish_total,
    .decode = attnkit_avx2_decode,
    .decode_finish = attnkit_avx2_decode_finish,
    .fold_row = attnkit_avx2_fold_row,
    .quotient_row = attnkit_avx2_quotient_row,
    .head_scores = attnkit_avx2_head_scores,
    .head_out = attnkit_avx2_head_out,
#ifndef ATTNKIT_WITHOUT_LINEAR
    .matrix_rows = MATRIX_ROWS,
    .f32_matrix_rows = F32_MATRIX_ROWS,
    .widen_matrix = attnkit_avx2_widen_matrix,
    .product = attnkit_avx2_product,
    .few_product = attnkit_avx2_few_product,
#endif
};
