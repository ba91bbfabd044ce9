/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of a library that is not attnkit. `attnkit compare` can compare this library, too,
 * because the command calls a library only through the library's worker. -DLAYOUT=2 puts the
 * members of struct toy_args in another order, and adds a member.
 */
#ifndef ATTNKIT_TEST_TOY_H
#define ATTNKIT_TEST_TOY_H

#include <stddef.h>

/* Data that is set up once. Each call reads it. */
struct toy_cache {
    float values[4];
    float scale; /* scale of the values */
    const char *(*version_function)(
        void); /* NULL, or a function of the library that has set up this cache */
};

struct toy_args {
#if LAYOUT == 2
    float *out;
    const struct toy_cache *cache;
    char more[40];
    size_t count;
#else
    size_t count; /* number of elements of out */
    const struct toy_cache *cache;
    float *out;
#endif
};

const char *attnkit_version(void);

void toy_set_up(struct toy_cache *cache);

/* Makes the call. Returns NULL, or a message that says why the call is refused. */
const char *toy_call(const struct toy_args *args);

#endif
