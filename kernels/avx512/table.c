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
    .exp2 = attnkit_avx512_exp2,
    .widen = attnkit_avx512_widen,
    .unpack = attnkit_avx512_unpack,
    .widen_tile = attnkit_avx512_widen_tile,
    .narrow = attnkit_avx512_narrow,
#ifndef ATTNKIT_WITHOUT_APPEND
    .rotate = attnkit_avx512_rotate,
#endif
    .fill_pointers = attnkit_avx512_fill_pointers,
    .nonzero = attnkit_avx512_nonzero,
    .same_ids = attnkit_avx512_same_ids,
    .unmasked = attnkit_avx512_unmasked,
    .bias_line = attnkit_avx512_bias_line,
    .keep_line = attnkit_avx512_keep_line,
    .compact_line = attnkit_avx512_compact_line,
    .spread_line = attnkit_avx512_spread_line,
    .mean = attnkit_avx512_mean,
    .pack_q = attnkit_avx512_pack_q,
    .scores = attnkit_avx512_scores,
    .softmax = attnkit_avx512_softmax,
    .adjust = attnkit_avx512_adjust,
    .multiply = attnkit_avx512_multiply,
    .weighted_v = attnkit_avx512_weighted_v,
    .begin_total = attnkit_avx512_begin_total,
    .fold = attnkit_avx512_fold,
    .finish = attnkit_avx512_finish,
    .finish_total = attnkit_avx512_finish_total,
    .decode = attnkit_avx512_decode,
    .decode_finish = attnkit_avx512_decode_finish,
    .fold_row = attnkit_avx512_fold_row,
    .quotient_row = attnkit_avx512_quotient_row,
    .head_scores = attnkit_avx512_head_scores,
    .head_out = attnkit_avx512_head_out,
#ifndef ATTNKIT_WITHOUT_LINEAR
    .matrix_rows = MATRIX_ROWS,
    .f32_matrix_rows = F32_MATRIX_ROWS,
    .widen_matrix = attnkit_avx512_widen_matrix,
    .product = attnkit_avx512_product,
    .few_product = attnkit_avx512_few_product,
#endif
};
