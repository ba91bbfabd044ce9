/* SPDX-License-Identifier: Apache-2.0
 *
 * attnkit: appending to a KV cache. Read attnkit.h and options.h first.
 */
#include "attnkit.h" /* which includes this file in its turn */

#ifndef ATTNKIT_PUBLIC_CACHE_H
#define ATTNKIT_PUBLIC_CACHE_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
 * Appending to a KV cache, with rotation (RoPE) and conversion on the way.
 *
 * For batch entry b, head h and row i < lens[b], with r = starts[b] + i and p = positions[b] + i:
 *
 *     dst[b][h][r] = convert(rotate(src[b][h][i], p))
 *
 * No byte of dst outside these rows is written. K takes one call, with rotation; V takes one call,
 * without rotation; Q takes one call, into a plain tensor or in place.
 *
 * Rotation. Here dim is the number of rotated elements, a field of attnkit_rotation. Each of the
 * dim / 2 pairs of elements (x0, x1) is turned by an angle, in binary32:
 *
 *     y0 = fma(x0, cos, -(x1 * sin)),   y1 = fma(x1, cos, x0 * sin)
 *
 * Elements after the first dim elements are not turned. The caller may give tables of cos and sin,
 * for example for scaled frequencies. Then cos and sin of pair j are elements [p][j] of the tables.
 * Without tables, cos and sin are the cosine and sine of the angle
 *
 *     p * 2^(-2 j / dim * log2(base)),   which is p / base^(2 j / dim),
 *
 * with every operation in binary64. The relative error of log2 is at most 6 * 2^-53. The relative
 * error of a normal 2^x is at most 3 * 2^-53. The relative error of cos and sin is at most
 * 5 * 2^-53 for every angle. Then cos and sin are rounded to binary32.
 *
 * Conversion. src is widened to binary32, which is exact. After the rotation, elements are
 * converted to the type of dst. ATTNKIT_F32 needs no rounding. ATTNKIT_F16 and ATTNKIT_BF16 take
 * one rounding to nearest even. For ATTNKIT_I8 and ATTNKIT_Q8_0, a group of elements gets the scale
 * max |x| / 127 (for Q8_0 rounded to binary16), and each element becomes x / scale, rounded to
 * nearest even and limited to -127 .. 127. With x the element of the largest magnitude, a block of
 * ATTNKIT_Q4_0 gets the scale x / -8, and a block of ATTNKIT_Q5_0 the scale x / -16. For finite
 * elements, the bytes of the block are the same as from ggml's reference code (docs/format.md). A
 * group with a NaN or an infinity becomes NaN as a whole, and so does a block of ATTNKIT_Q8_0 whose
 * scale overflows binary16. attnkit_append cannot write other blocks or ATTNKIT_F8_E4M3. Rows that
 * are neither converted nor turned are copied byte for byte.
 *
 * The bits of a row, also of a NaN, depend only on its src, p and the options. The instruction set,
 * the threads and the division of rows into calls do not change a bit.
 */

/* Which elements of a row form pair j. */
typedef int32_t attnkit_rope;
enum {
    ATTNKIT_ROPE_NONE = 0,        /* no rotation */
    ATTNKIT_ROPE_INTERLEAVED = 1, /* 2 j and 2 j + 1 */
    ATTNKIT_ROPE_HALF = 2         /* j and j + dim / 2 */
};

/* A rotation of rows by their positions. */
typedef struct attnkit_rotation {
    size_t size;             /* sizeof(attnkit_rotation) */
    attnkit_rope kind;       /* which elements form a pair */
    uint32_t flags;          /* 0 */
    int64_t dim;             /* rotated elements of a row, an even number; 0: all elements */
    double base;             /* finite, at least 1; 0: 10000; must be 0 with tables */
    const float *cos;        /* [table_positions][dim / 2], dense; NULL without tables */
    const float *sin;        /* same shape as cos; give both tables or none */
    int64_t table_positions; /* rows of the tables; 0 without tables */
    attnkit_ints positions;  /* [batch], position of row 0, not negative; none: the position of row
                              * 0 is starts[b] */
} attnkit_rotation;

