/* SPDX-License-Identifier: Apache-2.0
 *
 * Kinds of visibility: causal, windows, lengths, segment ids, masks, and biases that are -infinity
 * for hidden keys. A kind has a function that adds the kind to a call, and a function that tells,
 * without the library, whether a row sees a key. Two kinds can be combined unless they use the same
 * field of the arguments.
 */
#ifndef ATTNKIT_TEST_KINDS_H
#define ATTNKIT_TEST_KINDS_H

#include "tests/support/call.h"

enum { KINDS = 15 };

struct kind {
    const char *name;
    enum { CAUSAL, WINDOW, LENGTHS, SEGMENTS, BYTES, BITS, BIAS } field;
    void (*set)(struct call *c);
    bool (*sees)(const struct call *c, struct at at);
};

extern const struct kind kinds[KINDS];

/* Replaces the zeros of a bias by a mix of 0, 2 and -2. */
void kinds_vary_bias(struct call *c);

/* Returns the number that the bias adds to the score of a key that the row sees. Returns 0 without
 * a bias. */
double kinds_bias(const struct call *c, struct at at);

#endif
