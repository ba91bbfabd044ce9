/* SPDX-License-Identifier: Apache-2.0
 *
 * Odd numbers for tests: NaN of either sign and any payload, quiet and signalling, and infinities
 * of either sign. Tests put them among other numbers of any type. A further function counts the NaN
 * of results, which must all have the same bits.
 */
#ifndef ATTNKIT_TEST_ODD_H
#define ATTNKIT_TEST_ODD_H

#include <stdint.h>

#include "kernels/kernels.h"

/* Returns the bits of an odd binary32 number. */
uint32_t odd_bits(uint64_t *random);

/* Replaces about one in `rate` of `count` elements by an odd number. If `rate` is 0, replaces none.
 * In rows of TYPE_Q8_0 it replaces scales, not elements. These rows must not be tiled, and count
 * must be a multiple of Q8_BLOCK. The function does not work for TYPE_I8, whose scales are binary32
 * numbers in another tensor. */
void odd_put(enum type type, void *elements, int64_t count, int64_t rate, uint64_t *random);

/* Returns how many of the elements of TYPE_F32, TYPE_F16 or TYPE_BF16 are NaN. Checks that each NaN
 * is 0x7fc00000 (binary32), 0x7e00 (binary16) or 0x7fc0 (bfloat16). */
int64_t odd_count(const char *what, enum type type, const void *elements, int64_t count);

#endif
