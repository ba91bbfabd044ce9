/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of a unit, or of an instruction set other than scalar. The table.c of the instruction
 * set or unit includes this file. The table has the shapes of the tiles, which are constants in the
 * header of the instruction set, and functions that entries.h declares. table.c defines the names
 * of other tables: KERNEL_INTEGERS for attention in integers, KERNEL_MATRIX_INTEGERS for linear
 * maps in integers, KERNEL_GROUPED for groups of products. table.c may define KERNEL_PAIRS and
 * KERNEL_BYTES, the entries pairs and bytes. If one of these two names is not defined, its entry is
 * NULL. The header of an instruction set that has decode_together defines KERNEL_TOGETHER_ROWS, the
 * entry together_rows. Without this name, decode_together and together_rows are NULL. The table.c
 * of a unit may redefine this name, and may define KERNEL_TOGETHER_BYTES, the entry together_bytes.
 */
#ifndef ATTNKIT_TABLE_H
#define ATTNKIT_TABLE_H

#include "kernels/vectors/entries.h"

extern const struct integer_kernels KERNEL_INTEGERS;
extern const struct matrix_integer_kernels KERNEL_MATRIX_INTEGERS;
extern const struct grouped_kernels KERNEL_GROUPED;

#ifndef KERNEL_TOGETHER_BYTES
#define KERNEL_TOGETHER_BYTES (1 << 21) /* L2 of most CPUs has at most 2 MiB */
#endif

const struct kernels KERNEL_TABLE = {
    .name = KERNEL_NAME,
    .vector = VECTOR,
    .lanes = LANES,
    .decode_rows = DECODE_ROWS,
    .f32_decode_rows = F32_DECODE_ROWS,
    .far_rest_rows = FAR_REST_ROWS,
    .f32_far_rest_rows = F32_FAR_REST_ROWS,
    .near_rest_bytes = NEAR_REST_BYTES,
    .copies_rows = COPIES_ROWS,
    .exp2 = KERNEL(exp2),
    .widen = KERNEL(widen),
    .unpack = KERNEL(unpack),
    .widen_tile = KERNEL(widen_tile),
    .narrow = KERNEL(narrow),
#ifndef ATTNKIT_WITHOUT_APPEND
    .rotate = KERNEL(rotate),
#endif
    .fill_pointers = KERNEL(fill_pointers),
    .nonzero = KERNEL(nonzero),
    .same_ids = KERNEL(same_ids),
    .unmasked = KERNEL(unmasked),
    .bias_line = KERNEL(bias_line),
    .keep_line = KERNEL(keep_line),
    .compact_line = KERNEL(compact_line),
    .spread_line = KERNEL(spread_line),
    .mean = KERNEL(mean),
    .pack_q = KERNEL(pack_q),
    .scores = KERNEL(scores),
    .softmax = KERNEL(softmax),
    .adjust = KERNEL(adjust),
    .multiply = KERNEL(multiply),
    .weighted_v = KERNEL(weighted_v),
    .begin_total = KERNEL(begin_total),
    .fold = KERNEL(fold),
    .finish = KERNEL(finish),
    .finish_total = KERNEL(finish_total),
    .decode = KERNEL(decode),
    .decode_finish = KERNEL(decode_finish),
    .fold_row = KERNEL(fold_row),
    .quotient_row = KERNEL(quotient_row),
    .head_scores = KERNEL(head_scores),
    .head_out = KERNEL(head_out),
#ifndef ATTNKIT_WITHOUT_LINEAR
    .matrix_rows = MATRIX_ROWS,
    .f32_matrix_rows = F32_MATRIX_ROWS,
    .widen_matrix = KERNEL(widen_matrix),
    .product = KERNEL(product),
    .few_product = KERNEL(few_product),
    .matrix_integers = &KERNEL_MATRIX_INTEGERS,
#endif
#ifdef KERNEL_PAIRS
    .pairs = KERNEL_PAIRS,
#endif
#ifdef KERNEL_BYTES
    .bytes = KERNEL_BYTES,
#endif
#ifndef ATTNKIT_WITHOUT_INTEGERS
    .integers = &KERNEL_INTEGERS,
#endif
#ifndef ATTNKIT_WITHOUT_PRODUCTS
    .grouped = &KERNEL_GROUPED,
#endif
#ifdef KERNEL_TOGETHER_ROWS
    .decode_together = KERNEL(decode_together),
    .together_rows = KERNEL_TOGETHER_ROWS,
    .together_bytes = KERNEL_TOGETHER_BYTES,
#endif
};

#endif
