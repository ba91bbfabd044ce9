/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds out whether strided tensors overlap. Almost always their address ranges are apart. If the
 * ranges overlap, the rows of one tensor may still lie at the same place in every gap of the other
 * tensor. Scales beside their elements are an example. Rows like these are apart modulo the common
 * period of the strides. If rows are not apart modulo this period, each row of the tensor with
 * fewer rows is searched for among the rows of the other tensor, dimension by dimension.
 */
#include "dispatch/common/overlap.h"

static void drop_dim(struct layout *l, int dim)
{
    l->dims--;
    for (int i = dim; i < l->dims; i++) {
        l->count[i] = l->count[i + 1];
        l->stride[i] = l->stride[i + 1];
    }
}

/* Inserts a dimension so that strides stay in ascending order. */
static void insert_dim(struct layout *l, int64_t count, int64_t stride)
{
    int at = l->dims++;
    for (; at > 0 && l->stride[at - 1] > stride; at--) {
        l->count[at] = l->count[at - 1];
        l->stride[at] = l->stride[at - 1];
    }
    l->count[at] = count;
    l->stride[at] = stride;
}

bool attnkit_layout(struct layout *l, const void *data, const int64_t count[3],
                    const int64_t stride[3], int64_t row_bytes, bool *repeats)
{
    *l = (struct layout){.first = (uintptr_t)data, .row_bytes = row_bytes, .span = row_bytes};
    *repeats = false;
    if (count[0] == 0 || count[1] == 0 || count[2] == 0 || row_bytes == 0) {
        *l = (struct layout){.first = (uintptr_t)data};
        return true;
    }
    int64_t below = 0; /* bytes before `data` */
    for (int i = 0; i < 3; i++) {
        int64_t reach;
        if (count[i] == 1)
            continue;
        if (stride[i] == 0) {
            *repeats = true;
            continue;
        }
        if (stride[i] == INT64_MIN || __builtin_mul_overflow(count[i] - 1, stride[i], &reach))
            return false;
        const int64_t length = reach < 0 ? -reach : reach;
        if (__builtin_add_overflow(l->span, length, &l->span))
            return false;
        below += reach < 0 ? length : 0;
        insert_dim(l, count[i], stride[i] < 0 ? -stride[i] : stride[i]);
    }
    if ((uintptr_t)below > l->first)
        return false;
    l->first -= (uintptr_t)below;
    if ((uintptr_t)l->span > UINTPTR_MAX - l->first)
        return false;

    while (l->dims > 0 && l->stride[0] == l->row_bytes) {
        l->row_bytes *= l->count[0];
        drop_dim(l, 0);
    }
    int64_t inner = l->row_bytes;
    for (int i = 0; i < l->dims; i++) {
        *repeats |= l->stride[i] < inner;
        inner += (l->count[i] - 1) * l->stride[i];
    }
    return true;
}

/* Returns whether a row of a layout has a byte in [lo, hi). The layout has the first `dims`
 * dimensions of l, and its first row is at `first`. */
static bool touches(const struct layout *l, int dims, uintptr_t first, uintptr_t lo, uintptr_t hi)
{
    int64_t span = l->row_bytes;
    for (int i = 0; i < dims; i++)
        span += (l->count[i] - 1) * l->stride[i];
    if (first >= hi || first + (uintptr_t)span <= lo)
        return false;
    if (dims <= 0) /* with == 0, gcc 14 warns of elements before the array */
        return true;
    const int64_t stride = l->stride[dims - 1], count = l->count[dims - 1];
    const int64_t inner = span - (count - 1) * stride;
    const int64_t from_lo = (int64_t)(lo - first), to_hi = (int64_t)(hi - 1 - first);
    int64_t i = lo > first && from_lo > inner ? (from_lo - inner) / stride : 0;
    const int64_t end = to_hi / stride < count - 1 ? to_hi / stride : count - 1;
    for (; i <= end; i++)
        if (touches(l, dims - 1, first + (uintptr_t)(i * stride), lo, hi))
            return true;
    return false;
}

/* Returns the number of rows, or INT64_MAX if the number exceeds INT64_MAX. So many rows cannot all
 * lie apart: some of them begin at the same address. */
static int64_t rows_in(const struct layout *l)
{
    int64_t rows = 1;
    for (int i = 0; i < l->dims; i++)
        if (__builtin_mul_overflow(rows, l->count[i], &rows))
            return INT64_MAX;
    return rows;
}

static uintptr_t row_start(const struct layout *l, int64_t row)
{
    uintptr_t at = l->first;
    for (int i = 0; i < l->dims; i++) {
        at += (uintptr_t)(row % l->count[i] * l->stride[i]);
        row /= l->count[i];
    }
    return at;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Returns the greatest common divisor of all strides of both layouts, or 0 if they have no
 * strides. */
static int64_t common_period(const struct layout *a, const struct layout *b)
{
    int64_t period = 0;
    for (int i = 0; i < a->dims; i++)
        period = common_divisor(a->stride[i], period);
    for (int i = 0; i < b->dims; i++)
        period = common_divisor(b->stride[i], period);
    return period;
}

/* Returns whether the rows of both layouts are apart modulo their common period. Rows that are
 * apart modulo the period are apart everywhere. */
static bool apart_in_period(const struct layout *a, const struct layout *b)
{
    const int64_t period = common_period(a, b);
    if (period == 0)
        return false;
    const int64_t from_a =
        (int64_t)(b->first % (uintptr_t)period) - (int64_t)(a->first % (uintptr_t)period);
    const int64_t offset = from_a < 0 ? from_a + period : from_a;
    return offset >= a->row_bytes && b->row_bytes <= period - offset;
}

bool attnkit_layouts_overlap(const struct layout *a, const struct layout *b)
{
    if (a->row_bytes == 0 || b->row_bytes == 0)
        return false;
    if (a->first + (uintptr_t)a->span <= b->first || b->first + (uintptr_t)b->span <= a->first)
        return false;
    if (apart_in_period(a, b))
        return false;
    if (rows_in(b) < rows_in(a)) {
        const struct layout *const more = a;
        a = b;
        b = more;
    }
    const int64_t rows = rows_in(a);
    for (int64_t row = 0; row < rows; row++) {
        const uintptr_t lo = row_start(a, row);
        if (touches(b, b->dims, b->first, lo, lo + (uintptr_t)a->row_bytes))
            return true;
    }
    return false;
}
