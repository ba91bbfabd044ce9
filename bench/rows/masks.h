/* SPDX-License-Identifier: Apache-2.0
 *
 * Which keys the rows of an attention see, and what happens to scores and weights: the groups of a
 * row's call, and their memory.
 */
#ifndef ATTNKIT_MASKS_H
#define ATTNKIT_MASKS_H

#include "bench/rows/rows.h"

/* What a shape's lengths and extra need, and the groups that point to it. */
struct masks {
    int64_t *kv_lens;
    unsigned char *mask; /* of the last three one, or none */
    float *numbers;
    uint64_t *seeds;
    attnkit_visibility visibility;
    attnkit_window window;
    attnkit_score_mods scores;
    attnkit_weights_out weights;
};

/* Bytes that making it takes. */
double masks_memory_bytes(const struct shape *shape);

/* Hangs the groups on args, which say what there is; ATTNKIT_LATER stands for the memory. */
void masks_describe(const struct shape *shape, struct masks *masks, attnkit_attention_args *args);

/* Takes the memory, and has the groups point to it. False: there is none. */
bool masks_make(const struct shape *shape, struct masks *masks);
void masks_free(struct masks *masks);

/* What a run of a plan brings of them. */
void masks_run(const struct masks *masks, attnkit_attention_data *data,
               attnkit_attention_group_data *groups);

#endif
