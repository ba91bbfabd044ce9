/* SPDX-License-Identifier: Apache-2.0
 *
 * attnkit: attention for CPUs. This header and the headers it includes are the manual. Calls that
 * everyone needs are in this file. Read this file first, from top to bottom. Five headers have the
 * options and the other calls:
 *
 *     attnkit/options.h   optional groups of an attention call: storage of K and V, visibility,
 *                         score mods, states, weights
 *     attnkit/merge.h     merging the results of attention over several parts of the keys
 *     attnkit/cache.h     appending to a KV cache, with rotation (RoPE) and conversion
 *     attnkit/linear.h    projections and token embeddings
 *     attnkit/layer.h     the whole multi-head attention layer
 *
 * What it does
 *   out = softmax(scale * q k^T, over the keys a row may see) v, in one pass over the keys (Milakov
 *   & Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135). Several query heads
 *   may share a KV head. Attention may be causal, and each sequence may have a length of its own. A
 *   second output is the logarithm of the softmax's denominator. K and V are f32, f16, bf16 or
 *   quantised to 8 bits or fewer. K and V are dense, strided or in pages, and K may be in tiles of
 *   16 keys. The same call serves prefill (many query rows), a prefill in parts, and decoding (one
 *   row). A second call appends rows to a KV cache, and rotates (RoPE) and converts them on the
 *   way. A third call merges the results of attention over several parts of the keys. Further calls
 *   compute embeddings and projections, or the whole multi-head attention layer.
 *
 * What it promises
 *   - The same bits everywhere. A row of the result depends only on its q, on the options, and on
 *     (absolute key index, k, v) of the keys that the row sees. The instruction set, the number of
 *     threads, the batch, other rows of the call, strides and addresses do not change a bit.
 *     kernels/README.md defines the order of every rounding.
 *   - Masked means absent. If a query row does not see a key, nothing in the rows of K and V of
 *     this key changes a bit of the row's result, not even NaN or infinity. Keys that no row of the
 *     call sees are not read at all. There are two exceptions. If a row sees one key of a tile of
 *     K, the whole tile is read. A call that returns scores of all keys (ATTNKIT_WEIGHTS_CAPPED,
 *     ATTNKIT_WEIGHTS_SCALED) reads K of all keys. If a row sees no key, its result is 0. Its
 *     log-sum-exp is -infinity, or the sink if the head has a sink. The row is NaN only if the sink
 *     is NaN or +infinity.
 *   - A NaN in the q of a row that sees a key, or in a k that the row sees, makes the whole row
 *     NaN. A NaN in one column of a v that the row sees makes this column of the row NaN. A score
 *     that is +infinity after softcap, bias and ALiBi makes the row NaN. A score that is -infinity
 *     has weight 0. A score that is some 70 or more below the row's largest score in the same block
 *     of 128 keys has weight 0, too. Arithmetic with weights below 2^-100 would be slow.
 *   - A call reads and writes no byte outside the rows and tiles that its pointers, shapes and
 *     strides describe.
 *   - A call allocates nothing, locks nothing, prints nothing, starts no thread and never aborts.
 *     If there is an error, the call returns a status and a message, and leaves the outputs
 *     unchanged.
 *   - A call needs at most 64 KiB of stack.
 *   - On Linux with glibc, a call makes no system call, so it runs under the strictest filter
 *     (seccomp). The only exception is attnkit_enable. On other systems, a call that chooses the
 *     instruction set may ask the operating system about the CPU and the rights of the process.
 *   - A call may be made in a signal handler that has interrupted another call on the same thread.
 *     It may also be made in the child of a fork, even if the fork happened during a call on this
 *     or on another thread.
 *   - Several copies of the library in one process, each from its own file or in its own namespace
 *     of the loader, do not affect each other. A library that is unloaded leaves no memory, mapping
 *     or descriptor behind.
 *   - ATTNKIT_ISA is the only environment variable that the library reads. In a set-uid program
 *     ATTNKIT_ISA has no effect.
 *
 * What it does not do
 *   - No backward pass. An unsupported request is an error, never a slow or wrong answer.
 *   - No threads and no memory of its own: the caller provides both.
 *
 * Example: causal attention over n tokens, 8 query heads that share 2 KV heads. The call refuses
 * all arguments that the workspace query refuses, and also a missing workspace. So it is enough to
 * print the message of the call.
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
 * The same call with a window of 512 keys and a softcap. Options come in groups: structs to which
 * fields of args point.
 *
 *     attnkit_window window = {.size = sizeof window, .left = 511};
 *     attnkit_visibility visibility = {.size = sizeof visibility, .window = &window};
 *     attnkit_score_mods scores = {.size = sizeof scores, .softcap = 30.0};
 *     args.visibility = &visibility;
 *     args.scores = &scores;
 *
 * attnkit.hpp is the interface for C++17. It has the same structs, and its functions have the same
 * names without attnkit_.
 *
 * Thread safety: every function may be called from any thread at any time.
 */
