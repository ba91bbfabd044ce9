/* SPDX-License-Identifier: Apache-2.0
 *
 * attnkit: linear maps, the projections of a layer, and token embeddings. attnkit.h comes first.
 */
#include "attnkit.h" /* which includes this file in its turn */

#ifndef ATTNKIT_PUBLIC_LINEAR_H
#define ATTNKIT_PUBLIC_LINEAR_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
 * Linear maps: the projections of a layer.
 *
 *     y[i][o] = sum_d x[i][d] * w[o][d] + bias[o]
 *
 * w is [out_dim][in_dim], as PyTorch's Linear has it. It is packed once, into the caller's memory,
 * and used any number of times, by any number of threads at once. The sum is taken in binary32, in
 * the order of d, by fused multiply-adds; the bias is added to it with one rounding, and y rounded
 * to its type with one more. A row of y depends on its x, w and bias alone, bit for bit: not on the
 * instruction set, the threads or the other rows of the call.
 */

/* Which matrix is packed, from where and to where. */
typedef struct attnkit_pack_args {
    size_t size; /* sizeof(attnkit_pack_args) */

    int64_t out_dim; /* at least 1 */
    int64_t in_dim;  /* at least 1; for ATTNKIT_Q8_0, of w or packed, a multiple of 32 */

    /* w [out_dim][in_dim], of ATTNKIT_F32, F16, BF16 or Q8_0; strides[2] is of its rows, the other
     * two are not looked at. */
    attnkit_tensor w;

    /* packed_type: the type of w, or any of the four where w is not ATTNKIT_Q8_0: then elements are
     * converted as attnkit_append converts. */
    attnkit_type packed_type;
    uint32_t flags; /* 0 */

    /* Memory for the packed matrix, aligned to 64 bytes, which overlaps nothing. Its bytes follow
     * from w and the types alone, and may be kept in a file: tiles of 16 rows of w as tiles of K,
     * [ceil(out_dim / 16)][in_dim][16], zeros after the last row. */
    void *packed;
    size_t packed_size; /* at least what attnkit_packed_size says */
} attnkit_pack_args;

/* Bytes of the packed matrix: ceil(out_dim / 16) * 16 * in_dim elements. Looks at the shape and
 * packed_type. */
ATTNKIT_API attnkit_status attnkit_packed_size(const attnkit_pack_args *args, size_t *bytes,
                                               char *message);

/* Packs. exec may be NULL: one thread; no workspace is needed. Cost: some 1 ns for each element. */
ATTNKIT_API attnkit_status attnkit_pack(const attnkit_pack_args *args, const attnkit_exec *exec,
                                        char *message);

/* Rows, the matrix they are multiplied by, and the result. */
typedef struct attnkit_linear_args {
    size_t size; /* sizeof(attnkit_linear_args) */

    int64_t rows;    /* 0 is legal: nothing is done */
    int64_t in_dim;  /* elements of a row of x */
    int64_t out_dim; /* elements of a row of y */

    /* x [rows][in_dim] and y [rows][out_dim], of ATTNKIT_F32, F16 or BF16; strides[2] is of their
     * rows, the other two are not looked at. Rows of x may repeat; rows of y do not overlap each
     * other, and y overlaps nothing else. w is what attnkit_pack wrote for the same dims, its type
     * is packed_type, and it is dense. */
    attnkit_tensor x;
    attnkit_tensor w;
    attnkit_tensor y;
    const float *bias; /* [out_dim], or NULL for none */
} attnkit_linear_args;

/* Bytes of workspace that attnkit_linear needs for these args and this exec (NULL: one thread); of
 * the pointers it only matters which are NULL. Never shrinks as rows grows. At most, for each
 * thread, 4 * 256 * (in_dim + 512) + 4096 bytes. */
ATTNKIT_API attnkit_status attnkit_linear_workspace(const attnkit_linear_args *args,
                                                    const attnkit_exec *exec, size_t *bytes,
                                                    char *message);

/* A linear map. Threads share out the columns of y, and rows where there are many; in a
 * parallel-for one that is through with its part goes on with those of others. Cost: 2 * in_dim
 * FLOPs for each element of y; w is read from memory once for each 256 rows. */
