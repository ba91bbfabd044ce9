/* SPDX-License-Identifier: Apache-2.0
 *
 * The angles of rotary position embedding (Su et al. 2021, arXiv:2104.09864): a frequency for each
 * pair of elements, and the cos and sin of its angle at a position.
 */
#ifndef ATTNKIT_ROPE_H
#define ATTNKIT_ROPE_H

#include <stdbool.h>
#include <stdint.h>

/* False in a build without SLEEF, which defines the bits; then the other two must not be called. */
bool attnkit_rope_has_angles(void);

/* frequency[i] = base^(-i / pairs), for base >= 1 */
void attnkit_rope_frequencies(double base, int64_t pairs, double *frequency);

/* cos and sin of position * frequency[i] */
void attnkit_rope_cos_sin(int64_t position, const double *frequency, int64_t pairs, float *cos,
                          float *sin);

#endif
