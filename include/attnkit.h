/* SPDX-License-Identifier: Apache-2.0
 *
 * attnkit: attention for CPUs. This header and those it includes are the manual. Read it from top
 * to bottom: what everyone needs comes first, in this file; then, each in a file of its own,
 *
 *     attnkit/options.h   optional groups of an attention call: storage of K and V, visibility,
 *                         score functions, states, weights
 *     attnkit/merge.h     one result of attention over several parts of the keys
 *     attnkit/cache.h     appending to a KV cache, with rotation (RoPE) and conversion
 *     attnkit/linear.h    projections and token embeddings
 *     attnkit/layer.h     the whole multi-head attention layer
 *
 * What it does
 *   out = softmax(scale * q k^T, over the keys a row may see) v, in one pass over the keys
 *   (Milakov & Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135), with grouped
 *   query heads, causal masking, a length for each sequence and the logarithm of the softmax's
 *   denominator as a second output. K and V are f32, f16, bf16 or quantised to 8 bits, dense,
 *   strided or in pages, K also in tiles of 16 keys. The same call serves prefill (many query
 *   rows), chunks of a prefill, and decoding (one row). A second call appends rows to a KV cache,
 *   and rotates (RoPE) and converts them on the way. A third one merges the results of attention
 *   over several parts of the keys. And there are the parts around attention, and all of them as
 *   one layer: embeddings, projections, output projection.
 *
 * What it promises
 *   - The same bits everywhere. A row of the result is a function of its q, of the options, and of
 *     (absolute key index, k, v) for the keys it sees, alone. It does not change with the
 *     instruction set, the number of threads, the batch, the other rows of the call, the strides
 *     or the addresses. The order of every rounding is written in kernels/README.md.
 *   - Masked means absent. What lies in the K and V rows of a key that a query row does not see
 *     changes no bit of that row, be it NaN or infinity; keys that no row of the call sees
 *     are not read at all, except those that share a tile of K with one. A row that sees no key
 *     is 0, with a log-sum-exp of -infinity.
 *   - A NaN in a q or k that a row sees makes the whole row NaN; a NaN in a v that it sees makes
 *     that column NaN. A score of +infinity makes the row NaN; one of -infinity has weight 0, as
 *     has one some 70 below the largest of its row: weights below 2^-100 are slow to compute with.
 *   - Not one byte is read or written outside the rows and tiles that pointer, shape and strides
 *     describe.
 *   - A call allocates nothing, locks nothing, prints nothing, starts no thread and never aborts.
 *     On any error it returns a status and a message, and the outputs are as they were.
 *   - A call needs at most 64 KB of stack.
 *   - A call makes no system call, so that the strictest filter (seccomp) may be on while it runs.
 *   - A call may be made in a signal handler that interrupted another one on the same thread, and
 *     in the child of a fork, even one in the middle of a call or with other threads in calls.
 *   - Copies of the library in one process, in files or namespaces of the loader of their own, do
 *     not meet. Loaded and unloaded, it leaves no memory, mapping or descriptor behind.
 *   - ATTNKIT_ISA, the only variable of the environment that is read, has no effect on a set-uid
 *     program.
 *
 * What it does not do
 *   - No backward pass. Asking for what is not there is an error, never a slow or a wrong answer.
 *   - It owns no threads and no memory: the caller brings both.
 *
 * Example: causal attention over n tokens, 8 query heads that share 2 KV heads. What the query
 * refuses the call refuses, too, and a missing workspace is a status: one check is enough.
 *
 *     attnkit_attention_args args = {
 *         .size = sizeof args, .flags = ATTNKIT_CAUSAL, .align = ATTNKIT_ALIGN_UPPER_LEFT,
 *         .batch = 1, .q_heads = 8, .kv_heads = 2, .q_len = n, .kv_len = n, .head_dim = 64,
 *         .q = {.data = q}, .k = {.data = k}, .v = {.data = v}, .out = {.data = out}};
 *     attnkit_exec exec = {.size = sizeof exec};
 *     char message[ATTNKIT_MESSAGE_SIZE];
 *     if (attnkit_attention_workspace(&args, &exec, &exec.workspace_size, message) == ATTNKIT_OK)
 *         exec.workspace = malloc(exec.workspace_size);
 *     if (attnkit_attention(&args, &exec, message) != ATTNKIT_OK)
 *         fprintf(stderr, "%s\n", message);
 *     free(exec.workspace);
 *
 * The same with a window of 512 keys and a softcap: options are groups that hang on the call.
 *
 *     attnkit_window window = {.size = sizeof window, .left = 511};
 *     attnkit_visibility visibility = {.size = sizeof visibility, .window = &window};
 *     attnkit_score_mods scores = {.size = sizeof scores, .softcap = 30.0};
 *     args.visibility = &visibility;
 *     args.scores = &scores;
 *
 * C++17 has attnkit.hpp, with the same structs and names.
 *
 * Thread safety: every function may be called from any thread at any time.
 */
