/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that together have everything that a call can have: one with all options that can be
 * combined, one from state to state, one whose keys lie in cells, and for comparison one without
 * options.
 */
#ifndef ATTNKIT_TEST_FULL_H
#define ATTNKIT_TEST_FULL_H

#include "tests/support/call.h"

enum { FULL_KEYS = 150, FULL_DIM = 32, FULL_HEADS = 4, FULL_CALLS = 4 };

/* Makes a call with everything but states and packed keys: K and V in pages of bytes with scales, K
 * in tiles, and two packed sequences that have `rows` rows together. */
struct call *full_call_new(int64_t rows);

/* full_call_new; packed keys from state to state; q, k, v and out alone; and keys in cells. */
extern struct call *(*const full_calls[FULL_CALLS])(int64_t rows);

/* Makes the same call with its own outputs. */
struct call *full_beside(const struct call *c);

/* Fills all outputs with a pattern; compares all outputs. */
void full_clear(const struct call *c);
bool full_same(const struct call *c, const struct call *d);

#endif
