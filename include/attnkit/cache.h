/* SPDX-License-Identifier: Apache-2.0
 *
 * attnkit: appending to a KV cache. attnkit.h and options.h come first.
 */
#include "attnkit.h" /* which includes this file in its turn */

#ifndef ATTNKIT_PUBLIC_CACHE_H
#define ATTNKIT_PUBLIC_CACHE_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
 * Appending to a KV cache: with rotation (RoPE) and conversion on the way.
 *
 * For batch entry b, head h and row i < lens[b], with r = starts[b] + i and p = positions[b] + i:
 *
 *     dst[b][h][r] = convert(rotate(src[b][h][i], p))
 *
 * One call for K, with rotation; one for V, without; and one for Q, into a plain tensor or in
 * place. Nothing else of dst is written.
 *
 * Rotation. Each of the dim / 2 pairs of elements (x0, x1) is turned by an angle, in binary32:
 *
 *     y0 = fma(x0, cos, -(x1 * sin)),   y1 = fma(x1, cos, x0 * sin)
 *
 * Elements from dim on are not turned, where dim is the rotation's. For pair j, cos and sin are
 * entry [p][j] of tables that the caller has (for frequencies scaled in any way), or else those of
 * the angle
 *
 *     p * 2^(-2 j / dim * log2(base)),   which is p / base^(2 j / dim),
 *
 * with every operation in binary64, of which log2 is off by at most 6 * 2^-53 of its value, 2^x by
 * 3 and cos and sin by 5 times 2^-53, whatever the angle; then cos and sin are rounded to binary32.
 *
 * Conversion. src is widened to binary32, which is exact, and rounded once: to nearest even for
 * ATTNKIT_F16 and ATTNKIT_BF16; for ATTNKIT_I8 and ATTNKIT_Q8_0, a group of elements gets the
 * scale max |x| / 127 (for Q8_0 rounded to binary16) and each element is x / scale, rounded to
 * nearest even. A block of ATTNKIT_Q4_0 or ATTNKIT_Q5_0 gets the scale x / -8 or x / -16, where x
 * is its element of the largest magnitude, and the bytes that ggml's reference gives it
 * (docs/format.md). A group with a NaN or an infinity becomes NaN as a whole. Other blocks and
 * ATTNKIT_F8_E4M3 are not written. Rows that are neither converted nor turned are copied byte for
 * byte.
 *
 * The bits of a row depend on its src, p and the options alone, those of a NaN included: not on the
 * instruction set, the threads or how rows are grouped into calls.
 */

/* Which elements of a row are a pair. */
typedef int32_t attnkit_rope;
enum {
    ATTNKIT_ROPE_NONE = 0,        /* no rotation */
    ATTNKIT_ROPE_INTERLEAVED = 1, /* 2 j and 2 j + 1 */
    ATTNKIT_ROPE_HALF = 2         /* j and j + dim / 2 */
};

/* How rows are turned by their positions. */
typedef struct attnkit_rotation {
    size_t size;             /* sizeof(attnkit_rotation) */
    attnkit_rope kind;       /* which elements are a pair */
    uint32_t flags;          /* 0 */
    int64_t dim;             /* elements of a row that are turned, even, at most the row; 0: all */
    double base;             /* at least 1; 0 means 10000, or that there are tables */
    const float *cos;        /* [table_positions][dim / 2], dense; both tables or none */
    const float *sin;        /* the same */
    int64_t table_positions; /* of the tables; 0 without */
    attnkit_ints positions;  /* [batch], position of row 0, not negative; none: starts */
} attnkit_rotation;

