/* SPDX-License-Identifier: Apache-2.0
 *
 * The weights of query rows as a result of their own, or their scores.
 */
#ifndef ATTNKIT_WEIGHTS_H
#define ATTNKIT_WEIGHTS_H

#include "kernels/attention/keys.h"

/* Bytes of scratch, none where no weights are asked for. */
size_t attnkit_weights_scratch(const struct attention *a);

/* Writes those of `rows` rows, at most MAX_LANES, of which this is the first, and whose softmax has
 * come to these states. `scratch` is aligned to a float. */
void attnkit_write_weights(const struct attention *a, const struct kernels *kernels,
                           struct place first, int rows, const float *row_max, const float *row_sum,
                           char *scratch);

/* Weights that a call has written, to be averaged over heads. */
struct mean_weights {
    int64_t q_len, heads, keys;
    const char *weights;
    struct strides stride;     /* bytes */
    char *out;                 /* a line of `keys` for each row */
    struct strides out_stride; /* bytes, without heads */
};

/* Rows first .. end - 1 of all entries: the sum over heads in their order, by the number of them.
 */
void attnkit_average_weights(const struct mean_weights *m, const struct kernels *kernels,
                             int64_t first, int64_t end);

#endif
