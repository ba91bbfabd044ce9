/* SPDX-License-Identifier: Apache-2.0
 *
 * Every kind of mask: how a call is given one, and, without the library, which keys a row then
 * sees. Two kinds go together unless they take the same field of the arguments.
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

/* Adds numbers to scores where a call with a bias added 0. */
void kinds_vary_bias(struct call *c);

/* What it then adds to a score that is seen. */
double kinds_bias(const struct call *c, struct at at);

#endif