/* The arguments of an append. */
typedef struct attnkit_append_args {
    size_t size; /* sizeof(attnkit_append_args) */

    /* The shape: no number is negative. If batch, heads or len is 0, the call does nothing. */
    int64_t batch;
    int64_t heads;
    int64_t len;      /* rows of src for each batch entry and head */
    int64_t dim;      /* elements of a row, at least 1; for blocks a multiple of 32 */
    int64_t capacity; /* rows of dst for each batch entry and head; with pages, rows in all pages of
                         an entry */

    /* src is [batch][heads][len][dim] of ATTNKIT_F32, F16 or BF16. dst is
     * [batch][heads][capacity][dim], or paged [pages][heads][page_size][dim], of any type that
     * append can write. dst_scales, only for ATTNKIT_I8, has the shape of dst with
     * dim / scale_group binary32 numbers in a row. dst and dst_scales overlap no other memory of
     * the call. But dst may lie in the gaps between rows of dst_scales or src, and dst_scales in
     * the gaps between rows of dst or src. For a rotation in place, dst may be src itself, with the
     * same type, address and strides. Such a call has no starts, no pages and no tiles. In a
     * rotation in place, a parallel-for must not run a task a second time.
     * Tiles: with ATTNKIT_TILED in dst.layout, dst and dst_scales have the shapes of k and k_scales
     * of an attention with this layout and kv_len = capacity. An append reads and writes only the
     * elements of its own rows in a tile. So several calls and threads may fill one tile. No byte
     * of a tile may belong to another tensor. */
    attnkit_tensor src;
    attnkit_tensor dst;
    attnkit_tensor dst_scales;
    int64_t scale_group; /* elements that share a scale, a divisor of dim; 0 means dim */

    /* The rows that are written. starts[b] + lens[b] is at most capacity. */
    attnkit_ints starts; /* [batch], the row of dst that row 0 of src goes to; none: 0 */
    attnkit_ints lens;   /* [batch], rows of src to append, each 0 .. len; none: len */

    /* The call reads the block table only for the rows that it writes. It does not check whether
     * two rows of src go to the same row of a page. If two rows do, at most one of them is kept. */
    const attnkit_pages *pages;       /* or NULL */
    const attnkit_rotation *rotation; /* or NULL: none */
} attnkit_append_args;

/* Sets *bytes to the workspace that attnkit_append needs for these args and this exec (NULL: one
 * thread). Reads the pages and the rotation, but no tensor and no array: it only matters which
 * pointers to tensors and arrays are NULL. For each thread the size is at most 12 * dim + 128
 * bytes, and with tiles 5 * dim bytes more. */
ATTNKIT_API attnkit_status attnkit_append_workspace(const attnkit_append_args *args,
                                                    const attnkit_exec *exec, size_t *bytes,
                                                    char *message);

/* Appends rows. exec is as for attention. Each thread takes some of the rows, and appends all heads
 * of these rows.
 * Cost: src is read once, and dst is written once. Writing tiles takes some 0.6 ns for each
 * element. Without tables, cos and sin take some 15 ns for each pair at each position, once for all
 * heads. In addition, each thread spends some 15 ns for each pair, once in a call, on the
 * frequencies (the factors of p in the angles).
 * A call that fails has written nothing. */
ATTNKIT_API attnkit_status attnkit_append(const attnkit_append_args *args, const attnkit_exec *exec,
                                          char *message);

/* Plan and run, as for attention. batch, len and exec.threads are upper bounds. A plan fixes
 * everything else in args, in its pages and in its rotation, except pointers.
 * attnkit_append_plan_size returns the bytes of a plan. The memory of a plan must be aligned to 16
 * bytes. */
ATTNKIT_API size_t attnkit_append_plan_size(void);

/* Writes a plan, as attnkit_attention_plan does. */
ATTNKIT_API attnkit_status attnkit_append_plan(const attnkit_append_args *args,
                                               const attnkit_exec *exec, void *plan,
                                               size_t plan_size, char *message);

/* Sets *bytes to the workspace that any run of the plan needs. */
ATTNKIT_API attnkit_status attnkit_append_plan_workspace(const void *plan, size_t *bytes,
                                                         char *message);

/* The lengths and pointers of a run. Each field has the meaning of the field with the same name in
 * attnkit_append_args and its groups. */
typedef struct attnkit_append_data {
    size_t size; /* sizeof(attnkit_append_data) */
    int64_t batch;
    int64_t len;
    const void *src;
    void *dst;
    float *dst_scales;
    const void *starts;    /* integers of the planned width */
    const void *lens;      /* integers of the planned width */
    const void *positions; /* of the rotation; integers of the planned width */
    const int32_t *block_table;
    const float *cos;
    const float *sin;
} attnkit_append_data;

/* Runs a plan. exec is as for attnkit_attention_run. */
ATTNKIT_API attnkit_status attnkit_append_run(const void *plan, const attnkit_append_data *data,
                                              const attnkit_exec *exec, char *message);

static inline void attnkit_rotation_init(attnkit_rotation *rotation)
{
    memset(rotation, 0, sizeof *rotation);
    rotation->size = sizeof *rotation;
}

static inline void attnkit_append_args_init(attnkit_append_args *args)
{
    memset(args, 0, sizeof *args);
    args->size = sizeof *args;
}

static inline void attnkit_append_data_init(attnkit_append_data *data)
{
    memset(data, 0, sizeof *data);
    data->size = sizeof *data;
}

#ifdef __cplusplus
}
#endif

#endif /* ATTNKIT_PUBLIC_CACHE_H */
