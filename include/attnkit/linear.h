/* SPDX-License-Identifier: Apache-2.0
 *
 * attnkit: linear maps (the projections of a layer) and token embeddings. Read attnkit.h first.
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
 * w is [out_dim][in_dim], as in PyTorch's Linear. The matrix w is packed once, into the caller's
 * memory, and used any number of times, also by several threads at once. The sum is taken in
 * binary32, in the order of d, by fused multiply-adds. Adding the bias takes one rounding, and
 * conversion to ATTNKIT_F16 or ATTNKIT_BF16 takes one more rounding. The bits of a row of y depend
 * only on its x, w and bias. The instruction set, the threads and the other rows of the call do not
 * change a bit.
 *
 * With ATTNKIT_INTEGERS in flags, the elements of x are rounded to integers of 8 bits, and are
 * multiplied by the bytes of a matrix of ATTNKIT_Q8_0 as integers. The release 0.1.0 does not know
 * the field flags, and refuses the struct if a flag is set.
 *
 * Arguments   w is ATTNKIT_Q8_0. A call with another type of w returns ATTNKIT_UNSUPPORTED, and so
 *             does a layer with the flag. Any types of x and y, strides, a bias, plans and threads
 *             may be combined with the flag. The packed matrix is the same as without the flag.
 * Arithmetic  Each group of 32 elements of a row of x is rounded to signed integers of 8 bits with
 *             a common scale in binary32: the largest |x| of these elements becomes 127. For each
 *             group the products of these integers with the bytes of w are summed exactly. The sum
 *             is multiplied by the product of both scales (of x and of w) and added to y in
 *             binary32, group after group. Step 18 of kernels/README.md lists each rounding.
 * Bits        The flag changes the bits of y. With and without the flag, the bits of a row depend
 *             only on its x, w and bias. docs/semantics.md names the tests.
 * Accuracy    An element of x is off by at most 1/254 of the largest |x| of its 32 elements. If all
 *             elements of a group of 32 are below 2^-100 in magnitude, they become 0. The roundings
 *             of binary32 add to these errors. If x and w are normally distributed around 0, the
 *             flag makes errors in y that are about as large (root mean square) as the errors from
 *             rounding w to ATTNKIT_Q8_0.
 * NaN         A NaN or an infinity in x makes its row of y NaN. If a scale in row o of w is NaN,
 *             column o of y is NaN. A group gives an infinity if the scale of w in the group is
 *             infinite, or if the product of both scales of the group overflows binary32. If the
 *             sum of integers of this group is 0, the group gives NaN instead.
 * Cost        The units "avx2+vnni", "avx512+vnni", "neon+dotprod" and "neon+i8mm" have
 *             instructions for these products. bench/README.md says how to measure the time.
 */

/* The arguments of packing a matrix. */
typedef struct attnkit_pack_args {
    size_t size; /* sizeof(attnkit_pack_args) */

    int64_t out_dim; /* at least 1 */
    int64_t in_dim;  /* at least 1; a multiple of 32 if w.type or packed_type is ATTNKIT_Q8_0 */

    /* w [out_dim][in_dim], of ATTNKIT_F32, F16, BF16 or Q8_0. With ATTNKIT_STRIDED, strides[2] is
     * the stride of its rows, and strides[0] and strides[1] are ignored. */
    attnkit_tensor w;

    /* packed_type: ATTNKIT_F32, F16, BF16 or Q8_0. If w is ATTNKIT_Q8_0, packed_type must be
     * ATTNKIT_Q8_0, too. If packed_type differs from the type of w, elements are converted as by
     * attnkit_append. */
    attnkit_type packed_type;
    uint32_t flags; /* 0 */

    /* Memory for the packed matrix, aligned to 64 bytes, which overlaps nothing. The bytes of the
     * packed matrix depend only on w and the types, and may be kept in a file. The packed matrix is
     * tiles of 16 rows of w, with the layout of tiles of K, [ceil(out_dim / 16)][in_dim][16]. In
     * the last tile, zeros take the place of rows that w does not have. */
    void *packed;
    size_t packed_size; /* bytes, at least the size that attnkit_packed_size sets */
} attnkit_pack_args;

/* Sets *bytes to the size of the packed matrix: ceil(out_dim / 16) * 16 * in_dim elements. Uses
 * only out_dim, in_dim, w.type, packed_type and flags. */
ATTNKIT_API attnkit_status attnkit_packed_size(const attnkit_pack_args *args, size_t *bytes,
                                               char *message);

/* Packs a matrix. exec may be NULL: one thread. Needs no workspace. Cost: some 1 ns for each
 * element. */
ATTNKIT_API attnkit_status attnkit_pack(const attnkit_pack_args *args, const attnkit_exec *exec,
                                        char *message);

