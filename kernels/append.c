/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop of an append: for each row its place in dst and the cos and sin of its position, then
 * head after head from src by way of binary32 to dst.
 */
#include "append.h"

#include <string.h>

#include "rope.h"

/* What a thread works in. The last two are there only where cos and sin are computed. */
struct scratch {
    float *x;          /* [dim], a head's row as binary32 */
    float *cos_sin;    /* [2][pairs], of one position */
    double *frequency; /* [pairs] */
};

/* A position's cos and sin, [pairs] each. */
struct turn {
    const float *cos, *sin;
};

static bool computes_angles(const struct append *a)
{
    return a->pairs > 0 && !a->cos;
}

size_t attnkit_append_scratch(const struct append *a)
{
    const size_t angles = (size_t)a->pairs * (sizeof(double) + 2 * sizeof(float));
    return (size_t)a->dim * sizeof(float) + (computes_angles(a) ? angles : 0);
}

static struct scratch cut_scratch(const struct append *a, char *memory)
{
    if (!computes_angles(a))
        return (struct scratch){.x = (float *)memory};
    double *const frequency = (double *)memory;
    float *const cos_sin = (float *)(frequency + a->pairs);
    return (struct scratch){cos_sin + 2 * a->pairs, cos_sin, frequency};
}

static struct turn turn_at(const struct append *a, const struct scratch *s, int64_t position)
{
    if (a->pairs == 0)
        return (struct turn){NULL, NULL};
    if (a->cos)
        return (struct turn){a->cos + position * a->pairs, a->sin + position * a->pairs};
    attnkit_rope_cos_sin(position, s->frequency, a->pairs, s->cos_sin, s->cos_sin + a->pairs);
    return (struct turn){s->cos_sin, s->cos_sin + a->pairs};
}

static ptrdiff_t offset_of(struct strides s, struct index at, int64_t head)
{
    return at.outer * s.batch + head * s.head + at.row * s.row;
}

/* One head's row. */
static void append_row(const struct append *a, const struct kernels *kernels, struct turn turn,
                       const char *src, char *dst, float *scales, float *x)
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

/* Row i of a batch entry, all heads. */
static void append_heads(const struct append *a, const struct kernels *kernels,
                         const struct scratch *s, int64_t batch, int64_t i)
{
    const struct index from = {batch, i},
                       to = row_index(&a->pages, batch, append_start(a, batch) + i);
    const struct turn turn = turn_at(a, s, append_position(a, batch) + i);
    for (int64_t h = 0; h < a->heads; h++)
        append_row(a, kernels, turn, a->src + offset_of(a->src_stride, from, h),
                   a->dst + offset_of(a->dst_stride, to, h),
                   a->scales ? (float *)(a->scales + offset_of(a->scale_stride, to, h)) : NULL,
                   s->x);
}

void attnkit_append_rows(const struct append *a, const struct kernels *kernels, int64_t first,
                         int64_t end, char *memory)
{
    const struct scratch s = cut_scratch(a, memory);
    if (computes_angles(a))
        attnkit_rope_frequencies(a->base, a->pairs, s.frequency);
    int64_t row = 0; /* of entry b */
    for (int64_t b = 0; b < a->batch && row < end; b++) {
        const int64_t len = append_len(a, b);
        const int64_t from = first > row ? first - row : 0;
        for (int64_t i = from; i < len && i < end - row; i++)
            append_heads(a, kernels, &s, b, i);
        row += len;
    }
}
