/* SPDX-License-Identifier: Apache-2.0
 *
 * The oracle: attention by the textbook (maximum, exp, sum) in extended precision, with every mask
 * and score mod. The oracle reads the public arguments with its own code (inputs.h), and shares no
 * arithmetic with the library. For every element of a row, the oracle gives the true value and the
 * sum of the magnitudes of its terms. The oracle also gives the largest error that a result in the
 * canonical order of kernels/README.md can have.
 *
 * Inputs may be anything as long as no score of finite inputs leaves the range of binary32. A value
 * that is NaN or infinite has a bound of 0. Infinite elements of out are the exception: the result
 * may be any infinity, or NaN, and the bound is infinite. Calls with states or with cells are not
 * supported.
 */
#ifndef ATTNKIT_TEST_ORACLE_H
#define ATTNKIT_TEST_ORACLE_H

#include "attnkit.h"

struct oracle_element {
    double value;
    double magnitude; /* A = sum_j w_j |v_j| */
    double unit;      /* unit of accuracy if |V| differs from key to key; see oracle_unit */
    double bound;     /* the largest possible |result - value|; may be infinite; see oracle.c */
};

struct oracle_row {
    int64_t keys;           /* keys that the row sees */
    double score_magnitude; /* S = sum_j w_j (|scale| sum_d |q_d k_jd| + |biases|) */
    double lse, lse_bound;
};

/* Computes row `row` of query head `head` of batch entry `batch`. `out` has value_dim elements, not
 * yet rounded to the type of args->out. `weights` is NULL or has kv_len elements, of the kind that
 * args ask for. Each key takes 0.2 us plus 4 ns for each element of head_dim and value_dim. Each
 * key also takes 160 bytes of memory, plus 4 bytes for each element of value_dim. */
struct oracle_row oracle_row(const attnkit_attention_args *args, int64_t batch, int64_t head,
                             int64_t row, struct oracle_element *out,
                             struct oracle_element *weights);

/* Returns the unit of accuracy, u A (1 + S) + (keys + 4) 2^-149, with u = 2^-24. The unit is about
 * the error of one rounding of every score, weight and product, and of one rounding of every
 * subnormal product. This unit assumes that |V| is about the same for all keys. If the key with
 * nearly all the weight has a V of 0, the element comes from the other keys. Then S hardly counts
 * the scores of these keys. The unit also leaves out the error that arises because very small
 * weights count as 0. element->unit covers both cases. It has u (A + max(A S, sum_j w_j |v_j| S_j))
 * in place of u A (1 + S), and adds the largest possible error by weights that count as 0. S_j is
 * the factor of w_j in the sum S = sum_j w_j S_j of struct oracle_row. No unit counts the errors of
 * ATTNKIT_INTEGERS. */
double oracle_unit(const struct oracle_row *row, const struct oracle_element *element);

/* Returns a result's error divided by its bound. The bound includes the rounding to `type`. The
 * quotient is at most 1 unless the result is wrong. If the true value is NaN or infinite, but the
 * result is not, the quotient is infinite. */
double oracle_judge(const struct oracle_element *truth, attnkit_type type, double result);

#endif
