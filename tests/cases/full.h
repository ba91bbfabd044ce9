/* SPDX-License-Identifier: Apache-2.0
 *
 * Four calls that together have nearly every option of a call. None of the four calls has the flag
 * ATTNKIT_SCALE_GIVEN, ATTNKIT_INTEGERS or ATTNKIT_BF16_PRODUCTS. The second call reads and writes
 * states. The third call has only q, k, v and out. The keys of the fourth call lie in cells.
 */
#ifndef ATTNKIT_TEST_FULL_H
#define ATTNKIT_TEST_FULL_H

#include "tests/support/call.h"

enum { FULL_KEYS = 150, FULL_DIM = 32, FULL_HEADS = 4, FULL_CALLS = 4 };

/* Makes a call with most options. The call has no states and no cells. K and V are bytes with
 * scales and lie in pages, and K is in tiles. The query rows are packed: two sequences have `rows`
 * rows together. The keys are not packed. */
struct call *full_call_new(int64_t rows);

/* Functions that make the four calls: full_call_new; packed keys with states; only q, k, v and out;
 * keys in cells. */
extern struct call *(*const full_calls[FULL_CALLS])(int64_t rows);

/* Makes a copy of the call, with outputs of its own. The copy has the inputs of c, so c must
 * outlive the copy. */
struct call *full_beside(const struct call *c);

/* full_clear fills all outputs with a pattern. full_same returns whether all outputs of c and d
 * have the same bits. */
void full_clear(const struct call *c);
bool full_same(const struct call *c, const struct call *d);

#endif
