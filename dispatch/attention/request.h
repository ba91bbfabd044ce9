/* SPDX-License-Identifier: Apache-2.0
 *
 * The structs of an attention call as this version of the library knows them: the caller's own
 * structs if they have the size of this version, else copies. If the caller has not given a group
 * of options, the pointer to this group points to a struct whose fields are all 0. The pointer to
 * the window is NULL instead.
 */
#ifndef ATTNKIT_REQUEST_H
#define ATTNKIT_REQUEST_H

#include "attnkit.h"

struct request {
    const attnkit_attention_args *core;
    const attnkit_kv_storage *storage;
    const attnkit_pages *pages;
    const attnkit_visibility *visibility;
    const attnkit_window *window; /* NULL: no window */
    const attnkit_score_mods *scores;
    const attnkit_states *states;
    const attnkit_weights_out *weights;

    /* Copies of the caller's structs, used if their sizes differ from the sizes in this version. */
    struct {
        attnkit_attention_args core;
        attnkit_kv_storage storage;
        attnkit_pages pages;
        attnkit_visibility visibility;
        attnkit_window window;
        attnkit_score_mods scores;
        attnkit_states states;
        attnkit_weights_out weights;
    } copy;
};

attnkit_status attnkit_read_request(const attnkit_attention_args *args, struct request *r,
                                    char *message);

/* The structs of a planned run: the caller's own structs or copies, as in struct request. */
struct run_request {
    const attnkit_attention_data *core;
    const attnkit_attention_group_data *groups;
    struct {
        attnkit_attention_data core;
        attnkit_attention_group_data groups;
    } copy;
};

attnkit_status attnkit_read_run_request(const attnkit_attention_data *data, struct run_request *r,
                                        char *message);

#endif
