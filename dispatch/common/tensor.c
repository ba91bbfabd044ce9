/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks strides, addresses and overlaps of tensors. The checks cost some nanoseconds for each
 * tensor. They cost more if address ranges overlap (see overlap.c).
 */
#include "dispatch/common/tensor.h"

#include "dispatch/common/message.h"

static const char *axis_name(const struct tensor *t, int axis)
{
    static const char *const names[3] = {"batch", "head", "row"};
    return axis == 0 && t->paged ? "page" : axis == 2 && t->tiled ? "tile" : names[axis];
}

void attnkit_lay_in_tiles(struct tensor *t)
{
    t->count[2] = t->count[2] / TILE_KEYS + (t->count[2] % TILE_KEYS > 0);
    t->row_bytes *= TILE_KEYS;
    t->tiled = true;
}

attnkit_status attnkit_check_layout(const char *name, uint32_t layout, uint32_t known,
                                    char *message)
{
    if ((layout & ~known) == 0)
        return ATTNKIT_OK;
    if ((layout & ~known) == ATTNKIT_TILED)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "%s.layout is 0x%x: %s cannot be in tiles (ATTNKIT_TILED)", name,
                      (unsigned)layout, name);
    return refuse(message, ATTNKIT_UNSUPPORTED, "%s.layout is 0x%x: bits 0x%x are not known", name,
                  (unsigned)layout, (unsigned)(layout & ~known));
}

static bool is_empty(const int64_t count[3], int64_t row_bytes)
{
    return count[0] == 0 || count[1] == 0 || count[2] == 0 || row_bytes == 0;
}

/* The tensor has the dimensions in `count`. Sets *span to the number of bytes from the row with the
 * lowest address to the end of the row with the highest address. Sets *below to the number of these
 * bytes before the address of the tensor. Returns false if the span exceeds 63 bits. */
static bool measure(const struct tensor *t, const int64_t count[3], int64_t *below, int64_t *span)
{
    *below = *span = 0;
    if (is_empty(count, t->row_bytes))
        return true;
    *span = t->row_bytes;
    for (int i = 0; i < 3; i++) {
        int64_t reach;
        if (__builtin_mul_overflow(count[i] - 1, t->stride[i], &reach) || reach == INT64_MIN ||
            __builtin_add_overflow(*span, reach < 0 ? -reach : reach, span))
            return false;
        *below += reach < 0 ? -reach : 0;
    }
    return true;
}

static attnkit_status refuse_strides(const struct tensor *t, attnkit_status status, const char *why,
                                     char *message)
{
    return refuse(message, status, "%s.strides are {%lld, %lld, %lld}: %s", t->name,
                  (long long)t->stride[0], (long long)t->stride[1], (long long)t->stride[2], why);
}

/* Checks that each stride of an output spans a row and all bytes of the dimensions with smaller
 * strides. */
static attnkit_status check_nesting(const struct tensor *t, char *message)
{
    char why[ATTNKIT_MESSAGE_SIZE];
    struct layout layout;
    bool repeats;
    if (!attnkit_layout(&layout, (const void *)(uintptr_t)t->below, t->count, t->stride,
                        t->row_bytes, &repeats) ||
        !repeats)
        return ATTNKIT_OK;
    snprintf(why, sizeof why, "%ss of %s (%lld bytes) overlap or interleave", axis_name(t, 2),
             t->name, (long long)t->row_bytes);
    return refuse_strides(t, ATTNKIT_BAD_ARGUMENT, why, message);
}

static attnkit_status finish(struct tensor *t, char *message)
{
    for (int i = 0; i < 3; i++)
        if (t->count[i] <= 1)
            t->stride[i] = 0;
    if (!measure(t, t->count, &t->below, &t->span))
        return refuse_strides(t, ATTNKIT_OVERFLOW, "the tensor leaves the address space", message);
    return t->output ? check_nesting(t, message) : ATTNKIT_OK;
}

attnkit_status attnkit_plan_dense(struct tensor *t, char *message)
{
    int64_t all;
    t->stride[2] = t->row_bytes;
    if (__builtin_mul_overflow(t->stride[2], t->count[2], &t->stride[1]) ||
        __builtin_mul_overflow(t->stride[1], t->count[1], &t->stride[0]) ||
        __builtin_mul_overflow(t->stride[0], t->count[0], &all))
        return refuse(message, ATTNKIT_OVERFLOW,
                      "%s has %lld x %lld x %lld %ss of %lld bytes: beyond 63 bits", t->name,
                      (long long)t->count[0], (long long)t->count[1], (long long)t->count[2],
                      axis_name(t, 2), (long long)t->row_bytes);
    for (int i = 0; i < 3; i++)
        if (t->count[i] <= 1)
            t->stride[i] = 0;
    t->below = 0;
    t->span = all;
    return ATTNKIT_OK;
}

static attnkit_status take_strides(struct tensor *t, const attnkit_tensor *theirs, char *message)
{
    for (int i = 0; i < 3; i++) {
        int64_t reach;
        t->stride[i] = theirs->strides[i];
        if (t->count[i] <= 1)
            continue;
        if (t->stride[i] % t->alignment != 0)
            return refuse(message, ATTNKIT_BAD_ARGUMENT,
                          "%s.strides[%d] (%s) is %lld: must be a multiple of %d", t->name, i,
                          axis_name(t, i), (long long)t->stride[i], (int)t->alignment);
        if (__builtin_mul_overflow(t->stride[i], t->count[i], &reach))
            return refuse(message, ATTNKIT_OVERFLOW,
                          "%s.strides[%d] (%s) is %lld: too large for size %lld", t->name, i,
                          axis_name(t, i), (long long)t->stride[i], (long long)t->count[i]);
    }
    return finish(t, message);
}

