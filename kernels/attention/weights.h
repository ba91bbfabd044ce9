/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the weights of query rows, or their scores, as a result of the call.
 */
#ifndef ATTNKIT_WEIGHTS_H
#define ATTNKIT_WEIGHTS_H

#include "kernels/attention/keys.h"

/* Returns the number of bytes of scratch, which is 0 if the call asks for no weights. */
size_t attnkit_weights_scratch(const struct attention *a);

/* Writes the weights of `rows` consecutive query rows of a KV head, from the row at `first` on.
 * `rows` is at most MAX_LANES. row_max and row_sum are the final maxima and sums of the softmax of
 * these rows. `scratch` is aligned to a float. */
void attnkit_write_weights(const struct attention *a, const struct kernels *kernels,
                           struct place first, int rows, const float *row_max, const float *row_sum,
                           char *scratch);

/* Weights that a call has written, which are to be averaged over heads. */
struct mean_weights {
    int64_t q_len, heads, keys;
    const char *weights;
    struct strides stride;     /* bytes */
    char *out;                 /* `keys` floats for each row */
    struct strides out_stride; /* bytes; the result has no heads */
};

/* Computes rows first .. end - 1 of the result. Row i belongs to query row i % q_len of batch entry
 * i / q_len. Each element is the sum of the weights of all heads, in the order of the heads,
 * divided by the number of heads.
 */
void attnkit_average_weights(const struct mean_weights *m, const struct kernels *kernels,
                             int64_t first, int64_t end);

#endif
