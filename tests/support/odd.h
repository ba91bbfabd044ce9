/* SPDX-License-Identifier: Apache-2.0
 *
 * Odd numbers for tests: NaN of either sign and any payload, quiet and signalling, and infinities
 * of either sign. odd_put puts odd numbers among other numbers. odd_count counts the NaN of
 * results, and checks that all NaN of a type have the same bits.
 */
#ifndef ATTNKIT_TEST_ODD_H
#define ATTNKIT_TEST_ODD_H

#include <stdint.h>

#include "kernels/kernels.h"

/* Returns the bits of an odd binary32 number. */
uint32_t odd_bits(uint64_t *random);

/* Replaces about one in `rate` of `count` elements by an odd number. If `rate` is 0, replaces no
 * element. The type is TYPE_F32, TYPE_F16, TYPE_BF16 or TYPE_Q8_0. In rows of TYPE_Q8_0, the
 * function replaces scales, not elements. These rows must not be tiled, and `count` must be a
 * multiple of Q8_BLOCK. */
void odd_put(enum type type, void *elements, int64_t count, int64_t rate, uint64_t *random);

/* Returns how many of the elements of TYPE_F32, TYPE_F16 or TYPE_BF16 are NaN. Fails the test if a
 * NaN is not 0x7fc00000 (binary32), 0x7e00 (binary16) or 0x7fc0 (bfloat16). `what` names the
 * elements in the message of the failure. */
int64_t odd_count(const char *what, enum type type, const void *elements, int64_t count);

#endif
