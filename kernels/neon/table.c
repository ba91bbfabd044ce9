/* SPDX-License-Identifier: Apache-2.0
 *
 * NEON (Advanced SIMD of AArch64, 32 registers of 4 floats). Tiles of 8 keys or value columns x 12
 * query rows; decode takes rows in panels of 4.
 */
#include "kernels/neon/neon.h"

const struct kernels attnkit_neon = {
    .name = "neon",
    .vector = VECTOR,
    .lanes = LANES,
    .decode_rows = 8,
    .f32_decode_rows = 8,
    .exp2 = attnkit_neon_exp2,
    .widen = attnkit_neon_widen,
    .unpack = attnkit_neon_unpack,
    .widen_tile = attnkit_neon_widen_tile,
    .narrow = attnkit_neon_narrow,
#ifndef ATTNKIT_WITHOUT_APPEND
    .rotate = attnkit_neon_rotate,
#endif
    .fill_pointers = attnkit_neon_fill_pointers,
    .nonzero = attnkit_neon_nonzero,
    .same_ids = attnkit_neon_same_ids,
    .unmasked = attnkit_neon_unmasked,
    .bias_line = attnkit_neon_bias_line,
    .keep_line = attnkit_neon_keep_line,
    .compact_line = attnkit_neon_compact_line,
    .spread_line = attnkit_neon_spread_line,
    .mean = attnkit_neon_mean,
    .pack_q = attnkit_neon_pack_q,
    .scores = attnkit_neon_scores,
    .softmax = attnkit_neon_softmax,
    .adjust = attnkit_neon_adjust,
    .multiply = attnkit_neon_multiply,
    .weighted_v = attnkit_neon_weighted_v,
    .begin_total = attnkit_neon_begin_total,
    .fold = attnkit_neon_fold,
    .finish = attnkit_neon_finish,
    .finish_total = attnkit_neon_finish_total,
    .decode = attnkit_neon_decode,
    .decode_finish = attnkit_neon_decode_finish,
    .fold_row = attnkit_neon_fold_row,
    .quotient_row = attnkit_neon_quotient_row,
    .head_scores = attnkit_neon_head_scores,
    .head_out = attnkit_neon_head_out,
#ifndef ATTNKIT_WITHOUT_LINEAR
    .matrix_rows = MATRIX_ROWS,
    .f32_matrix_rows = MATRIX_ROWS,
    .widen_matrix = attnkit_neon_widen_matrix,
    .product = attnkit_neon_product,
    .few_product = attnkit_neon_few_product,
#endif
};
