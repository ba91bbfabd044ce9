/* SPDX-License-Identifier: Apache-2.0
 *
 * What `attnkit compare` knows of a side. A worker is a loadable module that is built from the rows
 * of the benches and the header of one revision, and linked with the shared library of that
 * revision. It makes the calls: nothing here depends on attnkit's structs, so that two revisions
 * whose structs differ can be compared.
 */
#ifndef ATTNKIT_WORKER_H
#define ATTNKIT_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WORKER_VERSION = 1, WORKER_PROBLEM = 512 };

/* A call that is set up. */
struct worker_call {
    void (*make)(void *arg);
    void *arg;
    void *out; /* its result, of out_bytes */
    size_t out_bytes;
    bool out_is_floats; /* else its elements are of some other type */
    const char *note;   /* how it is not the call that was asked for; NULL: it is */
};

/* Where the memory of a call comes from. */
struct worker_memory {
    /* From a cache line on; NULL: there is none. */
    void *(*take)(void *owner, size_t bytes);
    /* False: the block is not from here. */
    bool (*give_back)(void *owner, void *block);
    void *owner;
    /* Goes up from call to call: of K, V or a matrix that is there several times, so that no call
     * finds it in a cache, a call takes the copy of this number, modulo their count. */
    const uint64_t *turn;
};

/* What is told that a call is set up. */
struct worker_user {
    void (*ready)(void *self, const struct worker_call *call);
    void *self;
};

struct worker {
    int32_t version; /* WORKER_VERSION: first in all versions, the rest is as in this one */

    const char *(*library_version)(void); /* the library's attnkit_version itself */

    /* The instruction sets that the library can use here, from worst to best; NULL after them. */
    const char *(*isa)(int32_t index);

    /* Sets up the call of a point, on one thread, in the memory it is given; tells the user, who
     * makes the call as often as he likes before he returns; and gives the memory back. The point
     * is named after its row in the benches, such as append/f16/avx2/B1_H8_L128_D128; with /warm
     * behind it what the call reads is there once and may be in a cache. problem says why the call
     * cannot be set up, or has failed; else it is "". */
    void (*run)(const char *point, const struct worker_memory *memory,
                const struct worker_user *user, char problem[WORKER_PROBLEM]);
};

/* The one symbol of a worker. */
__attribute__((visibility("default"))) extern const struct worker attnkit_worker;

#endif
