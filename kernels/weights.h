/* SPDX-License-Identifier: Apache-2.0
 *
 * The weights of query rows as a result of their own, or their scores.
 */
#ifndef ATTNKIT_WEIGHTS_H
#define ATTNKIT_WEIGHTS_H

#include "keys.h"

/* Bytes of scratch, none where no weights are asked for. */
size_t attnkit_weights_scratch(const struct attention *a);

/* Writes those of `rows` rows, at most MAX_LANES, of which this is the first, and whose softmax has
 * come to these states. `scratch` is aligned to a float. */
void attnkit_weights_out(const struct attention *a, const struct kernels *kernels,
                         struct place first, int rows, const float *row_max, const float *row_sum,
                         char *scratch);

#endif
