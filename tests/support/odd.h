/* SPDX-License-Identifier: Apache-2.0
 *
 * Odd numbers for tests: NaN of either sign and any payload, quiet and signalling, and infinities
 * of either sign, put among other numbers of any type; and the NaN of results, which have one face.
 */
#ifndef ATTNKIT_TEST_ODD_H
#define ATTNKIT_TEST_ODD_H

#include <stdint.h>

#include "kernels/kernels.h"

/* The bits of such a binary32. */
uint32_t odd_bits(uint64_t *random);

/* Puts odd numbers in the place of one in `rate` of `count` elements, none where that is 0; of
 * TYPE_Q8_0 of one in `rate` scales of rows without tiles, where count is a multiple of Q8_BLOCK.
 * Not of TYPE_I8, whose scales are binary32. */
void odd_put(enum type type, void *elements, int64_t count, int64_t rate, uint64_t *random);

/* How many of them are NaN; not of bytes. Fails the test where one is not 0x7fc00000, or 0x7e00 or
 * 0x7fc0 of 16 bits. */
int64_t odd_count(const char *what, enum type type, const void *elements, int64_t count);

#endif
