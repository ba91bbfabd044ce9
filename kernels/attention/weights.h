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

#endif
