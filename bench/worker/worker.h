/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface between `attnkit compare` and a side. A worker is a loadable module. It is built
 * from the rows of the benches and the header of one revision, and linked with the shared library
 * of this revision. The worker makes all calls, so this interface does not depend on attnkit's
 * structs. Revisions with different structs can therefore be compared.
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
    void *out; /* the result, which has out_bytes bytes */
    size_t out_bytes;
    bool out_is_floats; /* the elements of out are binary32 */
    const char *note;   /* how the call differs from the point's call; NULL if the calls are
                         * equal */
};

/* The source of a call's memory. */
struct worker_memory {
    /* Allocates a block, aligned to a cache line. Returns NULL if there is no memory. */
    void *(*take)(void *owner, size_t bytes);
    /* Frees a block. Returns false if the block did not come from `take`. */
    bool (*give_back)(void *owner, void *block);
    void *owner;
    /* The number of the call, which goes up from call to call. A call takes copy number *turn
     * modulo the number of copies of K and V, or of a matrix. There are several copies if no call
     * may find its copy in a cache. */
    const uint64_t *turn;
};

/* The user of a call, whom the worker notifies when the call is set up. */
struct worker_user {
    void (*ready)(void *self, const struct worker_call *call);
    void *self;
};

struct worker {
    int32_t version; /* WORKER_VERSION; the first field in all versions; later fields may change */

    const char *(*library_version)(void); /* attnkit_version of the library */

    /* Returns name `index` in the list of the instruction sets that the library can use here, from
     * worst to best. Returns NULL after the last name. */
    const char *(*isa)(int32_t index);

    /* Sets up the call of a point, on one thread, in the given memory. Then calls the user's
     * `ready`, which may make the call any number of times before it returns. Finally frees the
     * memory. `point` is the name of a row of the benches, or of an append, such as
     * append/f16/avx2/B1_H8_L128_D128. With /warm at the end of the name, there is only one copy of
     * the operands, and the operands may be in a cache. Sets `problem` to the reason why the call
     * cannot be set up or has failed, or to "". */
    void (*run)(const char *point, const struct worker_memory *memory,
                const struct worker_user *user, char problem[WORKER_PROBLEM]);
};

/* The only symbol that a worker exports. */
__attribute__((visibility("default"))) extern const struct worker attnkit_worker;

#endif