#ifndef ATTNKIT_H
#define ATTNKIT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(_WIN32)
#define ATTNKIT_API
#elif defined(__GNUC__)
#define ATTNKIT_API __attribute__((visibility("default")))
#else
#define ATTNKIT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
 * Version. The library's is a string because it may differ from the header's.
 */

#define ATTNKIT_VERSION_MAJOR 0 /* of this header */
#define ATTNKIT_VERSION_MINOR 1 /* of this header */
#define ATTNKIT_VERSION_PATCH 0 /* of this header */

/* The version of the library that is linked: "0.1.0". */
ATTNKIT_API const char *attnkit_version(void);

/* ---------------------------------------------------------------------------------------------
 * Status and message. Everything that can fail returns a status, and takes a message: NULL, or
 * a buffer of ATTNKIT_MESSAGE_SIZE bytes. On an error the message names the argument and its
 * value, as in "kv_lens[3] is 4097: must be between 0 and kv_len (4096)"; on ATTNKIT_OK it is "".
 */

/* What became of a call. */
typedef enum attnkit_status {
    ATTNKIT_OK = 0,            /* it is done */
    ATTNKIT_BAD_ARGUMENT = 1,  /* a value that no version of the library accepts */
    ATTNKIT_UNSUPPORTED = 2,   /* a value that this version does not know or has no kernel for */
    ATTNKIT_OVERFLOW = 3,      /* sizes, strides or positions that leave 63 bits or the memory */
    ATTNKIT_BAD_WORKSPACE = 4, /* missing, too small, or inside a tensor */
    ATTNKIT_BAD_ISA = 5        /* a name that is unknown, or that this CPU cannot run */
} attnkit_status;

#define ATTNKIT_MESSAGE_SIZE 256 /* bytes of a message, with the 0 at its end */

/* The name of a status, such as "ATTNKIT_BAD_ARGUMENT"; never NULL. */
ATTNKIT_API const char *attnkit_status_string(attnkit_status status);

/* ---------------------------------------------------------------------------------------------
 * Structs. Each one that may grow begins with its size, so that a newer library knows an older
 * caller, and an older library refuses, by name, what it does not know. Zero means the default in
 * every field: set the whole struct to zero, its size, then what you need. A designated initialiser
 * does that in C; attnkit_..._init() does it in any language. Where an optional group is NULL, or
 * zero in all but its size, nothing of it is asked for; the exception is attnkit_window.
 *
 * Three small structs have no size, because they are frozen: attnkit_tensor, attnkit_ints and
 * attnkit_state.
 */

/* The type of a tensor's elements. */
typedef int32_t attnkit_type;
enum {
    ATTNKIT_F32 = 0,  /* IEEE 754 binary32 */
    ATTNKIT_F16 = 1,  /* IEEE 754 binary16 */
    ATTNKIT_BF16 = 2, /* the upper half of binary32 */
    ATTNKIT_I8 = 3,   /* signed bytes, and elsewhere a binary32 scale for each group of a row's */
    ATTNKIT_Q8_0 = 4, /* blocks of 34 bytes: a binary16 scale, then 32 signed bytes */