attnkit_status attnkit_plan_tensor(struct tensor *t, const attnkit_tensor *theirs, char *message)
{
    if (theirs->layout & ATTNKIT_STRIDED)
        return take_strides(t, theirs, message);
    for (int i = 0; i < 3; i++)
        if (theirs->strides[i] != 0)
            return refuse(message, ATTNKIT_BAD_ARGUMENT,
                          "%s.strides[%d] (%s) is %lld, but %s.layout lacks ATTNKIT_STRIDED",
                          t->name, i, axis_name(t, i), (long long)theirs->strides[i], t->name);
    return attnkit_plan_dense(t, message);
}

/* Checks the address of the tensor. Sets m->first to data - below, where the bytes of the tensor
 * begin, and m->end to the end of these `span` bytes. */
static attnkit_status place(struct memory *m, int64_t below, int64_t span, char *message)
{
    const struct tensor *const t = m->tensor;
    const uintptr_t data = (uintptr_t)m->data;
    if (span > 0 && data == 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is NULL", t->name);
    if ((data & (uintptr_t)(t->alignment - 1)) != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %p: must be aligned to %d bytes",
                      t->name, m->data, (int)t->alignment);
    m->in_place = NULL;
    m->first = data - (uintptr_t)below;
    m->end = m->first + (uintptr_t)span;
    if (m->first <= data && m->end >= m->first)
        return ATTNKIT_OK;
    char why[ATTNKIT_MESSAGE_SIZE];
    snprintf(why, sizeof why, "%s leaves the address space", t->name);
    return refuse_strides(t, ATTNKIT_OVERFLOW, why, message);
}

attnkit_status attnkit_bind(struct memory *m, const struct tensor *t, const void *data,
                            char *message)
{
    m->tensor = t;
    m->data = data;
    for (int i = 0; i < 3; i++)
        m->count[i] = t->count[i];
    return place(m, t->below, t->span, message);
}

attnkit_status attnkit_bind_part(struct memory *m, const struct tensor *t, const int64_t count[3],
                                 const void *data, char *message)
{
    int64_t below, span;
    m->tensor = t;
    m->data = data;
    for (int i = 0; i < 3; i++)
        m->count[i] = count[i];
    measure(t, count, &below, &span); /* cannot fail: planning has measured at least as many rows */
    return place(m, below, span, message);
}

static struct layout layout_of(const struct memory *m)
{
    struct layout layout;
    bool repeats;
    /* Cannot fail: `place` has checked that the rows lie within the address space. */
    (void)attnkit_layout(&layout, m->data, m->count, m->tensor->stride, m->tensor->row_bytes,
                         &repeats);
    return layout;
}

/* Returns whether rows of two tensors share a byte. The function is not inlined, because in few
 * calls the address ranges of two tensors overlap. */
static __attribute__((noinline)) bool rows_overlap(const struct memory *a, const struct memory *b)
{
    const struct layout la = layout_of(a), lb = layout_of(b);
    return attnkit_layouts_overlap(&la, &lb);
}

/* Returns whether two tensors share a byte. */
static bool overlap(const struct memory *a, const struct memory *b)
{
    return a->end > b->first && b->end > a->first && rows_overlap(a, b);
}

/* Returns whether every row of `input` is the row of `output` with the same indices. */
static bool same_rows(const struct memory *input, const struct memory *output)
{
    const struct tensor *const a = input->tensor, *const b = output->tensor;
    if (input->data != output->data || a->row_bytes != b->row_bytes)
        return false;
    for (int i = 0; i < 3; i++)
        if (input->count[i] > 1 && a->stride[i] != b->stride[i])
            return false;
    return true;
}

attnkit_status attnkit_check_overlaps(const struct memory *memory, int n, char *message)
{
    for (int i = 0; i < n && memory[i].tensor->output; i++)
        for (int j = i + 1; j < n; j++) {
            const struct memory *const a = &memory[i], *const b = &memory[j];
            if (b->in_place == a && same_rows(b, a))
                continue;
            if (overlap(a, b))
                return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s (%p) overlaps %s (%p)",
                              a->tensor->name, a->data, b->tensor->name, b->data);
        }
    return ATTNKIT_OK;
}

attnkit_status attnkit_check_workspace_apart(const struct memory *memory, int n,
                                             const void *workspace, size_t size, char *message)
{
    const uintptr_t first = (uintptr_t)workspace, end = first + size;
    for (int i = 0; i < n; i++) {
        if (end <= memory[i].first || memory[i].end <= first)
            continue;
        const struct layout whole = {
            .first = first, .row_bytes = (int64_t)size, .span = (int64_t)size};
        const struct layout theirs = layout_of(&memory[i]);
        if (attnkit_layouts_overlap(&whole, &theirs))
            return refuse(message, ATTNKIT_BAD_WORKSPACE, "workspace (%p, %zu bytes) overlaps %s",
                          workspace, size, memory[i].tensor->name);
    }
    return ATTNKIT_OK;
}