ATTNKIT_API attnkit_status attnkit_linear(const attnkit_linear_args *args, const attnkit_exec *exec,
                                          char *message);

/* Plan and run, as those of an attention: rows and exec.threads are upper bounds, dims, types,
 * strides and whether there is a bias are fixed. One plan serves all matrices of a shape and type.
 * attnkit_linear_plan_size: bytes of a plan, whose memory is aligned to 16. */
ATTNKIT_API size_t attnkit_linear_plan_size(void);

/* Writes a plan, as attnkit_attention_plan does. */
ATTNKIT_API attnkit_status attnkit_linear_plan(const attnkit_linear_args *args,
                                               const attnkit_exec *exec, void *plan,
                                               size_t plan_size, char *message);

/* Bytes of workspace that any run of the plan needs. */
ATTNKIT_API attnkit_status attnkit_linear_plan_workspace(const void *plan, size_t *bytes,
                                                         char *message);

/* What a run brings: fields of the same names in attnkit_linear_args. */
typedef struct attnkit_linear_data {
    size_t size; /* sizeof(attnkit_linear_data) */
    int64_t rows;
    const void *x;
    const void *w;
    const float *bias;
    void *y;
} attnkit_linear_data;

/* Runs a plan. exec as for attnkit_attention_run. */
ATTNKIT_API attnkit_status attnkit_linear_run(const void *plan, const attnkit_linear_data *data,
                                              const attnkit_exec *exec, char *message);

/* ---------------------------------------------------------------------------------------------
 * Token embeddings: out[i] = table[ids[i]], or zeros where ids[i] is the padding id.
 */

#define ATTNKIT_PADDING_GIVEN 1u /* of flags: there is a padding id */

/* Which rows of which table are looked up. */
typedef struct attnkit_embed_args {
    size_t size;       /* sizeof(attnkit_embed_args) */
    uint32_t flags;    /* ATTNKIT_PADDING_GIVEN */
    uint32_t reserved; /* 0 */

    int64_t count; /* of ids; 0 is legal */
    int64_t vocab; /* rows of table */
    int64_t dim;   /* elements of a row, at least 1; for ATTNKIT_Q8_0 a multiple of 32 */

    /* ids [count], each one of 0 .. vocab - 1 or the padding id; table [vocab][dim] of ATTNKIT_F32,
     * F16, BF16 or Q8_0; out [count][dim] of ATTNKIT_F32, F16 or BF16, which overlaps nothing.
     * strides[2] is of rows, the other two are not looked at. Rows are copied byte for byte where
     * the types are equal, else elements are widened to binary32, which is exact, and rounded once
     * to the type of out. */
    attnkit_ints ids;
    attnkit_tensor table;
    attnkit_tensor out;
    int64_t padding_id; /* with ATTNKIT_PADDING_GIVEN, any number, in the table or not; else 0 */
} attnkit_embed_args;

/* Looks up. exec may be NULL: one thread; no workspace is needed. An id that is out of range is
 * ATTNKIT_BAD_ARGUMENT with its index and value in the message, and nothing is written. */
ATTNKIT_API attnkit_status attnkit_embed(const attnkit_embed_args *args, const attnkit_exec *exec,
                                         char *message);

static inline void attnkit_pack_args_init(attnkit_pack_args *args)
{
    memset(args, 0, sizeof *args);
    args->size = sizeof *args;
}

static inline void attnkit_linear_args_init(attnkit_linear_args *args)
{
    memset(args, 0, sizeof *args);
    args->size = sizeof *args;
}

static inline void attnkit_linear_data_init(attnkit_linear_data *data)
{
    memset(data, 0, sizeof *data);
    data->size = sizeof *data;
}

static inline void attnkit_embed_args_init(attnkit_embed_args *args)
{
    memset(args, 0, sizeof *args);
    args->size = sizeof *args;
}

#ifdef __cplusplus
}
#endif

#endif /* ATTNKIT_PUBLIC_LINEAR_H */