    /* Rows of K and V only, without tiles. Blocks of ggml, by its names, which begin with a
     * binary16 scale d, Q4_1 and Q5_1 with a binary16 minimum m after it; docs/format.md has the
     * rest. q is an unsigned integer of 4 or 5 bits; append writes Q4_0 and Q5_0. */
    ATTNKIT_Q4_0 = 5,     /* 32 elements in 18 bytes: (q - 8) * d */
    ATTNKIT_Q4_1 = 6,     /* 32 in 20: q * d + m */
    ATTNKIT_Q5_0 = 7,     /* 32 in 22: (q - 16) * d */
    ATTNKIT_Q5_1 = 8,     /* 32 in 24: q * d + m */
    ATTNKIT_IQ4_NL = 9,   /* 32 in 18: d times the q-th of 16 integers */
    ATTNKIT_Q1_0 = 10,    /* 128 in 18: d or -d, by a bit */
    ATTNKIT_Q2_0 = 11,    /* 64 in 18: -1, 0, 1 or 2 times d, by 2 bits */
    ATTNKIT_F8_E4M3 = 12, /* bytes of 8 bit floating point, E4M3 without infinities, and elsewhere
                           * binary32 scales as for ATTNKIT_I8 */

    ATTNKIT_BOOL = 64, /* of masks: a byte, true where it is not 0 */
    ATTNKIT_BITS = 65  /* of masks: a bit, element j in bit j % 8 of byte j / 8 */
};

/* Bits of a tensor's layout. */
#define ATTNKIT_STRIDED 1u /* take the strides literally, even 0; without it they must be 0 */
#define ATTNKIT_TILED 2u   /* rows are stored in tiles of ATTNKIT_TILE_KEYS: see options.h */

/* A tensor in the caller's memory: rows of adjacent elements. Of a tensor that a call writes
 * (out, lse, weights, dst, y) data is written through; it is const so that an input needs no cast.
 * Strides are in bytes, of {batch, head, row} unless the field says otherwise; multiples of the
 * element, maybe negative, for inputs maybe 0, which repeats. Those of outputs nest: each is at
 * least what the rows inside it span. A stride along a dimension of size 1 is not looked at.
 * Without ATTNKIT_STRIDED the tensor is dense in the shape that the field states.
 * data is aligned to the element (2 bytes for blocks), and NULL only where there are no rows or the
 * tensor is optional. */
typedef struct attnkit_tensor {
    const void *data;   /* the first element */
    int64_t strides[3]; /* bytes */
    attnkit_type type;  /* of the elements */
    uint32_t layout;    /* 0: dense rows; else the bits above */
} attnkit_tensor;

/* The width of an array of integers. */
typedef int32_t attnkit_int_type;
enum {
    ATTNKIT_INT64 = 0, /* signed */
    ATTNKIT_INT32 = 1  /* signed, too */
};

/* An array of integers, of either width, read where it lies: lengths, offsets, cu_seqlens. */
typedef struct attnkit_ints {
    const void *data;      /* NULL: there is none */
    attnkit_int_type type; /* of its elements */
    int32_t reserved;      /* 0 */
} attnkit_ints;

/* Where query row 0 stands among the keys; a causal call must say it, nothing is guessed.
 * Row i of batch entry b is at position offset(b) + i. */
typedef int32_t attnkit_align;
enum {
    ATTNKIT_ALIGN_NONE = 0,         /* the rows have no position */
    ATTNKIT_ALIGN_UPPER_LEFT = 1,   /* offset = 0: a prompt from its start */
    ATTNKIT_ALIGN_BOTTOM_RIGHT = 2, /* offset = first_key + keys of b - rows of b: the last row
                                     * sees all keys */
    ATTNKIT_ALIGN_OFFSETS = 3       /* offset = q_offsets[b]; negative positions see no key */
};

/* ---------------------------------------------------------------------------------------------
 * The attention call.
 *
 * For batch entry b, query head h with KV head g = h / (q_heads / kv_heads), and query row i:
 *
 *     x_j          = scale * sum_d q[b][h][i][d] * k[b][g][j][d]       over the visible keys j
 *     x_j          = softcap * tanh(x_j / softcap)                     where there is a softcap
 *     x_j          = x_j + bias_scales[h] * bias[b][h][i][j]
 *                        + alibi_slopes[h] * (j - position of i)
 *     out[b][h][i] = sum_j softmax(x)_j * v[b][g][j]
 *     lse[b][h][i] = log sum_j exp(x_j)                                natural logarithm
 *
 * A sink is one more term in the denominator of the softmax and in lse: exp(sinks[h]), without a
 * key or a value. Which keys are visible is in options.h: all of them, up to the position of the
 * row with ATTNKIT_CAUSAL, and what the visibility group takes away.
 */

/* Bits of flags. */
#define ATTNKIT_CAUSAL 1u      /* row i sees the keys j <= its position; needs align */
#define ATTNKIT_SCALE_GIVEN 2u /* take scale literally, even 0; without it scale must be 0 */

