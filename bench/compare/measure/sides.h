/* SPDX-License-Identifier: Apache-2.0
 *
 * The two libraries in one process, and BASE once more, each loaded several times: where a copy
 * happens to lie in memory makes its code up to some percent faster or slower, which the copies
 * average. Whoever calls attnkit_attention and the like in this program (the rows of the benches
 * do) calls the copy that is in use, or while none is in use both sides in turn: forward.c has
 * these functions.
 */
#ifndef ATTNKIT_COMPARE_SIDES_H
#define ATTNKIT_COMPARE_SIDES_H

#include <attnkit.h>

#include <stdbool.h>

enum { BASE, HEAD, BASE_AGAIN, SIDES };
enum { COPIES = 8 };

/* What a library exports; NULL where it has no such function. The types are the header's. */
struct functions {
    __typeof__(attnkit_version) *version;
    __typeof__(attnkit_status_string) *status_string;
    __typeof__(attnkit_isa_count) *isa_count;
    __typeof__(attnkit_isa_get) *isa_get;
    __typeof__(attnkit_attention_workspace) *attention_workspace;
    __typeof__(attnkit_attention) *attention;
    __typeof__(attnkit_append) *append;
    __typeof__(attnkit_packed_size) *packed_size;
    __typeof__(attnkit_pack) *pack;
    __typeof__(attnkit_linear_workspace) *linear_workspace;
    __typeof__(attnkit_linear) *linear;
    __typeof__(attnkit_layer_packed_size) *layer_packed_size;
    __typeof__(attnkit_layer_pack) *layer_pack;
    __typeof__(attnkit_layer_workspace) *layer_workspace;
    __typeof__(attnkit_layer) *layer;
};

/* A library that is loaded. */
struct copy {
    void *handle;
    struct functions functions;
};

struct side {
    const char *name; /* "BASE" */
    struct copy copies[COPIES];
};

enum { SIDES_PROBLEM = 512 };

/* Loads the files, in the order in which `order` has the sides, and checks that they can be
 * compared: all symbols, one ABI, the one of the header this program was built with, and each with
 * code of its own. *busy is the side that is being loaded or called, or -1. False: problem says
 * why. */
bool sides_load(char *const files[SIDES][COPIES], const int order[SIDES], volatile int *busy,
                char problem[SIDES_PROBLEM]);

const char *side_name(int index);

/* Of its first copy; all have the same. */
const struct functions *side_functions(int index);

/* From now on calls go to this copy of this side. */
void sides_use(int index, int copy);

/* From now on calls go to BASE and then to HEAD: sizes are the larger ones. */
void sides_use_all(void);

/* Why a call of this side has failed, with its name; NULL: none has, since the last
 * sides_forgive(). */
const char *sides_failure(int index);
void sides_forgive(void);

#endif