#ifndef ATTNKIT_H
#define ATTNKIT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Files of a DLL are compiled with ATTNKIT_EXPORTS, or linked with a list of exports. Files of a
 * static library and of a program are compiled without ATTNKIT_EXPORTS. */
#if defined(_WIN32) && defined(ATTNKIT_EXPORTS)
#define ATTNKIT_API __declspec(dllexport)
#elif defined(_WIN32)
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
 * Version. The version of the library that runs may differ from the version of this header. Until
 * the next release, the source tree keeps the number of the last release, 0.1.0, although the tree
 * has calls and fields that the release lacks. Where a comment names the release 0.1.0, it means
 * that release and not this tree.
 */

#define ATTNKIT_VERSION_MAJOR 0 /* major version of this header */
#define ATTNKIT_VERSION_MINOR 1 /* minor version of this header */
#define ATTNKIT_VERSION_PATCH 0 /* patch version of this header */

/* Returns the version of the library that is linked: "0.1.0". */
ATTNKIT_API const char *attnkit_version(void);

/* ---------------------------------------------------------------------------------------------
 * Status and message. Every function that can fail returns a status and has a parameter message:
 * NULL, or a buffer of ATTNKIT_MESSAGE_SIZE bytes. After an error the message names the argument
 * and its value, as in "kv_lens[3] is 4097: must be between 0 and kv_len (4096)". After ATTNKIT_OK
 * the message is "".
 */

/* The status of a call. */
typedef enum attnkit_status {
    ATTNKIT_OK = 0,            /* success */
    ATTNKIT_BAD_ARGUMENT = 1,  /* a value that no version of the library accepts */
    ATTNKIT_UNSUPPORTED = 2,   /* a value that this version does not know or has no kernel for */
    ATTNKIT_OVERFLOW = 3,      /* sizes, strides or positions exceed 63 bits or the address space */
    ATTNKIT_BAD_WORKSPACE = 4, /* the workspace is missing, too small, or overlaps a tensor */
    ATTNKIT_BAD_ISA = 5        /* an instruction set that is unknown or cannot run here */
} attnkit_status;

#define ATTNKIT_MESSAGE_SIZE 256 /* bytes of a message, with the 0 at its end */

/* Returns the name of a status, such as "ATTNKIT_BAD_ARGUMENT"; never NULL. */
ATTNKIT_API const char *attnkit_status_string(attnkit_status status);

/* ---------------------------------------------------------------------------------------------
 * Structs. A struct that may grow begins with its size. So a newer library recognises an older
 * caller. An older library refuses a struct if a field that the library does not know is not zero.
 * Zero is the default of every field: set the whole struct to zero, then set its size, then set the
 * fields you need. In C a designated initialiser sets all other fields to zero. attnkit_..._init()
 * sets the struct to zero, and then its size. An optional group that is NULL, or zero except for
 * its size, has no effect. The only exception is attnkit_window: with a window of zeros, a row sees
 * only its own key.
 *
 * Three small structs have no size, because they will never grow: attnkit_tensor, attnkit_ints and
 * attnkit_state.
 */

/* The type of a tensor's elements. */
typedef int32_t attnkit_type;
enum {
    ATTNKIT_F32 = 0,  /* IEEE 754 binary32 */
    ATTNKIT_F16 = 1,  /* IEEE 754 binary16 */
    ATTNKIT_BF16 = 2, /* the upper half of binary32 */
    ATTNKIT_I8 = 3,   /* signed bytes, with binary32 scales in a tensor of their own */
    ATTNKIT_Q8_0 = 4, /* blocks of 34 bytes: a binary16 scale, then 32 signed bytes */

    /* Types 5 to 12 are for K and V only, and not for tiles. Q4_0 to Q2_0 are blocks of ggml, with
     * ggml's names. A block begins with a binary16 scale d; Q4_1 and Q5_1 have a binary16 minimum m
     * after d. q is an unsigned integer of 4 or 5 bits. docs/format.md describes all bytes.
     * attnkit_append writes Q4_0 and Q5_0, and none of the other types from 5 to 12. */
    ATTNKIT_Q4_0 = 5,     /* 32 elements in 18 bytes: (q - 8) * d */
    ATTNKIT_Q4_1 = 6,     /* 32 elements in 20 bytes: q * d + m */
    ATTNKIT_Q5_0 = 7,     /* 32 elements in 22 bytes: (q - 16) * d */
    ATTNKIT_Q5_1 = 8,     /* 32 elements in 24 bytes: q * d + m */
    ATTNKIT_IQ4_NL = 9,   /* 32 elements in 18 bytes: d times number q of a fixed list of 16 */
    ATTNKIT_Q1_0 = 10,    /* 128 elements in 18 bytes: d or -d, chosen by 1 bit */
    ATTNKIT_Q2_0 = 11,    /* 64 elements in 18 bytes: -1, 0, 1 or 2 times d, chosen by 2 bits */
    ATTNKIT_F8_E4M3 = 12, /* bytes of 8-bit floating point, E4M3 without infinities, with binary32
                           * scales as for ATTNKIT_I8 */

