/* SPDX-License-Identifier: Apache-2.0
 *
 * Masks that let through what a flag or a length would, so that the two can be compared.
 */
#include "bench/rows/masks.h"

#include <stdlib.h>
#include <string.h>

#include "bench/rows/kv.h"

static size_t mask_bytes(const struct shape *s)
{
    switch (s->extra) {
    case ALL_TRUE:
    case DENSE_CAUSAL:
        return (size_t)s->q_len * (size_t)s->kv_len;
    case PAD_MASK:
        return (size_t)s->batch * (size_t)s->kv_len;
    default:
        return 0;
    }
}

/* Floats of the extra: of the input, or of the weights. */
static size_t numbers(const struct shape *s)
{
    switch (s->extra) {
    case BIAS:
        return (size_t)s->q_len * (size_t)s->kv_len;
    case ALIBI:
    case SINKS:
        return (size_t)s->q_heads;
    case WEIGHTS:
        return (size_t)(s->batch * s->q_heads) * (size_t)s->q_len * (size_t)s->kv_len;
    default:
        return 0;
    }
}

double masks_memory_bytes(const struct shape *shape)
{
    return (double)mask_bytes(shape) + (double)numbers(shape) * sizeof(float);
}

static void fill_mask(const struct shape *s, unsigned char *mask)
{
    memset(mask, 1, mask_bytes(s));
    for (int64_t i = 0; i < s->q_len && s->extra == DENSE_CAUSAL; i++) {
        const int64_t end = s->kv_len - s->q_len + i + 1, seen = end < 0 ? 0 : end;
        memset(mask + i * s->kv_len + seen, 0, (size_t)(s->kv_len - seen));
    }
    for (int64_t b = 0; b < s->batch && s->extra == PAD_MASK; b++) {
        const int64_t keys = shape_keys(s, b);
        memset(mask + b * s->kv_len + keys, 0, (size_t)(s->kv_len - keys));
    }
}

bool masks_make(const struct shape *shape, struct masks *masks)
{
    *masks = (struct masks){0};
    if (mask_bytes(shape) && (masks->mask = malloc(mask_bytes(shape))))
        fill_mask(shape, masks->mask);
    if (numbers(shape))
        masks->numbers = draw(numbers(shape), 5);
    if (shape->extra == DROPOUT)
        masks->seeds = calloc((size_t)shape->batch, sizeof *masks->seeds);
    return (!mask_bytes(shape) || masks->mask) && (!numbers(shape) || masks->numbers) &&
           (shape->extra != DROPOUT || masks->seeds);
}

void masks_free(struct masks *masks)
{
    free(masks->mask);
    free(masks->numbers);
    free(masks->seeds);
}

void masks_describe(const struct shape *shape, attnkit_attention_args *args)
{
    static const struct masks none;
    if (shape->window) {
        args->flags |= ATTNKIT_WINDOW;
        args->window_left = shape->window - 1;
    }
    if (shape->window || shape->extra == ALIBI || shape->extra == DROPOUT)
        args->align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
    if (shape->extra == SOFTCAP)
        args->softcap = 30.0;
    masks_point(shape, &none, args);
}

/* For the query of the workspace any pointer is as good as the right one. */
static const void *or_any(const void *pointer)
{
    static const float any;
    return pointer ? pointer : &any;
}

void masks_point(const struct shape *shape, const struct masks *masks, attnkit_attention_args *args)
{
    args->flags |= ATTNKIT_MASK_STRIDED;
    switch (shape->extra) {
    case ALL_TRUE:
    case DENSE_CAUSAL:
        args->mask_strides[2] = shape->kv_len;
        args->mask_kind = ATTNKIT_MASK_ATTEND;
        args->mask = or_any(masks->mask);
        break;
    case PAD_MASK:
        args->mask_strides[0] = shape->kv_len;
        args->mask_kind = ATTNKIT_MASK_ATTEND;
        args->mask = or_any(masks->mask);
        break;
    case BIAS:
        args->bias_strides[2] = shape->kv_len * (int64_t)sizeof(float);
        args->bias = or_any(masks->numbers);
        break;
    case ALIBI:
        args->alibi_slopes = or_any(masks->numbers);
        break;
    case SINKS:
        args->sinks = or_any(masks->numbers);
        break;
    case DROPOUT:
        args->dropout = 0.1;
        args->dropout_seeds = or_any(masks->seeds);
        break;
    case WEIGHTS:
        args->weights_kind = ATTNKIT_WEIGHTS_SOFTMAX;
        args->weights = (float *)(uintptr_t)or_any(masks->numbers);
        break;
    default:
        break;
    }
}
