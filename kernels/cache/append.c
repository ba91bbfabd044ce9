/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop of an append. For each token the loop finds the place in dst and the cos and sin of the
 * position. Then, head after head, the loop widens the head's row from src to binary32, rotates
 * a->pairs pairs of its elements, and narrows the result to dst. If src and dst have the same type
 * and nothing is rotated, the loop copies the bytes instead. If dst is tiled, a head's row is made
 * in scratch, and its elements are then copied to their places in the tile.
 */
#include "kernels/cache/append.h"

#include <string.h>

#include "kernels/cache/rope.h"
#include "kernels/cache/spread.h"

/* The scratch of a thread. frequency and cos_sin are used if the angles are computed. scales and
 * row are used if dst is tiled. */
struct scratch {
    double *frequency; /* [pairs] */
    float *cos_sin;    /* [2][pairs], of one position */
    float *x;          /* [dim], a head's row as binary32 */
    float *scales;     /* the scales of a head's row, as in a dst that is not tiled */
    char *row;         /* a head's row, as in a dst that is not tiled */
};

/* The cos and sin of a position, [pairs] each. */
struct append_turn {
    const float *cos, *sin;
};

static bool computes_angles(const struct append *a)
{
    return a->pairs > 0 && !a->cos;
}

static int64_t scales_in_row(const struct append *a)
{
    return a->dst_type == TYPE_I8 ? a->dim / a->group : 0;
}

static int64_t computed_pairs(const struct append *a)
{
    return computes_angles(a) ? a->pairs : 0;
}

size_t attnkit_append_scratch(const struct append *a)
{
    const int64_t pair = sizeof(double) + 2 * sizeof(float), number = sizeof(float); /* bytes */
    const int64_t row = bytes_of(a->dst_type, a->dim) + scales_in_row(a) * number;
    return (size_t)(computed_pairs(a) * pair + a->dim * number + (a->tiled ? row : 0));
}

static struct scratch cut_scratch(const struct append *a, char *memory)
{
    struct scratch s = {.frequency = (double *)memory};
    s.cos_sin = (float *)(s.frequency + computed_pairs(a));
    s.x = s.cos_sin + 2 * computed_pairs(a);
    s.scales = s.x + a->dim;
    s.row = (char *)(s.scales + scales_in_row(a));
    return s;
}

static struct append_turn turn_at(const struct append *a, const struct scratch *s, int64_t position)
{
    if (a->pairs == 0)
        return (struct append_turn){NULL, NULL};
    if (a->cos)
        return (struct append_turn){a->cos + position * a->pairs, a->sin + position * a->pairs};
    attnkit_rope_cos_sin(position, s->frequency, a->pairs, s->cos_sin, s->cos_sin + a->pairs);
    return (struct append_turn){s->cos_sin, s->cos_sin + a->pairs};
}

static ptrdiff_t offset_of(struct strides s, struct index at, int64_t head)
{
    return at.outer * s.batch + head * s.head + at.row * s.row;
}

/* Rotates a->pairs pairs of one head's row and converts the row to a->dst_type, or copies the row.
 * The elements of the result at `dst` are adjacent: for a tiled cache, `dst` is in scratch. `x` is
 * scratch for [dim] floats. */
static void convert_row(const struct append *a, const struct kernels *kernels,
                        struct append_turn turn, const char *src, char *dst, float *scales,
                        float *x)
{
    if (a->pairs == 0 && a->src_type == a->dst_type) {
        memmove(dst, src, (size_t)bytes_of(a->src_type, a->dim)); /* dst may be src */
        return;
    }
    kernels->widen(a->src_type, src, NULL, 0, a->dim, x);
    if (a->pairs > 0)
        kernels->rotate(x, turn.cos, turn.sin, a->pairs, a->interleaved);
    kernels->narrow(a->dst_type, x, a->dim, a->group, dst, scales);
}

/* The destination of a head's row: a row of dst and its scales, or a tile of dst and its scales. In
 * a tile, `key` is the number of the row's key, 0 .. TILE_KEYS - 1. */
struct target {
    char *dst, *scales;
    int64_t key;
};

static void append_row(const struct append *a, const struct kernels *kernels,
                       const struct scratch *s, struct append_turn turn, const char *src,
                       struct target to)
{
    if (!a->tiled) {
        convert_row(a, kernels, turn, src, to.dst, (float *)to.scales, s->x);
        return;
    }
    convert_row(a, kernels, turn, src, s->row, s->scales, s->x);
    spread_row(a->dst_type, s->row, a->dim, to.key, to.dst);
    if (to.scales)
        spread_row(TYPE_F32, (const char *)s->scales, scales_in_row(a), to.key, to.scales);
}

/* Appends row i of a batch entry, with all heads. */
static void append_heads(const struct append *a, const struct kernels *kernels,
                         const struct scratch *s, int64_t batch, int64_t i)
{
    const struct index from = {batch, i};
    struct index to = row_index(&a->pages, batch, append_start(a, batch) + i);
    const int64_t key = to.row % TILE_KEYS;
    if (a->tiled)
        to.row /= TILE_KEYS;
    const struct append_turn turn = turn_at(a, s, append_position(a, batch) + i);
    for (int64_t h = 0; h < a->heads; h++) {
        char *const scales = a->scales ? a->scales + offset_of(a->scale_stride, to, h) : NULL;
        append_row(a, kernels, s, turn, a->src + offset_of(a->src_stride, from, h),
                   (struct target){a->dst + offset_of(a->dst_stride, to, h), scales, key});
    }
}

void attnkit_append_rows(const struct append *a, const struct kernels *kernels, int64_t first,
                         int64_t end, char *memory)
{
    const struct scratch s = cut_scratch(a, memory);
    if (computes_angles(a))
        attnkit_rope_frequencies(a->base, a->pairs, s.frequency);
    int64_t row = 0; /* the first row of batch entry b */
    for (int64_t b = 0; b < a->batch && row < end; b++) {
        const int64_t len = append_len(a, b);
        const int64_t from = first > row ? first - row : 0;
        for (int64_t i = from; i < len && i < end - row; i++)
            append_heads(a, kernels, &s, b, i);
        row += len;
    }
}
