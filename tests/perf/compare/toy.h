/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of a library that is not attnkit. `attnkit compare` can compare it, because it
 * knows a library only by its worker. -DLAYOUT=2 puts the members of the struct in another order.
 */
#ifndef ATTNKIT_TEST_TOY_H
#define ATTNKIT_TEST_TOY_H

#include <stddef.h>

/* Data that is set up once and read by each call. */
struct toy_cache {
    float values[4];
    float scale; /* scale of the values */
    const char *(*version_function)(
        void); /* NULL, or a function of the library that has set it up */
};

struct toy_args {
#if LAYOUT == 2
    float *out;
    const struct toy_cache *cache;
    char more[40];
    size_t count;
#else
    size_t count; /* elements of out */
    const struct toy_cache *cache;
    float *out;
#endif
};

const char *attnkit_version(void);

void toy_set_up(struct toy_cache *cache);

/* Makes the call. Returns NULL, or a text that says why the call is refused. */
const char *toy_call(const struct toy_args *args);

#endif