#define ATTNKIT_CHUNK_KEYS 512 /* keys after which a softmax state starts afresh */
#define ATTNKIT_TILE_KEYS 16   /* keys of a tile */

/* What an attention call computes, and on what. */
typedef struct attnkit_attention_args {
    size_t size;         /* sizeof(attnkit_attention_args) */
    uint32_t flags;      /* of the bits above */
    attnkit_align align; /* where the query rows stand among the keys */

    /* Shape, none of it negative. batch, q_heads or q_len of 0 are legal: nothing is done.
     * kv_len = 0 is, too: out is 0, lse -infinity. */
    int64_t batch;
    int64_t q_heads;   /* a multiple of kv_heads; consecutive query heads share a KV head */
    int64_t kv_heads;  /* at least 1, unless q_heads is 0 */
    int64_t q_len;     /* query rows per head */
    int64_t kv_len;    /* keys per KV head; with kv_lens, the room for them */
    int64_t head_dim;  /* elements of a q and a k row, at least 1 */
    int64_t value_dim; /* elements of a v and an out row; 0 means head_dim */
    double scale;      /* with ATTNKIT_SCALE_GIVEN, finite in binary32; else 1 / sqrt(head_dim) */

    /* q [batch][q_heads][q_len][head_dim], k [batch][kv_heads][kv_len][head_dim],
     * v [batch][kv_heads][kv_len][value_dim], out [batch][q_heads][q_len][value_dim],
     * lse [batch][q_heads][q_len], optional. q and out are ATTNKIT_F32, F16 or BF16, k and v of any
     * type, each its own, lse is ATTNKIT_F32. All arithmetic is binary32: elements are widened to
     * it, which is exact except for the product with a scale of ATTNKIT_I8 and ATTNKIT_F8_E4M3 and
     * for q * d + m, rounded once each, and the result is rounded to the type of out once. A row of
     * blocks is a whole number of them: head_dim or value_dim a multiple of 32, 64 or 128.
     * Inputs, of the groups as well, may overlap each other; outputs overlap nothing, but may lie
     * in the gaps between rows of other tensors. */
    attnkit_tensor q;
    attnkit_tensor k;
    attnkit_tensor v;
    attnkit_tensor out;
    attnkit_tensor lse;

    attnkit_ints q_offsets; /* [batch], with ATTNKIT_ALIGN_OFFSETS, else none; + q_len < 2^63 */

    /* Optional groups (options.h), each NULL or a struct. */
    const struct attnkit_kv_storage *storage;    /* scales, pages, packed sequences */
    const struct attnkit_visibility *visibility; /* lengths, window, segments, masks */
    const struct attnkit_score_mods *scores;     /* bias, ALiBi, softcap, sinks, dropout */
    const struct attnkit_states *states;         /* part of the keys, softmax states in and out */
    const struct attnkit_weights_out *weights;   /* the weights as a third output */
} attnkit_attention_args;

/* How a call is run: on whose threads, in whose memory, by which instruction set.
 *
 * One thread             leave threads, thread and parallel_for zero.
 * Your own n threads     each of them makes the same call with threads = n, the same workspace and
 *                        its own thread = 0 .. n-1; the result is there when all have returned.
 * A parallel-for         set parallel_for and threads = n: the one call runs at most n tasks in it,
 *                        in any order, one after the other, or again; only two runs of the same
 *                        index at the same time are not allowed.
 *
 * In a parallel-for, a thread that is through with its part of the KV heads and row blocks goes on
 * with those of others, and in the end, where there are fewer than 8 of these for each thread, with
 * the keys of a head, in chunks of 512, with the same bits. So there may be more threads than
 * heads, and one that is slower or begins late is not waited for but where it is at work. Threads
 * of your own do the same if they can meet at a barrier, before and after, but only where these KV
 * heads and row blocks do not go round evenly. The workspace is free for another call when all
 * threads have returned. */