/* The arguments of a linear map. */
typedef struct attnkit_linear_args {
    size_t size; /* sizeof(attnkit_linear_args) */

    int64_t rows;    /* if 0, the call does nothing */
    int64_t in_dim;  /* elements of a row of x */
    int64_t out_dim; /* elements of a row of y */

    /* x [rows][in_dim] and y [rows][out_dim], of ATTNKIT_F32, F16 or BF16. With ATTNKIT_STRIDED,
     * strides[2] is the stride of their rows, and strides[0] and strides[1] are ignored. Rows of x
     * may repeat. Rows of y do not overlap each other, and y overlaps no other tensor. w is the
     * packed matrix that attnkit_pack wrote for the same dims. w.type is packed_type, and w is
     * dense. */
    attnkit_tensor x;
    attnkit_tensor w;
    attnkit_tensor y;
    const float *bias; /* [out_dim], or NULL for none */

    uint32_t flags;    /* ATTNKIT_INTEGERS, or 0 */
    uint32_t reserved; /* 0 */
} attnkit_linear_args;

/* Sets *bytes to the workspace that attnkit_linear needs for these args and this exec (NULL: one
 * thread). Reads no tensor and no bias. The size never shrinks as `rows` grows. For each thread the
 * size is at most 4 * 256 * (in_dim + 512) + 4096 bytes. */
ATTNKIT_API attnkit_status attnkit_linear_workspace(const attnkit_linear_args *args,
                                                    const attnkit_exec *exec, size_t *bytes,
                                                    char *message);

/* Computes a linear map. exec is as for attention. Threads share out the columns of y, and also the
 * rows if there are many rows. In a parallel-for, a thread that has finished its share takes work
 * from the shares of other threads (work stealing).
 * Cost: 2 * in_dim FLOPs for each element of y. w is read from memory once for each 256 rows. */
ATTNKIT_API attnkit_status attnkit_linear(const attnkit_linear_args *args, const attnkit_exec *exec,
                                          char *message);

/* Plan and run, as for attention. rows and exec.threads are upper bounds. A plan fixes dims, types,
 * strides, flags and whether there is a bias. One plan serves all matrices of a shape and type.
 * attnkit_linear_plan_size returns the bytes of a plan. The memory of a plan must be aligned to 16
 * bytes. */
ATTNKIT_API size_t attnkit_linear_plan_size(void);

/* Writes a plan, as attnkit_attention_plan does. */
ATTNKIT_API attnkit_status attnkit_linear_plan(const attnkit_linear_args *args,
                                               const attnkit_exec *exec, void *plan,
                                               size_t plan_size, char *message);

/* Sets *bytes to the workspace that any run of the plan needs. */
ATTNKIT_API attnkit_status attnkit_linear_plan_workspace(const void *plan, size_t *bytes,
                                                         char *message);

/* The rows and pointers of a run. Each field has the meaning of the field with the same name in
 * attnkit_linear_args. */
typedef struct attnkit_linear_data {
    size_t size; /* sizeof(attnkit_linear_data) */
    int64_t rows;
    const void *x;
    const void *w;
    const float *bias;
    void *y;
} attnkit_linear_data;

/* Runs a plan. exec is as for attnkit_attention_run. */
ATTNKIT_API attnkit_status attnkit_linear_run(const void *plan, const attnkit_linear_data *data,
                                              const attnkit_exec *exec, char *message);

/* ---------------------------------------------------------------------------------------------
 * Token embeddings: out[i] = table[ids[i]], or zeros if ids[i] is the padding id.
 */

#define ATTNKIT_PADDING_GIVEN 1u /* bit of flags: padding_id is used */

/* The arguments of an embedding. */
typedef struct attnkit_embed_args {
    size_t size;       /* sizeof(attnkit_embed_args) */
    uint32_t flags;    /* ATTNKIT_PADDING_GIVEN, or 0 */
    uint32_t reserved; /* 0 */

    int64_t count; /* number of ids; may be 0 */
    int64_t vocab; /* rows of table */
    int64_t dim;   /* elements of a row, at least 1; for ATTNKIT_Q8_0 a multiple of 32 */

    /* ids [count], each in 0 .. vocab - 1 or the padding id; table [vocab][dim] of ATTNKIT_F32,
     * F16, BF16 or Q8_0; out [count][dim] of ATTNKIT_F32, F16 or BF16, which overlaps nothing. With
     * ATTNKIT_STRIDED, strides[2] is the stride of rows, and strides[0] and strides[1] are ignored.
     * If the types of table and out are equal, rows are copied byte for byte. Otherwise elements
     * are widened to binary32, which is exact, and rounded once to the type of out. */
    attnkit_ints ids;
    attnkit_tensor table;
    attnkit_tensor out;
    int64_t padding_id; /* with ATTNKIT_PADDING_GIVEN any number, even outside the table; else 0 */
} attnkit_embed_args;

/* Looks up rows. exec may be NULL: one thread. Needs no workspace. If an id is out of range,
 * returns ATTNKIT_BAD_ARGUMENT with the id and its place in ids in the message, and writes
 * nothing. */
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
