/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the groups of options for the call of a row of the benches. The name of the row says which
 * options the call has. With _dense in the name, a mask of bools hides the same keys as the causal
 * flag in a row with _causal. With _half, an additive mask of f16 hides these keys. With _padmask,
 * a mask of bools hides the same keys as the lengths in a row with _pad. So the cost of a mask can
 * be compared with the cost of the flag or of the lengths.
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
    case TREE:
    case CELLS:
        return (size_t)s->q_len * (size_t)s->kv_len;
    case HALF_CAUSAL:
        return (size_t)s->q_len * (size_t)s->kv_len * sizeof(uint16_t);
    case PAD_MASK:
        return (size_t)s->batch * (size_t)s->kv_len;
    default:
        return 0;
    }
}

static size_t bias_numbers(const struct shape *s)
{
    return (size_t)s->q_len * (size_t)s->kv_len;
}

/* Returns how many floats the option s->extra needs, for its input or for the weights. */
static size_t numbers(const struct shape *s)
{
    switch (s->extra) {
    case BIAS:
        return bias_numbers(s);
    case SCALED_BIAS:
        return bias_numbers(s) + (size_t)s->q_heads;
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

/* Returns whether the mask lets row i see key j. */
static bool is_seen(const struct shape *s, int64_t i, int64_t j)
{
    const int64_t first = s->kv_len - s->q_len; /* the key at the position of row 0 */
    switch (s->extra) {
    case DENSE_CAUSAL:
    case HALF_CAUSAL:
        return j <= first + i;
    case TREE:
        while (i > 0 && first + i > j)
            i = (i - 1) / 2;
        return j <= first + i && (j <= first || j == first + i);
    case CELLS:
        return j % s->q_len == i;
    default:
        return true;
    }
}

static void fill_mask(const struct shape *s, unsigned char *mask)
{
    const uint16_t minus_infinity = 0xfc00;
    memset(mask, s->extra != HALF_CAUSAL, mask_bytes(s));
    for (int64_t i = 0; i < s->q_len && s->extra != PAD_MASK; i++)
        for (int64_t j = 0; j < s->kv_len; j++)
            if (!is_seen(s, i, j)) {
                if (s->extra == HALF_CAUSAL)
                    memcpy(mask + 2 * (i * s->kv_len + j), &minus_infinity, 2);
                else
                    mask[i * s->kv_len + j] = 0;
            }
    for (int64_t b = 0; b < s->batch && s->extra == PAD_MASK; b++) {
        const int64_t keys = shape_keys(s, b);
        memset(mask + b * s->kv_len + keys, 0, (size_t)(s->kv_len - keys));
    }
}

/* -------------------------------------------------------------------------------- the groups */

static void begin(struct masks *masks, attnkit_attention_args *args)
{
    *masks = (struct masks){0};
    attnkit_visibility_init(&masks->visibility);
    attnkit_window_init(&masks->window);
    attnkit_score_mods_init(&masks->scores);
    attnkit_weights_out_init(&masks->weights);
    args->visibility = &masks->visibility;
    args->scores = &masks->scores;
    args->weights = &masks->weights;
}

/* Describes the mask. The mask of PAD_MASK is [batch][kv_len]: all rows and heads of a batch entry
 * share a row of the mask. Other masks are [q_len][kv_len]: all batch entries and heads share the
 * mask. */
static void describe_mask(const struct shape *s, attnkit_visibility *visibility)
{
    visibility->mask =
        (attnkit_tensor){.data = ATTNKIT_LATER, .type = ATTNKIT_BOOL, .layout = ATTNKIT_STRIDED};
    visibility->mask.strides[s->extra == PAD_MASK ? 0 : 2] = s->kv_len;
    visibility->mask_kind = ATTNKIT_MASK_ATTEND;
}

static void describe_bias(const struct shape *s, attnkit_score_mods *scores)
{
    scores->bias = (attnkit_tensor){.data = ATTNKIT_LATER,
                                    .strides = {0, 0, s->kv_len * (int64_t)sizeof(float)},
                                    .layout = ATTNKIT_STRIDED};
}

static void describe_extra(const struct shape *s, struct masks *masks)
{
    switch (s->extra) {
    case ALL_TRUE:
    case DENSE_CAUSAL:
    case TREE:
    case CELLS:
    case PAD_MASK:
        describe_mask(s, &masks->visibility);
        break;
    case HALF_CAUSAL:
        masks->scores.bias = (attnkit_tensor){.data = ATTNKIT_LATER,
                                              .type = ATTNKIT_F16,
                                              .strides = {0, 0, s->kv_len * 2},
                                              .layout = ATTNKIT_STRIDED};
        break;
    case BIAS:
        describe_bias(s, &masks->scores);
        break;
    case SCALED_BIAS:
        describe_bias(s, &masks->scores);
        masks->scores.bias_scales = ATTNKIT_LATER;
        break;
    case ALIBI:
        masks->scores.alibi_slopes = ATTNKIT_LATER;
        break;
    case SOFTCAP:
        masks->scores.softcap = 30.0;
        break;
    case SINKS:
        masks->scores.sinks = ATTNKIT_LATER;
        break;
    case DROPOUT:
        masks->scores.dropout = 0.1;
        masks->scores.dropout_seeds = ATTNKIT_LATER;
        break;
    case WEIGHTS:
        masks->weights.kind = ATTNKIT_WEIGHTS_SOFTMAX;
        masks->weights.weights.data = ATTNKIT_LATER;
        break;
    default:
        break;
    }
}

void masks_describe(const struct shape *shape, struct masks *masks, attnkit_attention_args *args)
{
    begin(masks, args);
    if (shape->extra == INTEGERS)
        args->flags |= ATTNKIT_INTEGERS;
    if (shape->extra == PRODUCTS || shape->extra == SHORT_PRODUCTS)
        args->flags |= ATTNKIT_BF16_PRODUCTS;
    if (shape->extra == SHORT_PRODUCTS)
        args->flags |= ATTNKIT_SHORT_WEIGHTS;
    if (shape->window) {
        masks->window.left = shape->window - 1;
        masks->visibility.window = &masks->window;
    }
    if (shape->window || shape->extra == ALIBI || shape->extra == DROPOUT)
        args->align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
    if (shape->padded)
        masks->visibility.kv_lens.data = ATTNKIT_LATER;
    describe_extra(shape, masks);
}

/* -------------------------------------------------------------------------------- the memory */

/* Makes the groups point to the memory. */
static void point(const struct shape *shape, struct masks *masks)
{
    attnkit_score_mods *const scores = &masks->scores;
    masks->visibility.kv_lens.data = masks->kv_lens;
    masks->visibility.mask.data = masks->visibility.mask.data ? masks->mask : NULL;
    if (scores->bias.data)
        scores->bias.data = scores->bias.type == ATTNKIT_F16 ? (void *)masks->mask : masks->numbers;
    if (scores->bias_scales && masks->numbers)
        scores->bias_scales = masks->numbers + bias_numbers(shape);
    scores->alibi_slopes = scores->alibi_slopes ? masks->numbers : NULL;
    scores->sinks = scores->sinks ? masks->numbers : NULL;
    scores->dropout_seeds = masks->seeds;
    if (masks->weights.kind)
        masks->weights.weights.data = masks->numbers;
}

bool masks_make(const struct shape *shape, struct masks *masks)
{
    if (shape->padded && (masks->kv_lens = calloc((size_t)shape->batch, sizeof *masks->kv_lens)))
        for (int64_t b = 0; b < shape->batch; b++)
            masks->kv_lens[b] = shape_keys(shape, b);
    if (mask_bytes(shape) && (masks->mask = malloc(mask_bytes(shape))))
        fill_mask(shape, masks->mask);
    if (numbers(shape))
        masks->numbers = draw(numbers(shape), 5);
    if (shape->extra == DROPOUT)
        masks->seeds = calloc((size_t)shape->batch, sizeof *masks->seeds);
    point(shape, masks);
    return (!shape->padded || masks->kv_lens) && (!mask_bytes(shape) || masks->mask) &&
           (!numbers(shape) || masks->numbers) && (shape->extra != DROPOUT || masks->seeds);
}

void masks_free(struct masks *masks)
{
    free(masks->kv_lens);
    free(masks->mask);
    free(masks->numbers);
    free(masks->seeds);
}

void masks_run(const struct masks *masks, attnkit_attention_data *data,
               attnkit_attention_group_data *groups)
{
    data->kv_lens = masks->kv_lens;
    groups->mask = masks->visibility.mask.data;
    groups->bias = masks->scores.bias.data;
    groups->bias_scales = masks->scores.bias_scales;
    groups->alibi_slopes = masks->scores.alibi_slopes;
    groups->sinks = masks->scores.sinks;
    groups->dropout_seeds = masks->seeds;
    groups->weights = masks->weights.kind ? masks->numbers : NULL;
}