typedef struct attnkit_exec {
    size_t size;           /* sizeof(attnkit_exec) */
    void *workspace;       /* scratch of this call, any alignment, contents of no meaning */
    size_t workspace_size; /* at least what the workspace query of the call says */
    const char *isa;       /* NULL: the best one, or the one ATTNKIT_ISA names */
    int64_t threads;       /* shares the work is cut into; 0 means 1 */
    int64_t thread;        /* the share this call does; 0 with parallel_for */
    /* parallel_for calls task(arg, i) for every i in 0 .. n-1 and returns when all are done. */
    void (*parallel_for)(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg);
    void *pool; /* passed to parallel_for and barrier */
    /* With threads of your own: returns when all n threads have called it, as each of them does the
     * same number of times. NULL: they share out no keys, and some may have nothing to do. */
    void (*barrier)(void *pool);
} attnkit_exec;

/* Bytes of workspace that attnkit_attention needs for these args and this exec (its threads and
 * isa; exec may be NULL: one thread). Of the pointers it only matters which are NULL: nothing is
 * read through them. Never shrinks as q_len or kv_len grows, so that what the longest call needs
 * serves the shorter ones, and is, however long they are, at most for each thread
 *
 *     4 * (290 * head_dim + 780 * value_dim + 10000) + 4096 bytes,
 *
 * where a type is not ATTNKIT_F32 or there are pages, tiles, segments, masks or keep_first,
 * 4 * 129 * (head_dim + value_dim) more, with any mask (window and segments, too), softcap,
 * slopes or dropout 73728 more, with weights 4 * (192 * head_dim + 25000) more, and with several
 * threads 4 * 4 * 256 * (value_dim + 3) + 65536 more. With key_index it does grow: as with pages
 * and with a mask, and 17 * kv_len + 16 * batch + 16384 more.
 */
ATTNKIT_API attnkit_status attnkit_attention_workspace(const attnkit_attention_args *args,
                                                       const attnkit_exec *exec, size_t *bytes,
                                                       char *message);

/* Attention. exec may be NULL only if there is nothing to do. Cost: 2 * (head_dim + value_dim)
 * FLOPs for each query row and key it sees, and reading K and V once, or twice, for each block of
 * 256 query rows of a KV head. A row that sees NaN or infinities in V, or whose sums overflow, is
 * computed again: a call of only such rows takes up to 20 times as long, of a single row 3 times.
 * The caller's rounding and flush-to-zero modes do not matter and are restored. */
ATTNKIT_API attnkit_status attnkit_attention(const attnkit_attention_args *args,
                                             const attnkit_exec *exec, char *message);

/* ---------------------------------------------------------------------------------------------
 * Plan and run. Most of the cost of a small call is checking its arguments. A plan does that once,
 * for a shape, types, strides and options; a run brings the pointers and the lengths, and may be
 * made any number of times, by any threads at once, with the same plan: of all layers of a model,
 * say. The bits, and what is refused, are those of attnkit_attention.
 *
 *     void *plan = malloc(attnkit_attention_plan_size());
 *     attnkit_attention_plan(&args, &exec, plan, attnkit_attention_plan_size(), message);
 *     for (each layer) {
 *         attnkit_attention_data data = {.size = sizeof data, .batch = 1, .q_len = 1, .kv_len = n,
 *                                        .q = q, .k = k[layer], .v = v[layer], .out = out};
 *         attnkit_attention_run(plan, &data, &exec, message);
 *     }
 *
 * What a plan fixes: everything in args and its groups except pointers, and the instruction set.
 * batch, q_len and kv_len are upper bounds, and so are exec.threads. Strides stay as planned: a
 * tensor that is dense has the strides of the planned shape, whatever the lengths of a run. So do
 * the dense arrays of the groups.
 *
 * Planning reads through no pointer. Of the optional ones it matters which are NULL: a run brings
 * those that were planned, and no other. Where there is no memory yet, ATTNKIT_LATER stands for it.
 */

#define ATTNKIT_LATER ((void *)64) /* of a plan: a pointer that each run brings */

/* Bytes of the memory that a plan is written to, which is aligned to 16. */
ATTNKIT_API size_t attnkit_attention_plan_size(void);

/* Writes a plan of the attention that args describe, for at most exec.threads threads (exec may be
 * NULL: one) and the instruction set of exec. It may be copied, and serves this process. */
ATTNKIT_API attnkit_status attnkit_attention_plan(const attnkit_attention_args *args,
                                                  const attnkit_exec *exec, void *plan,
                                                  size_t plan_size, char *message);

/* Bytes of workspace that any run of the plan needs. */
ATTNKIT_API attnkit_status attnkit_attention_plan_workspace(const void *plan, size_t *bytes,
                                                            char *message);