/* Which rows are appended, from where and to where. */
typedef struct attnkit_append_args {
    size_t size; /* sizeof(attnkit_append_args) */

    /* Shape, none of it negative. batch, heads or len of 0 are legal: nothing is done. */
    int64_t batch;
    int64_t heads;
    int64_t len;      /* rows of src for each batch entry and head */
    int64_t dim;      /* elements of a row, at least 1; for blocks a multiple of 32 */
    int64_t capacity; /* rows of dst for each batch entry and head; paged, those of its table */

    /* src [batch][heads][len][dim] of ATTNKIT_F32, F16 or BF16, dst [batch][heads][capacity][dim]
     * of any such type, or paged [pages][heads][page_size][dim]; dst_scales with one of ATTNKIT_I8,
     * else none, has the shape of dst with dim / scale_group binary32 numbers in a row. dst and
     * dst_scales overlap nothing that the call reads or writes, but may lie in the gaps between
     * rows of each other and of src. And dst may be src itself, for a rotation in place: then the
     * type, the address and the strides are the same, starts is none and dst is neither paged nor
     * tiled; a parallel-for must not run a task of such a call again.
     * Tiles: with ATTNKIT_TILED in dst.layout, dst and dst_scales are shaped as k and k_scales of
     * an attention with that layout, where capacity is kv_len. A row of dst then is the elements
     * that the row has in its tile. No other byte of a tile is read or written, so that the rows of
     * one may come from several calls and threads; but none of its bytes may be another tensor's.
     */
    attnkit_tensor src;
    attnkit_tensor dst;
    attnkit_tensor dst_scales;
    int64_t scale_group; /* elements that share a scale, a divisor of dim; 0 means dim */

    /* Which rows: starts[b] + lens[b] is at most capacity. */
    attnkit_ints starts; /* [batch], row of dst for row 0: the keys cached so far; none: 0 */
    attnkit_ints lens;   /* [batch], each 0 .. len: how many rows of src are taken; none: len */

    /* Only the block table's entries for rows that are written are read. No two rows of a call may
     * lie in the same row of a page: that is not checked, and one of them is lost. */
    const attnkit_pages *pages;       /* or NULL */
    const attnkit_rotation *rotation; /* or NULL: none */
} attnkit_append_args;

/* Bytes of workspace that attnkit_append needs for these args and this exec (NULL: one thread). Of
 * the pointers it only matters which are NULL: nothing is read through them. At most, for each
 * thread, 12 * dim + 128 bytes, and of tiles 5 * dim more. */
ATTNKIT_API attnkit_status attnkit_append_workspace(const attnkit_append_args *args,
                                                    const attnkit_exec *exec, size_t *bytes,
                                                    char *message);

/* Append. exec is as for attention; work is shared by rows, all heads of a row together. Cost:
 * reading src and writing dst once, and into tiles some 0.6 ns for each element; for angles
 * also some 15 ns for each pair of a position (all its heads together) and for each pair of a
 * call. A call that fails has written nothing. */
ATTNKIT_API attnkit_status attnkit_append(const attnkit_append_args *args, const attnkit_exec *exec,
                                          char *message);

/* Plan and run, as those of an attention: batch, len and exec.threads are upper bounds, and types,
 * strides and capacity are fixed, as are kind, dim and base of the rotation and the size of its
 * tables. attnkit_append_plan_size: bytes of a plan, whose memory is aligned to 16. */
ATTNKIT_API size_t attnkit_append_plan_size(void);

/* Writes a plan, as attnkit_attention_plan does. */
ATTNKIT_API attnkit_status attnkit_append_plan(const attnkit_append_args *args,
                                               const attnkit_exec *exec, void *plan,
                                               size_t plan_size, char *message);

/* Bytes of workspace that any run of the plan needs. */
ATTNKIT_API attnkit_status attnkit_append_plan_workspace(const void *plan, size_t *bytes,
                                                         char *message);

/* What a run brings: fields of the same names in attnkit_append_args and its groups. */
typedef struct attnkit_append_data {
    size_t size; /* sizeof(attnkit_append_data) */
    int64_t batch;
    int64_t len;
    const void *src;
    void *dst;
    float *dst_scales;
    const void *starts;    /* integers of the width that was planned, */
    const void *lens;      /* these, too, */
    const void *positions; /* and these of the rotation */
    const int32_t *block_table;
    const float *cos;
    const float *sin;
} attnkit_append_data;

/* Runs a plan. exec as for attnkit_attention_run. */
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