    ATTNKIT_BOOL = 64, /* for masks: a byte, true if it is not 0 */
    ATTNKIT_BITS = 65  /* for masks: a bit, element j in bit j % 8 of byte j / 8 */
};

/* Bits of a tensor's layout. */
#define ATTNKIT_STRIDED 1u /* take strides literally, even 0; otherwise strides must be 0 */
#define ATTNKIT_TILED 2u   /* tiles of ATTNKIT_TILE_KEYS keys: see options.h */

/* A tensor in the caller's memory: rows of adjacent elements. data is const so that inputs need no
 * cast, but a call does write to the data of its outputs (out, lse, weights, dst, dst_scales, y).
 * Strides are in bytes, of {batch, head, row} unless the comment of the field says otherwise.
 * Strides are multiples of the element's size (2 bytes for blocks, 1 byte for bits) and may be
 * negative. Strides of inputs may be 0, which repeats a row. Strides of outputs nest: each stride
 * spans all bytes of the dimensions with smaller strides. A stride along a dimension of size 1 is
 * ignored. Without ATTNKIT_STRIDED the tensor is dense, in the shape that the comment of the field
 * states. data is aligned to the element's size (2 bytes for blocks, 1 byte for bits). data may be
 * NULL only if the tensor has no rows or is optional. */
typedef struct attnkit_tensor {
    const void *data;   /* the first element */
    int64_t strides[3]; /* bytes */
    attnkit_type type;  /* type of the elements */
    uint32_t layout;    /* 0: dense rows; else the bits above */
} attnkit_tensor;

/* The width of an array of integers. */
typedef int32_t attnkit_int_type;
enum {
    ATTNKIT_INT64 = 0, /* signed, 64 bits */
    ATTNKIT_INT32 = 1  /* signed, 32 bits */
};

/* An array of integers of either width, such as lengths, offsets, cu_seqlens. Calls read the array
 * in place, without a copy. */
typedef struct attnkit_ints {
    const void *data;      /* NULL: no array */
    attnkit_int_type type; /* width of the elements */
    int32_t reserved;      /* 0 */
} attnkit_ints;

/* The position of query row 0 among the keys. Row i of batch entry b is at position offset(b) + i.
 * A causal call must set align: there is no default. */
