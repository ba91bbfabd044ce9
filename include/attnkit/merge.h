/* SPDX-License-Identifier: Apache-2.0
 *
 * attnkit: merging results of attention over several parts of the keys.
 */
#include "attnkit.h" /* which includes this file in its turn */

#ifndef ATTNKIT_PUBLIC_MERGE_H
#define ATTNKIT_PUBLIC_MERGE_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
 * Merging.
 *
 * Merging is for keys in several places. For example, several sequences share the keys of a prefix,
 * and each sequence has further keys of its own. Or each of several machines holds a range of the
 * keys. Every part has its own attention call, with lse, over its own keys. The merge combines the
 * results of the parts into the result of attention over all keys. No key may be in two parts. For
 * each row, in exact arithmetic and with sums over the parts:
 *
 *     out = sum_i w_i * out_i, w = softmax over i of lse_i       lse = log sum_i exp(lse_i)
 *
 * Every instruction set, number of threads, batch and stride gives the same bits. The bits depend
 * on the parts and their order, and may differ from the bits of one call over all keys.
 *
 * Special values in a row of a part:
 *   - lse_i = -infinity: the row saw no key of the part. The part is absent, whatever out_i holds.
 *     If all parts of a row are absent, or if parts is 0, the row is 0 and its lse is -infinity.
 *   - lse_i = NaN or +infinity: the row and its lse are NaN.
 *   - The following sentences are about parts that are not absent. If out_i has a NaN in a column,
 *     out is NaN in this column. If out_i has an infinity in a column, out has this infinity or NaN
 *     in this column. Finite elements, however large, give a finite element in binary32. Only the
 *     rounding to ATTNKIT_F16 or ATTNKIT_BF16 can overflow.
 *   - |lse_i| beyond 2.35e38, where lse_i / ln 2 overflows binary32, counts as infinite. No
 *     attention of this library gives an lse that large.
 *
 * Accuracy. Let u = 2^-24, and let n <= 1000 be the number of parts. Let A = sum_i w_i |out_i|. Let
 * |lse_i| < 2^23 for each part that is not absent. Let out be in ATTNKIT_F32. Then the error of the
 * merge itself is at most
 *
 *     6 u A + n 2^-99 max |out_i| + 2^-149     in an element of out,
 *     u |lse| + (3 ln n + 7) u                 in lse,
 *
 * because the merge adds up in binary64. With out in ATTNKIT_F32, a merge of one part with a finite
 * lse returns the numbers of the part's out exactly, with +0 in place of -0. The errors of the
 * parts themselves are added to this error. An error of out_i is multiplied by w_i. If the error of
 * every lse_i is at most d, the errors of the lse_i add at most (e^(2 d) - 1) A to the error of
 * out, and d to the error of lse. Rounding an lse to binary32 makes an error of up to u |lse|. If
 * lse is 1000, this error alone makes a relative error of about 1e-4 in the weights.
 */

/* The arguments of a merge. */
typedef struct attnkit_merge_args {
    size_t size; /* sizeof(attnkit_merge_args) */

    /* The shape: no number is negative. If batch, q_heads or q_len is 0, the call does nothing. */
    int64_t parts; /* number of parts */
    int64_t batch;
    int64_t q_heads;
    int64_t q_len;
    int64_t value_dim; /* at least 1 */

    /* For i < parts, part_outs[i] is the data of a tensor [batch][q_heads][q_len][value_dim], and
     * part_lses[i] the data of a tensor [batch][q_heads][q_len]. Both arrays may be NULL if parts
     * is 0. All parts are ATTNKIT_F32 and have the strides of part_out and part_lse, whose data is
     * NULL. A stride of 0 repeats a row, for example a row of a prefix that was computed once for a
     * whole batch. Parts may overlap each other. */
    const float *const *part_outs;
    const float *const *part_lses;
    attnkit_tensor part_out;
    attnkit_tensor part_lse;

    /* out and lse have the shapes of a part; lse is optional. out is ATTNKIT_F32, F16 or BF16. out
     * and lse overlap nothing, with two exceptions: out may be one of part_outs if out is
     * ATTNKIT_F32, and lse may be one of part_lses. The address and the strides of the output and
     * of the part must then be the same, and the output replaces the part. */
    attnkit_tensor out;
    attnkit_tensor lse;
} attnkit_merge_args;

/* Merges the parts. exec may be NULL: one thread. The call needs no workspace and ignores
 * exec.workspace. The rows are divided evenly among the threads, but at most 1024 threads get rows.
 * After an error the outputs are unchanged.
 * Cost: every part is read once, and the result is written once. Checks take some 40 ns for each
 * part. The caller's rounding and flush-to-zero modes do not matter and are restored. */
ATTNKIT_API attnkit_status attnkit_merge(const attnkit_merge_args *args, const attnkit_exec *exec,
                                         char *message);

static inline void attnkit_merge_args_init(attnkit_merge_args *args)
{
    memset(args, 0, sizeof *args);
    args->size = sizeof *args;
}

#ifdef __cplusplus
}
#endif

#endif /* ATTNKIT_PUBLIC_MERGE_H */
