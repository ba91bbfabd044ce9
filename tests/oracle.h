/* SPDX-License-Identifier: Apache-2.0
 *
 * The oracle: attention by the textbook (maximum, exp, sum) in extended precision, straight from
 * the public arguments. It has its own idea of where rows lie and what they see, and shares no
 * arithmetic with the library. For every element of a row it gives what is true, what that is made
 * of, and how far a result in the canonical order of kernels/README.md can be off at most.
 *
 * Inputs are finite, and no score and no sum leaves the range of binary32.
 */
#ifndef ATTNKIT_TEST_ORACLE_H
#define ATTNKIT_TEST_ORACLE_H

#include "attnkit.h"

struct oracle_element {
    double value;
    double magnitude; /* A = sum_j w_j |v_j| */
    double bound;     /* |result - value| is never more; derived in oracle.c */
};

struct oracle_row {
    int64_t keys;           /* that the row sees; without any, values are 0 and lse is -infinity */
    double score_magnitude; /* S = sum_j w_j |scale| sum_d |q_d k_jd| */
    double lse, lse_bound;
};

/* Row `row` of query head `head` of batch entry `batch`; `out` has value_dim elements. Takes about
 * 5 ns for each key and each of head_dim + 2 value_dim. */
struct oracle_row oracle_row(const attnkit_attention_args *args, int64_t batch, int64_t head,
                             int64_t row, struct oracle_element *out);

/* The unit in which accuracy is measured, u A (1 + S) + (keys + 4) 2^-149: about one rounding of
 * every score, weight and product, and one of every subnormal product. */
double oracle_unit(const struct oracle_row *row, const struct oracle_element *element);

#endif
