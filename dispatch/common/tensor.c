/* SPDX-License-Identifier: Apache-2.0
 *
 * Strides, layouts and overlaps of tensors. Costs well under a microsecond unless rows of an
 * output lie in the gaps between rows of another tensor, in an irregular way.
 */
#include "dispatch/common/tensor.h"

#include "dispatch/common/message.h"

enum {
    STRIDE_NAME = 64, /* bytes of the longest name of a stride */
};

static const char *axis_name(const struct tensor *t, int axis)
{
    static const char *const names[3] = {"batch", "head", "row"};
    if (t->axes)
        return t->axes[axis];
    return axis == 0 && t->paged ? "page" : axis == 2 && t->tiled ? "tile" : names[axis];
}

/* "k_strides[2] (row)": the field of an axis as the caller knows it. */
static const char *stride_name(const struct tensor *t, int axis, char name[STRIDE_NAME])
{
    if (t->is_matrix)
        return t->strides_name;
    snprintf(name, STRIDE_NAME, "%s[%d] (%s)", t->strides_name, axis, axis_name(t, axis));
    return name;
}

void attnkit_lay_in_tiles(struct tensor *t)
{
    t->count[2] = t->count[2] / TILE_KEYS + (t->count[2] % TILE_KEYS > 0);
    t->row_bytes *= TILE_KEYS;
    t->tiled = true;
}

static attnkit_status set_dense(const struct tensor *t, char *message)
{
    struct strides *s = t->stride;
    char name[STRIDE_NAME];
    s->row = t->row_bytes;
    for (int i = 0; t->strides && i < 3; i++)
        if (t->strides[i] != 0)
            return refuse(message, ATTNKIT_BAD_ARGUMENT,
                          "%s is %lld, but flags lacks ATTNKIT_%sSTRIDED", stride_name(t, i, name),
                          (long long)t->strides[i], t->is_mask ? "MASK_" : "");
    int64_t all;
    if (__builtin_mul_overflow(s->row, t->count[2], &s->head) ||
        __builtin_mul_overflow(s->head, t->count[1], &s->batch) ||
        __builtin_mul_overflow(s->batch, t->count[0], &all))
        return refuse(message, ATTNKIT_OVERFLOW, "%s has %lld x %lld x %lld %ss of %lld bytes",
                      t->name, (long long)t->count[0], (long long)t->count[1],
                      (long long)t->count[2], axis_name(t, 2), (long long)t->row_bytes);
    return ATTNKIT_OK;
}

static attnkit_status set_strided(const struct tensor *t, char *message)
{
    char name[STRIDE_NAME];
    for (int i = 0; i < 3; i++) {
        int64_t reach;
        if (t->count[i] <= 1)
            continue;
        if (t->strides[i] % t->alignment != 0)
            return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld: must be a multiple of %lld",
                          stride_name(t, i, name), (long long)t->strides[i],
                          (long long)t->alignment);
        if (__builtin_mul_overflow(t->strides[i], t->count[i], &reach))
            return refuse(message, ATTNKIT_OVERFLOW, "%s is %lld: too large for %lld of them",
                          stride_name(t, i, name), (long long)t->strides[i],
                          (long long)t->count[i]);
    }
    *t->stride =
        (struct strides){t->count[0] > 1 ? t->strides[0] : 0, t->count[1] > 1 ? t->strides[1] : 0,
                         t->count[2] > 1 ? t->strides[2] : 0};
    return ATTNKIT_OK;
}

attnkit_status attnkit_set_strides(const struct tensor *t, uint32_t flags, char *message)
{
    const uint32_t literal = ATTNKIT_STRIDED | (t->is_mask ? ATTNKIT_MASK_STRIDED : 0);
    return (flags & literal) && t->strides ? set_strided(t, message) : set_dense(t, message);
}

static attnkit_status check_tensor(const struct tensor *t, char *message)
{
    const bool any = t->count[0] > 0 && t->count[1] > 0 && t->count[2] > 0;
    if (any && !t->data)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is NULL", t->name);
    if ((uintptr_t)t->data % (uintptr_t)t->alignment != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %p: must be aligned to %lld bytes",
                      t->name, t->data, (long long)t->alignment);
    bool repeats;
    const int64_t stride[3] = {t->stride->batch, t->stride->head, t->stride->row};
    if (!attnkit_layout(t->layout, t->data, t->count, stride, t->row_bytes, &repeats))
        return refuse(message, ATTNKIT_OVERFLOW,
                      "%s are {%lld, %lld, %lld}: %s leaves the address space", t->strides_name,
                      (long long)stride[0], (long long)stride[1], (long long)stride[2], t->name);
    if (repeats && t->output)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "%s are {%lld, %lld, %lld}: %ss of %s (%lld bytes) overlap or interleave",
                      t->strides_name, (long long)stride[0], (long long)stride[1],
                      (long long)stride[2], axis_name(t, 2), t->name, (long long)t->row_bytes);
    return ATTNKIT_OK;
}

/* Whether every row of `input` is the row of `output` with the same indices. */
static bool same_rows(const struct tensor *input, const struct tensor *output)
{
    const struct strides a = *input->stride, b = *output->stride;
    return input->data == output->data && input->row_bytes == output->row_bytes &&
           (input->count[0] <= 1 || a.batch == b.batch) &&
           (input->count[1] <= 1 || a.head == b.head) && (input->count[2] <= 1 || a.row == b.row);
}

attnkit_status attnkit_check_tensors(const struct tensor *tensors, int n, char *message)
{
    for (int i = 0; i < n; i++) {
        const attnkit_status status = check_tensor(&tensors[i], message);
        if (status != ATTNKIT_OK)
            return status;
    }
    for (int i = 0; i < n && tensors[i].output; i++)
        for (int j = i + 1; j < n; j++) {
            const struct tensor *a = &tensors[i], *b = &tensors[j];
            if (b->in_place == a && same_rows(b, a))
                continue;
            if (attnkit_layouts_overlap(a->layout, b->layout))
                return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s (%p) overlaps %s (%p)", a->name,
                              a->data, b->name, b->data);
        }
    return ATTNKIT_OK;
}

attnkit_status attnkit_check_apart(const void *workspace, size_t size, const char *name,
                                   const struct layout *layout, char *message)
{
    const struct layout whole = {
        .first = (uintptr_t)workspace, .row_bytes = (int64_t)size, .span = (int64_t)size};
    if (attnkit_layouts_overlap(&whole, layout))
        return refuse(message, ATTNKIT_BAD_WORKSPACE, "workspace (%p, %zu bytes) overlaps %s",
                      workspace, size, name);
    return ATTNKIT_OK;
}
