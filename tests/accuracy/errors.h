/* SPDX-License-Identifier: Apache-2.0
 *
 * Differences from the oracle, in three measures: E, the error in units of oracle_unit; own_e, the
 * error in units of oracle_element.unit; and the error divided by the derived bound.
 * tests/oracle/oracle.h defines the units and the bound. "Accuracy" in docs/semantics.md promises
 * an E of at most 4 on the distributions of settings.h, or an own_e of at most 4 if K and V are not
 * of binary32.
 */
#ifndef ATTNKIT_TEST_ERRORS_H
#define ATTNKIT_TEST_ERRORS_H

#include "dispatch/attention/attention.h"
#include "tests/oracle/oracle.h"

#define MOST_E 4.0

/* The worst errors of all comparisons. */
struct worst {
    double e, own_e;          /* E and own_e */
    double bound, lse_bound;  /* |error| / bound, of out and of the LSE */
    int64_t elements, beyond; /* beyond: elements whose E exceeds MOST_E */
};

struct worst worst_of(struct worst a, struct worst b);

/* Returns |error| / unit, or 0 if the error is 0. A ratio that is not finite counts as infinite. */
double ratio(double error, double unit);

/* Compares a row of a result with the oracle. `truth` and `out` have `count` elements. Fails the
 * test if the row sees no key and its lse is not -infinity. */
struct worst judge(const struct oracle_row *row, const struct oracle_element *truth, int64_t count,
                   const float *out, float lse);

/* Returns the call as the kernels take it. Fails the test if the library refuses the call. */
struct attention problem_of(const attnkit_attention_args *args);

/* Computes every row of a call by the scalar reference, and compares it with the oracle. */
struct worst judge_reference(const attnkit_attention_args *args);

/* Makes the public call on an instruction set. If isa is NULL, the library chooses the instruction
 * set. Fails the test if the library refuses the call. */
void run(const attnkit_attention_args *args, const char *isa);

/* Makes the public call, which must have one batch entry and one query head. Compares every row
 * with the oracle. out and lse of args must be dense and of binary32. */
struct worst judge_call(const attnkit_attention_args *args);

#endif
