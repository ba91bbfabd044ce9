/* SPDX-License-Identifier: Apache-2.0
 *
 * The groups of options for the call that a row of the benches measures: visibility, score mods
 * and the output of weights. Also the memory of these groups.
 */
#ifndef ATTNKIT_MASKS_H
#define ATTNKIT_MASKS_H

#include "bench/rows/rows.h"

/* Memory for the lengths of a shape and for its `extra` (shape.h), and groups of options that point
 * to this memory. */
struct masks {
    int64_t *kv_lens;
    unsigned char *mask; /* at most one of mask, numbers and seeds exists */
    float *numbers;
    uint64_t *seeds;
    attnkit_visibility visibility;
    attnkit_window window;
    attnkit_score_mods scores;
    attnkit_weights_out weights;
};

/* Returns about how much memory masks_make needs, in bytes. */
double masks_memory_bytes(const struct shape *shape);

/* Adds the groups of a shape to args, and the flags and the align that shape->extra and the window
 * need. The caller sets the flag and the align of a causal shape. Pointers to memory that
 * masks_make has yet to allocate are ATTNKIT_LATER. */
void masks_describe(const struct shape *shape, struct masks *masks, attnkit_attention_args *args);

/* Allocates the memory and makes the groups point to it. Returns false if there is no memory. */
bool masks_make(const struct shape *shape, struct masks *masks);
void masks_free(struct masks *masks);

/* Sets the data of the groups for a run of a plan. */
void masks_run(const struct masks *masks, attnkit_attention_data *data,
               attnkit_attention_group_data *groups);

#endif