/* What a run brings: each field is the one of the same name in attnkit_attention_args or its
 * groups, whose type, strides and shape the plan has. */
typedef struct attnkit_attention_data {
    size_t size; /* sizeof(attnkit_attention_data) */

    /* At most as planned. They are always given: 0 is no row, or no key. */
    int64_t batch;
    int64_t q_len;
    int64_t kv_len;

    const void *q;
    const void *k;
    const void *v;
    void *out;
    float *lse;

    /* Integers of the width that was planned. */
    const void *kv_lens;
    const void *q_offsets;
    const void *cu_seqlens_q;
    const void *cu_seqlens_kv;
    const int32_t *block_table;

    const struct attnkit_attention_group_data *groups; /* of the other groups; or NULL */
} attnkit_attention_data;

/* Runs a plan. exec as for attnkit_attention: its threads are at most those of the plan, its isa is
 * NULL or that of the plan. Checked each time: the plan, NULL, alignment, overlaps, lengths and
 * block tables. Never writes to the plan. */
ATTNKIT_API attnkit_status attnkit_attention_run(const void *plan,
                                                 const attnkit_attention_data *data,
                                                 const attnkit_exec *exec, char *message);

/* ---------------------------------------------------------------------------------------------
 * Instruction sets. All give the same bits. The best that CPU and operating system allow is
 * chosen on first use. The environment variable ATTNKIT_ISA (not read in a set-uid process) names
 * another; attnkit_exec.isa names one for a single call and wins. A name that is unknown or cannot
 * run here is ATTNKIT_BAD_ISA with the possible names in the message, from the first call on and
 * as long as the variable has it.
 */

/* An instruction set, and whether it runs here. */
typedef struct attnkit_isa_info {
    size_t size;        /* sizeof(attnkit_isa_info), set by the caller */
    const char *name;   /* "scalar", "avx2", "avx512", "neon" */
    const char *needs;  /* the CPU features it is written for, as text */
    int32_t built;      /* 1 if this library holds its kernels */
    int32_t can_run;    /* 1 if built, and CPU and operating system have what it needs */
    const char *reason; /* why it can or cannot run, as text */
} attnkit_isa_info;

/* The number of instruction sets this version knows, built or not; they go from worst to best. */
ATTNKIT_API int32_t attnkit_isa_count(void);

/* Fills info for index 0 .. count-1. */
ATTNKIT_API attnkit_status attnkit_isa_get(int32_t index, attnkit_isa_info *info, char *message);

/* The instruction set of a call. */
typedef struct attnkit_isa_choice {
    size_t size;         /* sizeof(attnkit_isa_choice), set by the caller */
    const char *prefill; /* the instruction set that runs many query rows */
    const char *decode;  /* the one that runs few */
    const char *reason;  /* why it is this one, as text */
} attnkit_isa_choice;

/* What a call with exec.isa = isa (NULL: automatic) would run, and why. */
ATTNKIT_API attnkit_status attnkit_isa_choose(const char *isa, attnkit_isa_choice *choice,
                                              char *message);

/* --------------------------------------------------------------------------------------------- */

/* A struct of default values: for languages, and standards of C++, without designated initialisers.
 */
static inline void attnkit_attention_args_init(attnkit_attention_args *args)
{
    memset(args, 0, sizeof *args);
    args->size = sizeof *args;
}

static inline void attnkit_attention_data_init(attnkit_attention_data *data)
{
    memset(data, 0, sizeof *data);
    data->size = sizeof *data;
}

static inline void attnkit_isa_info_init(attnkit_isa_info *info)
{
    memset(info, 0, sizeof *info);
    info->size = sizeof *info;
}

static inline void attnkit_isa_choice_init(attnkit_isa_choice *choice)
{
    memset(choice, 0, sizeof *choice);
    choice->size = sizeof *choice;
}

static inline void attnkit_exec_init(attnkit_exec *exec)
{
    memset(exec, 0, sizeof *exec);
    exec->size = sizeof *exec;
}

#ifdef __cplusplus
}
#endif

#include "attnkit/options.h"

#include "attnkit/merge.h"

#include "attnkit/cache.h"

#include "attnkit/linear.h"

#include "attnkit/layer.h"

#endif /* ATTNKIT_H */
