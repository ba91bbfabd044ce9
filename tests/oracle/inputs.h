/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the arguments of attention for one query row, as attnkit.h defines the arguments. From the
 * library, this code takes only the types and sizes of elements (kernels.h). The functions give
 * rows of q, k and v as binary32, and blocks of k and v as integers. Other functions say whether
 * the row sees a key, and whether dropout drops a key. The bias of a key and its distance from the
 * row have functions, too.
 */
#ifndef ATTNKIT_TEST_INPUTS_H
#define ATTNKIT_TEST_INPUTS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "tests/support/groups.h"

/* A query row and the keys of its batch entry. */
struct query {
    const attnkit_attention_args *args;
    struct groups groups; /* groups of options of args; a group that args lacks is empty */
    int64_t batch, head, kv_head;
    /* The indices {outer, head, row} lead to the row in tensors of query rows. outer is the batch
     * entry. If the query rows are packed, outer is 0, and row is an index among all rows. */
    int64_t outer, row;
    int64_t keys;        /* number of keys of the entry, seen or not */
    int64_t value_dim;   /* value_dim of args, or head_dim if value_dim of args is 0 */
    __int128_t position; /* the row's position; it means nothing with ATTNKIT_ALIGN_NONE */
};

/* Returns the query for row `row` of query head `head` of batch entry `batch`. */
struct query query_of(const attnkit_attention_args *args, int64_t batch, int64_t head, int64_t row);

/* Each of these functions writes a row as binary32: head_dim elements of q or k, or value_dim
 * elements of v. */
void query_q(const struct query *q, float *out);
void query_k(const struct query *q, int64_t key, float *out);
void query_v(const struct query *q, int64_t key, float *out);

/* Q8_BLOCK elements of ATTNKIT_I8 or ATTNKIT_Q8_0: integers times `scale`. */
struct integer_block {
    float scale;
    int8_t integers[Q8_BLOCK];
};

/* Return block `block` of a key's row of K or V. */
struct integer_block query_k_block(const struct query *q, int64_t key, int64_t block);
struct integer_block query_v_block(const struct query *q, int64_t key, int64_t block);

bool query_sees(const struct query *q, int64_t key);

/* Returns the bias of a key, without the factor of bias_scales. Returns 0 if the call has no bias,
 * and -infinity if the bias has no column for the key. */
float query_bias(const struct query *q, int64_t key);

/* Returns the key's index minus the row's position. ALiBi multiplies this distance by its slope. */
__int128_t query_distance(const struct query *q, int64_t key);

bool query_drops(const struct query *q, int64_t key);

#endif
