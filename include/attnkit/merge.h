/* SPDX-License-Identifier: Apache-2.0
 *
 * attnkit: one result of attention over several parts of the keys.
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
 * Attention over keys in several places: a prefix that sequences share and the keys of each, or
 * ranges of keys on several machines. Every part has its own attention call, with lse, over its own
 * keys; the merge makes of them what attention over all keys is. No key is in two parts. For each
 * row, in exact arithmetic and with sums over the parts:
 *
 *     out = sum_i w_i * out_i, w = softmax over i of lse_i       lse = log sum_i exp(lse_i)
 *
 * Every instruction set, number of threads, batch and stride gives the same bits. They depend on
 * the parts and on their order, and are not the bits of one call over all keys.
 *
 * What a part may be, row by row:
 *   - lse_i = -infinity: the row saw no key there. The part is absent, whatever out_i holds. A row
 *     of which all parts are absent, or that has none because parts is 0, is 0 with an lse of
 *     -infinity.
 *   - lse_i = NaN or +infinity: the row and its lse are NaN.
 *   - A NaN in the out_i of a part that is not absent makes that column NaN; an infinity makes it
 *     that infinity or NaN. Finite elements, however large, give a finite one.
 *   - |lse_i| beyond 2.35e38, where lse_i / ln 2 leaves binary32, counts as infinite. No attention
 *     of this library gives such a value.
 *
 * Accuracy. With u = 2^-24, n <= 1000 parts, A = sum_i w_i |out_i|, and |lse_i| < 2^23 where a part
 * is not absent, the merge itself is off from the above by at most
 *
 *     6 u A + n 2^-99 max |out_i| + 2^-149     in an element of out,
 *     u |lse| + (3 ln n + 7) u                 in lse,
 *
 * because it adds up in binary64; the out of one part comes back exactly. The errors of the parts
 * add to it: those of out_i with the weights w_i, and those of lse_i, if none is more than d, as
 * (e^(2 d) - 1) A in out and d in lse. An lse in binary32 has an error of u |lse| from its last
 * rounding alone: where it is 1000, weights are off by 1e-4.
 */

/* What a merge makes one result of. */
typedef struct attnkit_merge_args {
    size_t size; /* sizeof(attnkit_merge_args) */

    /* Shape, none of it negative. batch, q_heads or q_len of 0 are legal: nothing is done. */
    int64_t parts; /* of the keys */
    int64_t batch;
    int64_t q_heads;
    int64_t q_len;
    int64_t value_dim; /* at least 1 */

    /* part_outs[i] is the data of a tensor [batch][q_heads][q_len][value_dim], part_lses[i] of one
     * [batch][q_heads][q_len], for i < parts; both arrays may be NULL if parts is 0. All parts are
     * of ATTNKIT_F32 and lie alike, as part_out and part_lse say, whose data is NULL: their strides
     * may be 0, which repeats a row that was computed once for a batch, say. Parts may overlap each
     * other. */
    const float *const *part_outs;
    const float *const *part_lses;
    attnkit_tensor part_out;
    attnkit_tensor part_lse;

    /* The result has the shapes of a part; lse is optional. out is ATTNKIT_F32, F16 or BF16. They
     * overlap nothing, with one exception: out, if it is ATTNKIT_F32, may be one of part_outs, and
     * lse one of part_lses, at the same address with the same strides: that part is replaced. */
    attnkit_tensor out;
    attnkit_tensor lse;
} attnkit_merge_args;

/* Merges. exec may be NULL: one thread; no workspace is needed or looked at. Rows are shared out
 * evenly, to at most 1024 threads. On an error the outputs are as they were. Cost: reading every
 * part and writing out once; checks cost some 40 ns for each part. The caller's rounding and
 * flush-to-zero modes do not matter and are restored. */
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