typedef int32_t attnkit_align;
enum {
    ATTNKIT_ALIGN_NONE = 0,         /* the rows have no position */
    ATTNKIT_ALIGN_UPPER_LEFT = 1,   /* offset = 0: a prompt from its start */
    ATTNKIT_ALIGN_BOTTOM_RIGHT = 2, /* offset = first_key (of attnkit_states) + keys of b - rows
                                     * of b: the last row sees all keys; key_index has the rule
                                     * for cells */
    ATTNKIT_ALIGN_OFFSETS = 3       /* offset = q_offsets[b], which may be negative */
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
 * key or a value. Without ATTNKIT_CAUSAL all keys are visible. With ATTNKIT_CAUSAL only the keys up
 * to the position of the row are visible. The visibility group and a bias of -infinity hide further
 * keys (options.h).
 */

/* Bits of flags. */
#define ATTNKIT_CAUSAL 1u         /* row i sees the keys j <= its position; needs align */
#define ATTNKIT_SCALE_GIVEN 2u    /* take scale literally, even 0; otherwise scale must be 0 */
#define ATTNKIT_INTEGERS 4u       /* multiply the bytes of K and V as integers: see below */
#define ATTNKIT_BF16_PRODUCTS 8u  /* multiply bf16 in groups of 32 products: see below */
#define ATTNKIT_SHORT_WEIGHTS 16u /* with ATTNKIT_BF16_PRODUCTS: a weight is a single bf16 */

/* ATTNKIT_INTEGERS
 *
 * Multiplies the bytes of K and V of ATTNKIT_I8 or ATTNKIT_Q8_0 as integers. Without the flag the
 * bytes are converted to binary32 first. The release 0.1.0 refuses the flag as an unknown bit.
 *
 * Arguments   k and v are ATTNKIT_I8 or ATTNKIT_Q8_0. Their types may differ. A scale of ATTNKIT_I8
 *             is for a multiple of 32 elements: k_scale_group and v_scale_group are 0 or multiples
 *             of 32. head_dim and value_dim are multiples of 32. A call with other types or groups,
 *             or with weights as an output, returns ATTNKIT_UNSUPPORTED. A layer with the flag also
 *             returns ATTNKIT_UNSUPPORTED, and so does attention with the flag in a build without
 *             the part "integers". Everything else may be combined with the flag: any type of q and
 *             out, strides, tiles, pages, cells, packed sequences, all masks and score mods,
 *             states, plans and threads.
 * Arithmetic  Each group of 32 elements of a row of q is rounded to integers of 16 bits with a
 *             common scale: the largest |q| of these elements becomes 32512. The weights of a row,
 *             after dropout, are multiplied by the scales of v. For each block of 128 keys and each
 *             32 columns of v, these products are rounded to integers in the same way. The integers
 *             of q are multiplied by the bytes of k, and the integers of these products by the
 *             bytes of v. The sums over 32 elements of k, and over the keys of a block, are exact.
 *             All other arithmetic is as without the flag. Step 16 of kernels/README.md lists each
 *             rounding.
 * Bits        The flag changes the bits of the result. With the flag, too, the bits are the same
 *             for all instruction sets, numbers of threads, batches and layouts, and in prefill and
 *             decode. They are also the same if the keys are divided among several calls that pass
 *             on states. docs/semantics.md names the tests.
 * Accuracy    An element of q is off by at most 1/65024 of the largest |q| of its 32 elements, and
 *             the product of a weight and a scale of v by at most 1/65024 of the largest of these
 *             products in its block of keys. If the 32 elements of q, or the products of a block,
 *             are all below 2^-100 in magnitude, they become 0. The roundings of binary32 add to
 *             these errors. If q, k and v are normally distributed around 0, the root mean square
 *             of the errors of out is at most 1/50 of the error that rounding k and v to bytes has
 *             made. If the mean of v is far from 0, the errors of out can be 1/9 of the error that
 *             this rounding of k and v has made, because many small weights are then off in the
 *             same direction. The rounding of weights does not change lse.
 * NaN         A NaN or an infinity in the q of a row that sees a key makes the row NaN. A scale of
 *             k that is NaN makes each row NaN that sees the key. A scale of v that is NaN or
 *             infinite makes its columns NaN, in the rows that see the key. If a scale of q times a
 *             scale of k overflows binary32, the score of the key is infinite or NaN. All elements
 *             of q and k may be finite in this case. With v of ATTNKIT_I8, whose scales are
 *             binary32, an element of out may be infinite or NaN if elements of v exceed 2^112 in
 *             magnitude.
 * Cost        Decoding from a long cache takes less time than without the flag if the machine needs
 *             longer to convert and multiply K and V than to read them. A long prompt takes less
 *             time than without the flag if products of integers are faster than multiply-adds of
 *             binary32. All units ("avx2+vnni", "avx512+vnni", "avx512+bf16", "avx512+amx",
 *             "neon+dotprod" and "neon+i8mm") have instructions for these products of integers.
 * Source      Zhang et al. 2024, arXiv:2410.02367, compute the products of attention in 8 bits.
 *             Here q and the weights have 16 bits, so that their error is far below the error of k
 *             and v. */

/* ATTNKIT_BF16_PRODUCTS
 *
 * Multiplies q by k, and weights by v, as bf16. Products are added in an order that the matrix and
 * vector instructions for bf16 (AMX TDPBF16PS, AVX512_BF16 VDPBF16PS) can both keep. The release
 * 0.1.0 refuses the flag as an unknown bit.
 *
 * Arguments   q, k and v are ATTNKIT_BF16, and k lies in rows. Calls with other types,
 *             ATTNKIT_TILED, dropout or weights as an output return ATTNKIT_UNSUPPORTED. A layer
 *             with the flag also returns ATTNKIT_UNSUPPORTED, and so does attention with the flag
 *             in a build without the part "products". A call with this flag and ATTNKIT_INTEGERS
 *             returns ATTNKIT_BAD_ARGUMENT. Everything else may be combined with the flag: any type
 *             of out, strides, pages, cells, packed sequences, all masks, all score mods but
 *             dropout, states, plans and threads.
 * Arithmetic  The keys are taken in blocks of 128. In each block, the weights of a row are divided
 *             by the largest of them. A quotient p becomes the sum of two bf16: h, the bf16 nearest
 *             to p, and the bf16 nearest to p - h. With ATTNKIT_SHORT_WEIGHTS p becomes h alone.
 *             The denominator of the softmax is computed from these rounded quotients. Products of
 *             q and k are added in groups of 32 elements, products of quotients and v in groups of
 *             32 keys. In each group, the products with even index and the products with odd index
 *             are summed separately, in binary32. Each addition of a product rounds once. Elements
 *             of q, k and v with a magnitude less than 2^-56 count as 0, and so do quotients less
 *             than 2^-40. Therefore no product is subnormal. Step 17 of kernels/README.md lists
 *             each rounding.
 * Bits        The flag changes the bits of the result. With the flag, too, the bits are the same
 *             for all instruction sets, numbers of threads, batches and layouts, and in prefill and
 *             decode. They are also the same if the keys are divided among several calls that pass
 *             on states. docs/semantics.md names the tests.
 * Accuracy    A weight is off by at most 2^-16 of itself, with ATTNKIT_SHORT_WEIGHTS by at most
 *             2^-8 of itself. A weight less than 2^-40 of the largest weight of its block counts as
 *             0. A product of an element of q and an element of k is rounded at most 17 times in
 *             the sums of its group, and once for each group that is added. Without the flag, it is
 *             rounded once for each element that is added. A sum beyond the range of binary32 makes
 *             an element of out infinite or NaN, even if the exact result is finite.
 * NaN         A NaN has the same effect as without the flag. An element of q or k that counts as 0
 *             makes the score NaN if it is multiplied by an infinity. An infinity in a column of a
 *             v that the row sees makes this column of the row infinite or NaN. For example, 0 as
 *             the second bf16 of a weight times infinity is NaN.
 * Cost        On Zen 4, with the unit "avx512+bf16", a prompt of 2048 rows takes 1.13 times the
 *             time of the same call without the flag. With ATTNKIT_SHORT_WEIGHTS the prompt takes
 *             0.77 times the time without the flag. A decoding step over 16384 keys takes 1.5 to
 *             1.9 times the time without the flag. With AVX2, a decoding step takes 3 times the
 *             time without the flag. With the unit "avx512+amx", which attnkit_enable enables, one
 *             instruction adds 32 products to each of up to 256 sums. With this unit, on an Emerald
 *             Rapids, the prompt takes 0.41 times the time without the flag, or 0.34 times with
 *             ATTNKIT_SHORT_WEIGHTS.
 */

#define ATTNKIT_CHUNK_KEYS 512 /* keys of a chunk: each chunk starts a new softmax state */
#define ATTNKIT_TILE_KEYS 16   /* keys of a tile */

/* The arguments of an attention call. */
typedef struct attnkit_attention_args {
    size_t size;         /* sizeof(attnkit_attention_args) */
    uint32_t flags;      /* ATTNKIT_CAUSAL and the other flags above */
    attnkit_align align; /* position of the query rows among the keys */

    /* The shape: no number is negative. If batch, q_heads or q_len is 0, the call does nothing.
     * kv_len may be 0, too: then no row sees a key. */
    int64_t batch;
    int64_t q_heads;   /* a multiple of kv_heads; consecutive query heads share a KV head */
    int64_t kv_heads;  /* at least 1, unless q_heads is 0 */
    int64_t q_len;     /* query rows per head */
    int64_t kv_len;    /* keys per KV head; with kv_lens, the upper bound of all kv_lens[b] */
    int64_t head_dim;  /* elements of a q and a k row, at least 1 */
    int64_t value_dim; /* elements of a v and an out row; 0 means head_dim */
    double scale;      /* scale * log2 e is finite in binary32; if the flag ATTNKIT_SCALE_GIVEN is
                        * absent, this field must be 0, and the call takes 1 / sqrt(head_dim) */

    /* q [batch][q_heads][q_len][head_dim], k [batch][kv_heads][kv_len][head_dim],
     * v [batch][kv_heads][kv_len][value_dim], out [batch][q_heads][q_len][value_dim],
     * lse [batch][q_heads][q_len], optional. q and out are ATTNKIT_F32, F16 or BF16. k and v are of
     * any type but the two types of masks. The types of q, k, v and out may differ. lse is
     * ATTNKIT_F32. Arithmetic is binary32, with these exceptions: sums over several chunks of keys
     * are binary64, ATTNKIT_INTEGERS multiplies integers, and ATTNKIT_BF16_PRODUCTS rounds weights
     * to bf16. Without these two flags, weighted sums of v that overflow binary32 are computed
     * again in binary64. Elements are widened to binary32. Widening is exact, with two exceptions
     * that are rounded once: the product with a scale of ATTNKIT_I8 or ATTNKIT_F8_E4M3, and an
     * element of ATTNKIT_Q4_1 or ATTNKIT_Q5_1. The result is rounded once to the type of out. If k
     * or v has a type of blocks, its rows are whole blocks: head_dim (of k) or value_dim (of v) is
     * a multiple of the 32, 64 or 128 elements of a block. Inputs, and among them the inputs in the
     * optional groups, may overlap each other. Outputs overlap nothing, but may lie in the gaps
     * between rows of other tensors. */
    attnkit_tensor q;
    attnkit_tensor k;
    attnkit_tensor v;
    attnkit_tensor out;
    attnkit_tensor lse;

    attnkit_ints q_offsets; /* [batch], only with ATTNKIT_ALIGN_OFFSETS; offset + q_len < 2^63 */

    /* Optional groups (options.h), each NULL or a struct. */
    const struct attnkit_kv_storage *storage;    /* scales, pages, packed sequences, cells */
    const struct attnkit_visibility *visibility; /* lengths, window, segments, masks */
    const struct attnkit_score_mods *scores;     /* bias, ALiBi, softcap, sinks, dropout */
    const struct attnkit_states *states;         /* part of the keys, softmax states in and out */
    const struct attnkit_weights_out *weights;   /* the weights as a third output */
} attnkit_attention_args;

/* How a call is run: on which threads, in which memory, with which instruction set.
 *
 * One thread             leave threads, thread and parallel_for zero.
 * Your own n threads     each of them makes the same call with threads = n, the same workspace and
 *                        its own thread = 0 .. n-1; the result is complete when all have returned.
 * A parallel-for         set parallel_for and threads = n, and make the call on one thread only.
 *                        The call gives at most n tasks to parallel_for. Tasks may run in any
 *                        order, also one after the other, and more than once. But two threads must
 *                        never run the task of the same index at the same time.
 *
 * Work stealing. In a parallel-for, a thread that has finished its share of the work items (blocks
 * of query rows of one KV head) takes items from the shares of other threads. If a call has fewer
 * than 8 items for each thread and more than 512 keys, the threads also divide the last items, or
 * all items, among themselves, in chunks of 512 keys. So there may be more threads than heads, and
 * a thread that is slow or begins late only delays the chunks that it is working on. The bits stay
 * the same. In such a call, threads of your own divide all items in this way if two further
 * conditions hold: the threads have a barrier, and whole items cannot be shared out evenly. The
 * threads meet at the barrier before and after this work. The workspace is free for another call
 * when all threads have returned. */
typedef struct attnkit_exec {
    size_t size;           /* sizeof(attnkit_exec) */
    void *workspace;       /* memory for this call, of any alignment and contents */
    size_t workspace_size; /* bytes, at least as many as the workspace query returns */
    const char *isa;       /* instruction set or unit; NULL: from ATTNKIT_ISA, else the best */
    int64_t threads;       /* number of threads, each with a share of the work; 0 means 1 */
    int64_t thread;        /* index of this thread; 0 with parallel_for */
    /* parallel_for calls task(arg, i) for every i in 0 .. n-1 and returns after these calls. */
    void (*parallel_for)(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg);
    void *pool; /* passed to parallel_for and barrier */
    /* With threads of your own: waits until all n threads have called barrier. Each thread calls
     * barrier equally often. NULL: threads do not share the keys of a head, so some threads may
     * have no work. */
    void (*barrier)(void *pool);
} attnkit_exec;

/* Sets *bytes to the workspace that attnkit_attention needs for these args and the threads and isa
 * of exec. exec may be NULL: one thread. Reads the groups, but no tensor and no array: it only
 * matters which pointers to tensors and arrays are NULL. The size never shrinks as q_len or kv_len
 * grows, so the workspace of the longest call serves shorter calls. Without key_index the size has
 * a bound that does not depend on the lengths. For each thread the bound is
 *
 *     4 * (290 * head_dim + 780 * value_dim + 10000) + 4096 bytes,
 *
 * plus the following terms, also for each thread and in bytes. A term counts under its condition:
 *
 *     4 * 129 * (head_dim + value_dim)   if q, k, v or out is not ATTNKIT_F32, or if there are
 *                                        gaps between the rows of a head in k or v, or with pages,
 *                                        tiles, segments, masks, a bias or keep_first
 *     73728                              with any mask (window and segments, too), bias, softcap,
 *                                        slopes or dropout
 *     4 * (192 * head_dim + 25000)       with weights
 *     4096 * (value_dim + 3) + 65536     with several threads
 *
 * If head_dim + 3 * value_dim <= 283, the bound is twice this sum, because an item then has up to
 * 512 query rows.
 *
 * ATTNKIT_BF16_PRODUCTS doubles the bound, and then adds 140000 bytes for each thread.
 *
 * With key_index the bound grows with kv_len: add the terms of pages and of a mask, and, for each
 * thread, 17 * kv_len + 16 * batch + 16384 bytes. */
ATTNKIT_API attnkit_status attnkit_attention_workspace(const attnkit_attention_args *args,
                                                       const attnkit_exec *exec, size_t *bytes,
                                                       char *message);

/* Computes attention. exec may be NULL only if there is nothing to do.
 * Cost: 2 * (head_dim + value_dim) FLOPs for each pair of a query row and a key that the row sees.
 * K and V are read once or twice for each block of 256 or 512 query rows of a KV head. A row that
 * sees NaN or infinities in V, or whose sums overflow, is computed again. If all rows are computed
 * again, a call with 2048 keys of dim 128 takes up to 10 times as long as usual, a call with 256
 * keys of dim 16 up to 60 times as long, and a call with a single row 3 times as long. The caller's
 * rounding and flush-to-zero modes do not matter and are restored. */
ATTNKIT_API attnkit_status attnkit_attention(const attnkit_attention_args *args,
                                             const attnkit_exec *exec, char *message);

/* ---------------------------------------------------------------------------------------------
 * Plan and run. Most of the cost of a small call is checking its arguments. A plan checks shape,
 * types, strides and options once. A run adds the pointers and the lengths. One plan serves any
 * number of runs, for example the runs of all layers of a model. Several threads may run a plan at
 * the same time. A run gives the same bits as attnkit_attention, and refuses the same arguments.
 *
 *     void *plan = malloc(attnkit_attention_plan_size());
 *     attnkit_attention_plan(&args, &exec, plan, attnkit_attention_plan_size(), message);
 *     for (each layer) {
 *         attnkit_attention_data data = {.size = sizeof data, .batch = 1, .q_len = 1, .kv_len = n,
 *                                        .q = q, .k = k[layer], .v = v[layer], .out = out};
 *         attnkit_attention_run(plan, &data, &exec, message);
 *     }
 *
 * A plan fixes the instruction set and everything in args and its groups except pointers. batch,
 * q_len, kv_len and exec.threads are upper bounds. Strides stay as planned: a dense tensor has the
 * strides of the planned shape, whatever the lengths of a run. The same holds for dense arrays of
 * the groups.
 *
 * Planning reads no tensor and no array. But it matters which optional pointers are NULL: a run
 * must give exactly the pointers that were not NULL in the plan. At planning, ATTNKIT_LATER stands
 * for memory that does not exist yet.
 */

#define ATTNKIT_LATER ((void *)64) /* in a plan: a pointer that each run gives */

/* Returns the bytes of a plan. Its memory must be aligned to 16 bytes. */
ATTNKIT_API size_t attnkit_attention_plan_size(void);

/* Writes a plan of the attention that args describe, for at most exec.threads threads (exec may be
 * NULL: one thread) and the instruction set of exec. A plan may be copied. It is valid only in this
 * process. */
ATTNKIT_API attnkit_status attnkit_attention_plan(const attnkit_attention_args *args,
                                                  const attnkit_exec *exec, void *plan,
                                                  size_t plan_size, char *message);

/* Sets *bytes to the workspace that any run of the plan needs. */
ATTNKIT_API attnkit_status attnkit_attention_plan_workspace(const void *plan, size_t *bytes,
                                                            char *message);

/* The lengths and pointers of a run. Each field has the meaning of the field with the same name in
 * attnkit_attention_args or its groups. Types, strides and shapes are in the plan. */
typedef struct attnkit_attention_data {
    size_t size; /* sizeof(attnkit_attention_data) */

    /* Each number is at most the planned number. A run must set the numbers: 0 means no rows, or no
     * keys. */
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

    const struct attnkit_attention_group_data *groups; /* all other pointers of the groups, or
                                                        * NULL */
} attnkit_attention_data;

/* Runs a plan. exec is as for attnkit_attention, with two differences: threads is at most the
 * number of threads of the plan, and isa is NULL or names the instruction set or the unit of the
 * plan. Each run checks the plan, NULL pointers, alignment, overlaps, lengths and block tables. A
 * run never writes to the plan. */
ATTNKIT_API attnkit_status attnkit_attention_run(const void *plan,
                                                 const attnkit_attention_data *data,
                                                 const attnkit_exec *exec, char *message);

/* ---------------------------------------------------------------------------------------------
 * Instruction sets. All instruction sets give the same bits. On first use, the library chooses the
 * best instruction set that CPU and operating system support. The environment variable ATTNKIT_ISA
 * can name another instruction set, except in a set-uid process. attnkit_exec.isa names the
 * instruction set of a single call, and takes precedence over ATTNKIT_ISA. If a name is unknown, or
 * names an instruction set that cannot run here, the call returns ATTNKIT_BAD_ISA with the possible
 * names in the message. If ATTNKIT_ISA has a wrong name on first use, every call without exec.isa
 * fails until the variable changes.
 */

/* An instruction set, and whether it runs here. */
typedef struct attnkit_isa_info {
    size_t size;        /* sizeof(attnkit_isa_info), set by the caller */
    const char *name;   /* "scalar", "avx2", "avx512", "neon" */
    const char *needs;  /* the CPU features that its kernels need, as text */
    int32_t built;      /* 1 if this library holds its kernels */
    int32_t can_run;    /* 1 if built, and CPU and operating system support it */
    const char *reason; /* why the instruction set can or cannot run, as text */
} attnkit_isa_info;

/* Returns the number of instruction sets that this version knows, built or not. The instruction
 * sets are listed from worst to best. */
ATTNKIT_API int32_t attnkit_isa_count(void);

/* Fills info. index is at least 0 and less than attnkit_isa_count(). */
ATTNKIT_API attnkit_status attnkit_isa_get(int32_t index, attnkit_isa_info *info, char *message);

/* A unit: instructions that only some CPUs with an instruction set have, and that do a part of the
 * work faster. Its name begins with the name of the instruction set, as in "avx512+bf16". exec.isa
 * and ATTNKIT_ISA may name a unit in place of an instruction set. "avx512+none" is AVX-512 without
 * a unit. "avx512" alone uses the last unit in the list that can run here and is not slower on this
 * CPU than AVX-512 without a unit. If there is no such unit, it uses none. Before the first use of
 * a unit, the library computes test numbers with the unit. If a result has wrong bits, the unit is
 * not used. */
typedef struct attnkit_unit_info {
    size_t size;        /* sizeof(attnkit_unit_info), set by the caller */
    const char *name;   /* "avx2+vnni", "avx512+vnni", "neon+dotprod", "neon+i8mm": products of
                         * integers, with ATTNKIT_INTEGERS;
                         * "avx512+bf16": as "avx512+vnni", and products of bf16 by bf16 in linear
                         * maps, in prefill and with ATTNKIT_BF16_PRODUCTS;
                         * "avx512+amx": as "avx512+vnni", and products of bf16 by tile registers,
                         * with ATTNKIT_BF16_PRODUCTS; only after attnkit_enable */
    const char *needs;  /* the CPU features that the unit needs, besides the features that its
                         * instruction set needs */
    int32_t built;      /* 1 if this library holds its kernels */
    int32_t can_run;    /* 1 if built, CPU and operating system support it, results have the right
                         * bits, and the program has enabled the unit if this is necessary */
    int32_t used;       /* 1 if a call that names the instruction set alone uses the unit */
    const char *reason; /* why the unit can or cannot run, or is not used, as text */
} attnkit_unit_info;

/* Returns the number of units that this version knows, built or not. The units of an instruction
 * set are listed from worst to best. */
ATTNKIT_API int32_t attnkit_unit_count(void);

/* Fills info. index is at least 0 and less than attnkit_unit_count(). */
ATTNKIT_API attnkit_status attnkit_unit_get(int32_t index, attnkit_unit_info *info, char *message);

/* Enables a unit for this process. Only "avx512+amx" needs this call, because a process may use the
 * CPU's tile registers only with permission of the operating system. For any other unit, the call
 * only tells whether the unit can run.
 *
 * Call attnkit_enable once, when the program starts. The results keep their bits. After
 * attnkit_enable, a call uses the unit if exec.isa is the name of the unit or "avx512", or if
 * exec.isa is NULL and ATTNKIT_ISA does not choose otherwise. Threads that were started before
 * attnkit_enable may use the unit, too. A plan keeps the unit that it was made with, so make plans
 * after attnkit_enable. A call that runs on another thread during attnkit_enable uses one unit from
 * beginning to end. After attnkit_enable, the next call without exec.isa reads ATTNKIT_ISA again.
 * Child processes of fork inherit the permission. A program that execve starts has to call
 * attnkit_enable itself.
 *
 * Errors      BAD_ISA: there is no such unit, or the unit cannot run here. The message says why:
 *             the build left the unit out, its instruction set does not run here, the CPU lacks the
 *             unit, the operating system does not save its registers, the operating system refused
 *             permission, or the bits of the unit are wrong. After an error, calls use the units
 *             that they used before.
 * System      Linux 5.16 or later: attnkit_enable makes a single system call,
 *             arch_prctl(ARCH_REQ_XCOMP_PERM). A filter of system calls (seccomp) has to permit
 *             this call. After attnkit_enable, each alternate signal stack needs room for another
 *             8 KiB, for the tile registers (sysconf(_SC_MINSIGSTKSZ)). Linux reserves 8 KiB for a
 *             thread when the thread first uses tile registers. On other systems attnkit_enable
 *             always returns an error for "avx512+amx". */
ATTNKIT_API attnkit_status attnkit_enable(const char *unit, char *message);

/* The instruction set of a call. */
typedef struct attnkit_isa_choice {
    size_t size;         /* sizeof(attnkit_isa_choice), set by the caller */
    const char *prefill; /* the instruction set for many query rows */
    const char *decode;  /* the instruction set for few query rows */
    const char *reason;  /* reason for the choice, as text */
    const char *unit;    /* the unit of the instruction set, or NULL if the call uses none */
} attnkit_isa_choice;

/* Tells which instruction set a call with exec.isa = isa (NULL: automatic) would use, and why. */
ATTNKIT_API attnkit_status attnkit_isa_choose(const char *isa, attnkit_isa_choice *choice,
                                              char *message);

/* --------------------------------------------------------------------------------------------- */

/* Functions that set a struct to its defaults, for languages without designated initialisers. */
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

static inline void attnkit_unit_info_init(attnkit_unit_info *info)
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
