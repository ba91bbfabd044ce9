/* SPDX-License-Identifier: Apache-2.0
 *
 * The angles of rotary position embedding (Su et al. 2021, arXiv:2104.09864): a frequency for each
 * pair of elements, and the cos and sin of the pair's angle at a position.
 */
#ifndef ATTNKIT_ROPE_H
#define ATTNKIT_ROPE_H

#include <stdint.h>

/* Computes frequency[i] = base^(-i / pairs), for a finite base >= 1. */
void attnkit_rope_frequencies(double base, int64_t pairs, double *frequency);

/* Computes cos and sin of position * frequency[i], for a position >= 0. */
void attnkit_rope_cos_sin(int64_t position, const double *frequency, int64_t pairs, float *cos,
                          float *sin);

#endif
