/* SPDX-License-Identifier: Apache-2.0
 *
 * Masks and score functions of a row of attention: their memory, and the arguments for them.
 */
#ifndef ATTNKIT_MASKS_H
#define ATTNKIT_MASKS_H

#include "bench/rows/rows.h"

/* What a shape's extra needs: one of them, or none. */
struct masks {
    unsigned char *mask;
    float *numbers;
    uint64_t *seeds;
};

/* Bytes that making it takes. */
double masks_memory_bytes(const struct shape *shape);

/* False: no memory. */
bool masks_make(const struct shape *shape, struct masks *masks);
void masks_free(struct masks *masks);

/* The arguments that say what there is, and those that point to it. */
void masks_describe(const struct shape *shape, attnkit_attention_args *args);
void masks_point(const struct shape *shape, const struct masks *masks,
                 attnkit_attention_args *args);

#endif
