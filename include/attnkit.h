/* SPDX-License-Identifier: Apache-2.0
 *
 * attnkit: attention for CPUs. This header is the manual; read it from top to bottom.
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
 *     are not read at all, but for those that share a tile of K with one. A row that sees no key
 *     is 0, with a log-sum-exp of -infinity.
 *   - A NaN in a q or k that a row sees makes the whole row NaN; a NaN in a v that it sees makes
 *     that column NaN. A score of +infinity makes the row NaN; one of -infinity has weight 0, as
 *     has one some 70 below the largest of its row: weights below 2^-100 are slow to compute with.
 *   - Not one byte is read or written outside the rows and tiles that pointer, shape and strides
 *     describe.
 *   - A call allocates nothing, locks nothing, prints nothing, starts no thread and never aborts.
 *     On any error it returns a status and a message, and the outputs are as they were.
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
 *         .q = q, .k = k, .v = v, .out = out};
 *     attnkit_exec exec = {.size = sizeof exec};
 *     char message[ATTNKIT_MESSAGE_SIZE];
 *     if (attnkit_attention_workspace(&args, &exec, &exec.workspace_size, message) == ATTNKIT_OK)
 *         exec.workspace = malloc(exec.workspace_size);
 *     if (attnkit_attention(&args, &exec, message) != ATTNKIT_OK)
 *         fprintf(stderr, "%s\n", message);
 *     free(exec.workspace);
 *
 * Thread safety: every function may be called from any thread at any time.
 */
#ifndef ATTNKIT_H
#define ATTNKIT_H

#include <stddef.h>
#include <stdint.h>

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

#define ATTNKIT_VERSION_MAJOR 0
#define ATTNKIT_VERSION_MINOR 1
#define ATTNKIT_VERSION_PATCH 0

/* The version of the library that is linked: "0.1.0". */
ATTNKIT_API const char *attnkit_version(void);

/* ---------------------------------------------------------------------------------------------
 * Status and message. Everything that can fail returns a status, and takes a message: NULL, or
 * a buffer of ATTNKIT_MESSAGE_SIZE bytes. On an error the message names the argument and its
 * value, as in "kv_lens[3] is 4097: must be between 0 and kv_len (4096)"; on ATTNKIT_OK it is "".
 */

typedef enum attnkit_status {
    ATTNKIT_OK = 0,
    ATTNKIT_BAD_ARGUMENT = 1,  /* a value that no version of the library accepts */
    ATTNKIT_UNSUPPORTED = 2,   /* a value that this version does not know or has no kernel for */
    ATTNKIT_OVERFLOW = 3,      /* sizes, strides or positions that leave 63 bits or the memory */
    ATTNKIT_BAD_WORKSPACE = 4, /* missing, too small, or inside a tensor */
    ATTNKIT_BAD_ISA = 5        /* a name that is unknown, or that this CPU cannot run */
} attnkit_status;

#define ATTNKIT_MESSAGE_SIZE 256

/* The name of a status, such as "ATTNKIT_BAD_ARGUMENT"; never NULL. */
ATTNKIT_API const char *attnkit_status_string(attnkit_status status);

/* ---------------------------------------------------------------------------------------------
 * The attention call.
 *
 * For batch entry b, query head h with KV head g = h / (q_heads / kv_heads), and query row i:
 *
 *     x_j          = scale * sum_d q[b][h][i][d] * k[b][g][j][d]       over the visible keys j
 *     x_j          = softcap * tanh(x_j / softcap)                     where there is a softcap
 *     x_j          = x_j + bias[b][h][i][j] + alibi_slopes[h] * (j - position of i)
 *     out[b][h][i] = sum_j softmax(x)_j * v[b][g][j]
 *     lse[b][h][i] = log sum_j exp(x_j)                                natural logarithm
 *
 * A sink is one more term in the denominator of the softmax and in lse: exp(sinks[h]), without a
 * key or a value. Which keys are visible is below.
 *
 * Every struct of this library begins with its size, so that a newer library knows an older
 * caller. Zero means the default in every field; set the whole struct to zero, then what you need:
 *
 *     attnkit_attention_args args = {.size = sizeof args, .batch = 1, ...};
 */

/* The type of a tensor's elements. */
typedef enum attnkit_type {
    ATTNKIT_F32 = 0,  /* IEEE 754 binary32 */
    ATTNKIT_F16 = 1,  /* IEEE 754 binary16 */
    ATTNKIT_BF16 = 2, /* the upper half of binary32 */
    ATTNKIT_I8 = 3,   /* signed bytes, and elsewhere a binary32 scale for each group of a row's */
    ATTNKIT_Q8_0 = 4  /* blocks of 34 bytes: a binary16 scale, then 32 signed bytes */
} attnkit_type;

/* Where query row 0 stands among the keys; a causal call must say it, nothing is guessed.
 * Row i of batch entry b is at position offset(b) + i. */
typedef enum attnkit_align {
    ATTNKIT_ALIGN_NONE = 0,         /* the rows have no position */
    ATTNKIT_ALIGN_UPPER_LEFT = 1,   /* offset = 0: a prompt from its start */
    ATTNKIT_ALIGN_BOTTOM_RIGHT = 2, /* offset = first_key + keys of b - rows of b: the last row
                                     * sees all keys */
    ATTNKIT_ALIGN_OFFSETS = 3       /* offset = q_offsets[b]; negative positions see no key */
} attnkit_align;

/* Bits of flags. */
#define ATTNKIT_CAUSAL 1u        /* row i sees the keys j <= its position; needs align */
#define ATTNKIT_SCALE_GIVEN 2u   /* take scale literally, even 0; without it scale must be 0 */
#define ATTNKIT_STRIDED 4u       /* take the strides literally, even 0; without it they must be 0 */
#define ATTNKIT_TILED 8u         /* K and its scales are stored in tiles, not in rows */
#define ATTNKIT_WINDOW 16u       /* row i sees keys around its position alone; needs align */
#define ATTNKIT_MASK_STRIDED 32u /* the same as ATTNKIT_STRIDED for those of masks alone */
#define ATTNKIT_PADDING_GIVEN 64u /* of embeddings: there is a padding id */
#define ATTNKIT_IDS_64 128u       /* of embeddings: ids are 64 bits wide */
#define ATTNKIT_NO_APPEND 256u    /* of a layer: attend over the cache as it is */

/* What a mask says. */
typedef enum attnkit_mask {
    ATTNKIT_MASK_NONE = 0,   /* there is none */
    ATTNKIT_MASK_ATTEND = 1, /* true: the row sees the key */
    ATTNKIT_MASK_IGNORE = 2  /* true: the row does not see the key */
} attnkit_mask;

/* What `weights` gets, from left to right in the formula. */
typedef enum attnkit_weights {
    ATTNKIT_WEIGHTS_NONE = 0,
    ATTNKIT_WEIGHTS_SOFTMAX = 1, /* softmax(x)_j, before dropout; 0 where the row does not see j */
    ATTNKIT_WEIGHTS_BIASED = 2,  /* x_j as softmax takes it; -infinity where it does not see j */
    ATTNKIT_WEIGHTS_CAPPED = 3,  /* x_j before bias and ALiBi, of all keys, seen or not */
    ATTNKIT_WEIGHTS_SCALED = 4   /* x_j before softcap, of all keys, seen or not */
} attnkit_weights;

#define ATTNKIT_CHUNK_KEYS 512 /* keys after which a softmax state starts afresh */
#define ATTNKIT_TILE_KEYS 16   /* keys of a tile */

typedef struct attnkit_attention_args {
    size_t size;    /* sizeof(attnkit_attention_args) */
    uint32_t flags; /* of the bits above */
    attnkit_align align;

    /* Shape, none of it negative. batch, q_heads or q_len of 0 are legal: nothing is done.
     * kv_len = 0 is, too: out is 0, lse -infinity. */
    int64_t batch;
    int64_t q_heads;   /* a multiple of kv_heads; consecutive query heads share a KV head */
    int64_t kv_heads;  /* at least 1, unless q_heads is 0 */
    int64_t q_len;     /* query rows per head */
    int64_t kv_len;    /* keys per KV head; with kv_lens, the room for them */
    int64_t head_dim;  /* elements of a q and a k row, at least 1 */
    int64_t value_dim; /* elements of a v and an out row; 0 means head_dim */

    /* Tensors: q [batch][q_heads][q_len][head_dim], k [batch][kv_heads][kv_len][head_dim],
     * v [batch][kv_heads][kv_len][value_dim], out [batch][q_heads][q_len][value_dim],
     * lse [batch][q_heads][q_len] or NULL for none. Pointers are aligned to their element (2 bytes
     * for ATTNKIT_Q8_0), and NULL only where a tensor has no rows. Inputs may overlap each other,
     * those below (documents, masks, slopes, sinks, seeds) as well; out, lse and weights overlap
     * nothing, but may lie in the gaps between rows of the others. */
    const void *q;
    const void *k;
    const void *v;
    void *out;
    float *lse;

    /* Types, ATTNKIT_F32 by default. All arithmetic is binary32: elements are widened to it, which
     * is exact but for the product with an ATTNKIT_I8 scale, and the result is rounded to out_type
     * once. A row of ATTNKIT_Q8_0 is a multiple of 32 elements. */
    attnkit_type q_type;   /* ATTNKIT_F32, ATTNKIT_F16 or ATTNKIT_BF16 */
    attnkit_type k_type;   /* any */
    attnkit_type v_type;   /* any */
    attnkit_type out_type; /* ATTNKIT_F32, ATTNKIT_F16 or ATTNKIT_BF16 */

    /* Scales of ATTNKIT_I8, else NULL and 0: shaped as k and v, with head_dim / k_scale_group and
     * value_dim / v_scale_group floats in a row. Any value is taken as it is. */
    const float *k_scales;
    const float *v_scales;
    int64_t k_scale_group; /* elements that share a scale, a divisor of head_dim; 0: all of them */
    int64_t v_scale_group; /* the same of value_dim */

    /* Tiles: with ATTNKIT_TILED, K is stored as decoding reads it fastest, each element of 16 keys
     * side by side:
     *
     *     k         [batch][kv_heads][tiles][head_dim][16], where tiles = ceil(kv_len / 16)
     *     k_scales  [batch][kv_heads][tiles][head_dim / k_scale_group][16]
     *
     * A tile of ATTNKIT_Q8_0 is head_dim / 32 times 16 binary16 scales and then [32][16] bytes.
     * Key j is number j % 16 of tile j / 16. attnkit_append writes tiles; v stays in rows. Tiles
     * are whole, the last one too where kv_len is no multiple of 16, and all of a tile is read once
     * a row sees one of its keys; what it holds of keys from kv_len (or kv_lens[b]) on is of no
     * meaning, NaN included. The bits of the result are those of K in rows. Not with kv_starts.
     * Cost: decoding takes up to a quarter less time, and little less where reading memory takes
     * most of it. Calls with more than a few query rows turn K back into rows, once for each block
     * of 256 rows of a KV head: a long prompt does not feel it, a chunk of 32 rows over a long
     * cache takes a tenth to a quarter longer. For caches that are decoded from. */

    /* Strides in bytes of {batch, head, row}, where K and V are paged of {page, head, row}, and
     * where K is tiled with tile for row. Read only with ATTNKIT_STRIDED: then all of them are,
     * those of lse and scales too if there are any. The elements of a row or tile are adjacent.
     * Strides are multiples of the element, may be negative, and those of inputs may be 0, which
     * repeats; those of out and lse nest (each at least what the rows inside it span). A stride
     * along a dimension of size 1 is not looked at.
     * Without ATTNKIT_STRIDED the tensors are dense as written above. */
    int64_t q_strides[3];
    int64_t k_strides[3];
    int64_t v_strides[3];
    int64_t out_strides[3];
    int64_t lse_strides[3];
    int64_t k_scale_strides[3];
    int64_t v_scale_strides[3];

    /* Pages: with page_table, k, v and their scales are [pages][kv_heads][page_size][...], and key
     * j of entry b is row j % page_size of page page_table[b * page_table_stride + j / page_size].
     * The table's entries for keys below kv_len (or kv_lens[b]) are read, each one of
     * 0 .. pages - 1; other pages may be unmapped. With page_size = 1 it says of each key where it
     * lies, as in a cache that is padded on the left or goes round. With ATTNKIT_TILED page_size is
     * a multiple of 16 and k is [pages][kv_heads][page_size / 16][head_dim][16]. Without page_table
     * all four are 0.
     */
    const int32_t *page_table;
    int64_t page_table_stride; /* entries from b to b + 1; with batch > 1, room for kv_len */
    int64_t page_size;         /* keys of a page, at least 1 */
    int64_t pages;

    /* Sequences packed one after the other, without a batch dimension. With q_starts the shapes of
     * q, out, lse and states begin at their heads, q_len is the rows of all entries together, and
     * entry b has the rows q_starts[b] .. q_starts[b + 1] - 1; kv_starts is the same for k, v,
     * their scales and kv_len, without pages, tiles and kv_lens. Each begins with 0, does not fall,
     * and ends with q_len or kv_len. */
    const int64_t *q_starts;  /* [batch + 1], or NULL */
    const int64_t *kv_starts; /* [batch + 1], or NULL */

    /* Part of the keys: those from index first_key on. Row 0 of k and v is that key; kv_len,
     * kv_lens and page_table are of the keys of this call, positions stay what they are among all
     * of them. With after_max the call gives the softmax state of its rows instead of out and lse,
     * which must be NULL, and a call with before_max goes on from a state over the keys before
     * first_key: the bits are those of one call with all keys. The state of a row is M, l and o of
     * kernels/README.md: integer maximum of the scores in log2, sum of weights, weighted sum of v.
     * Dense tensors, all three or none, of [batch][q_heads][q_len], and [value_dim] for _out;
     * before and after do not overlap. A call with kv_len = 0 turns a state into a result. */
    int64_t first_key; /* a multiple of ATTNKIT_CHUNK_KEYS */
    const float *before_max;
    const float *before_sum;
    const float *before_out;
    float *after_max;
    float *after_sum;
    float *after_out;

    /* Options. */
    double scale; /* with ATTNKIT_SCALE_GIVEN, finite in binary32; else 1 / sqrt(head_dim) */
    const int64_t *kv_lens;   /* [batch], each 0 .. kv_len: keys beyond are absent; or NULL */
    const int64_t *q_offsets; /* [batch], with ATTNKIT_ALIGN_OFFSETS, else NULL; + q_len < 2^63 */

    /* Which keys a row sees: those that each of the following lets it see, of the keys below kv_len
     * or kv_lens[b], and with ATTNKIT_CAUSAL up to its position. Any of them go together. What a
     * row does not see is absent, as said at the top; a row that sees no key is 0, and lse is
     * -infinity, or the logarithm of its sink. */

    /* Window, with ATTNKIT_WINDOW, else all three are 0: the keys position - left .. position +
     * right, both included, so that left = 2 and right = 0 are 3 keys with that of the row itself.
     * -1: no bound. Keys of an index below keep_first are in every window. Blocks of 128 keys that
     * no row of a block of 256 sees cost nothing, but entries of page_table are checked. */
    int64_t window_left;
    int64_t window_right;
    int64_t keep_first;

    /* Documents: the row sees the keys with its own number, whatever it is. Dense [batch][q_len]
     * and [batch][kv_len], with q_starts [q_len] and with kv_starts [kv_len]; both or none. */
    const int32_t *q_docs;
    const int32_t *kv_docs;

    /* Masks: mask has a byte for each key, true where it is not 0; mask_bits has a bit, key j in
     * bit j % 8 of byte j / 8; bias a number, of which -infinity masks the key. Any of the three
     * may be there. Column j is key j of the batch entry, of those of this call. Shape
     * [batch][q_heads][q_len][columns], with q_starts without the batch; a mask may have fewer
     * columns than there are keys, and all keys after them are masked. Rows of mask_bits are
     * (columns + 7) / 8 bytes; what the last bits of a row are is of no meaning.
     * Strides of {batch, head, row} in bytes, with ATTNKIT_STRIDED or ATTNKIT_MASK_STRIDED: any
     * number, for bias a multiple of its element; 0 repeats, and one row of [columns] with strides
     * of 0 is a mask of the keys. Without these flags they are 0 and the masks are dense.
     * Where a mask is NULL its kind, columns and type are 0, unless there are no rows or no keys.
     * A bias is taken as it is, up to +infinity and NaN, which make the row NaN, as does a score
     * that leaves binary32 in log2, beyond 2.35e38; but a bias below -2^126 counts as -2^126: rows
     * of nothing but such values are the mean of v.
     * Cost: of 2 to 16 rows of a KV head, blocks that are not masked alike for all rows take each
     * row by itself, up to three times as long. Trees of guesses are masks: a branch has the bits
     * that it has as a sequence of its own where all guesses lie in one block of 128 keys, and
     * otherwise those of its keys where they are. */
    const void *mask;
    const void *mask_bits;
    const void *bias;
    attnkit_mask mask_kind;      /* what mask says; ATTNKIT_MASK_NONE without one */
    attnkit_mask mask_bits_kind; /* the same of mask_bits */
    attnkit_type bias_type;      /* ATTNKIT_F32, ATTNKIT_F16 or ATTNKIT_BF16 */
    int64_t mask_columns;        /* at most kv_len; 0: kv_len */
    int64_t mask_bits_columns;
    int64_t bias_columns;
    int64_t mask_strides[3];
    int64_t mask_bits_strides[3];
    int64_t bias_strides[3];

    /* Functions of the score. */
    double softcap;            /* 0: none; else positive, and finite in binary32 are both
                                * softcap * log2 e and scale / softcap */
    const float *alibi_slopes; /* [q_heads], or NULL; any value is taken as it is; needs align */
    const float *sinks;        /* [q_heads], or NULL; -infinity is no sink, NaN and +infinity make
                                * rows NaN, and beyond 2.35e38 a sink counts as infinite. Not for calls
                                * that give a state: it goes into the result */

    /* Dropout: with 0 < dropout < 1 (0: none), each weight is multiplied, after the softmax and its
     * lse, by 0 with this probability and else by 1 / (1 - dropout). Which ones follows from
     * dropout_seeds[b], head, position and key index alone: the key is dropped where word j % 4 of
     * Philox4x32-10 (Salmon et al. 2011) is below dropout * 2^32, with the halves of the seed as
     * its key, the lower first, and the counter {low 32 bits of j / 4, low 32 bits of the position,
     * head, bits 32 - 47 of j / 4 and, shifted up by 16, of the position}. Needs align. Costs about
     * as much again as the rest of the call. */
    double dropout;
    const uint64_t *dropout_seeds; /* [batch]; NULL where dropout is 0, and only there */

    /* Weights out: [batch][q_heads][q_len][kv_len], with q_starts without the batch; or NULL, and
     * no kind. Columns from kv_lens[b], or the end of a packed entry's keys, on are 0 for
     * ATTNKIT_WEIGHTS_SOFTMAX and -infinity for the others; of all keys before them the last two
     * kinds read K. Strides with ATTNKIT_STRIDED nest as those of out. Not with states and not with
     * first_key. Costs what the scores cost, once more, and writing. */
    float *weights;
    attnkit_weights weights_kind;
    int64_t weights_strides[3];
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
    /* Calls task(arg, i) for every i in 0 .. n-1 and returns when all are done. */
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
 *     4 * (256 * (head_dim + 2 * value_dim + 4) + 128 * 64 + 2 * value_dim) + 4096 bytes,
 *
 * where a type is not ATTNKIT_F32 or there are pages, tiles, documents, masks or keep_first,
 * 4 * 129 * (head_dim + value_dim) more, with any mask (window and documents, too), softcap,
 * slopes or dropout 73728 more, with weights 4 * (192 * head_dim + 25000) more, and with several
 * threads 4 * 3 * 256 * (value_dim + 3) + 65536 more.
 */
ATTNKIT_API attnkit_status attnkit_attention_workspace(const attnkit_attention_args *args,
                                                       const attnkit_exec *exec, size_t *bytes,
                                                       char *message);

/* Attention. exec may be NULL only if there is nothing to do. Cost: 2 * (head_dim + value_dim)
 * FLOPs for each query row and key it sees, and reading K and V once, or twice, for each block of
 * 256 query rows of a KV head.
 * The caller's rounding and flush-to-zero modes do not matter and are restored. */
ATTNKIT_API attnkit_status attnkit_attention(const attnkit_attention_args *args,
                                             const attnkit_exec *exec, char *message);

/* ---------------------------------------------------------------------------------------------
 * Merging.
 *
 * Attention over keys in several places: a prefix that sequences share and the keys of each, or
 * ranges of keys on several machines. Every part has its own attention call, with lse, over its own
 * keys; the merge makes of them what attention over all keys is. No key is in two parts. For each
 * row, in exact arithmetic and with sums over the parts:
 *
 *     out = sum_i w_i * out_i, w = softmax over i of lse_i       lse = log sum_i exp(lse_i)
 *
 * Every instruction set, number of threads, batch and stride gives the same bits. They depend on
 * the parts and on their order, and are not the bits of one call over all keys.
 *
 * What a part may be, row by row:
 *   - lse_i = -infinity: the row saw no key there. The part is absent, whatever out_i holds. A row
 *     of which all parts are absent, or that has none because parts is 0, is 0 with an lse of
 *     -infinity.
 *   - lse_i = NaN or +infinity: the row and its lse are NaN.
 *   - A NaN in the out_i of a part that is not absent makes that column NaN; an infinity makes it
 *     that infinity or NaN, and so do elements so large that a sum of them leaves binary32.
 *   - |lse_i| beyond 2.35e38, where lse_i / ln 2 leaves binary32, counts as infinite. No attention
 *     of this library gives such a value.
 *
 * Accuracy. With u = 2^-24, n <= 1000 parts, A = sum_i w_i |out_i|, and |lse_i| < 2^23 where a part
 * is not absent, the merge itself is off from the above by at most
 *
 *     (2 n + 5) u A + n (2^-147 + 2^-99 max |out_i|)     in an element of out,
 *     u |lse| + (3 n + 4) u                              in lse;
 *
 * one part comes back within 2 u |out| + 2^-148, not exactly. The errors of the parts add to it:
 * those of out_i with the weights w_i, and those of lse_i, if none is more than d, as
 * (e^(2 d) - 1) A in out and d in lse. An lse in binary32 has an error of u |lse| from its last
 * rounding alone: where it is 1000, weights are off by 1e-4.
 */

typedef struct attnkit_merge_args {
    size_t size;           /* sizeof(attnkit_merge_args) */
    uint32_t flags;        /* ATTNKIT_STRIDED */
    attnkit_type out_type; /* ATTNKIT_F32, ATTNKIT_F16 or ATTNKIT_BF16; parts are f32 */

    /* Shape, none of it negative. batch, q_heads or q_len of 0 are legal: nothing is done. */
    int64_t parts;
    int64_t batch;
    int64_t q_heads;
    int64_t q_len;
    int64_t value_dim; /* at least 1 */

    /* part_outs[i] is a tensor [batch][q_heads][q_len][value_dim], part_lses[i] one [batch]
     * [q_heads][q_len], for i < parts; both arrays may be NULL if parts is 0. out and lse have the
     * same shapes; lse may be NULL. Pointers are aligned to their element. Parts may overlap each
     * other. out and lse overlap nothing, with one exception: out, if it is ATTNKIT_F32, may be one
     * of part_outs, and lse one of part_lses, at the same address with the same strides: that part
     * is replaced. */
    const float *const *part_outs;
    const float *const *part_lses;
    void *out;
    float *lse;

    /* Strides in bytes of {batch, head, row}, with ATTNKIT_STRIDED only, as those of an attention.
     * All parts have the same. Those of parts may be 0, which repeats: a row that was computed once
     * for a batch, say. */
    int64_t part_out_strides[3];
    int64_t part_lse_strides[3];
    int64_t out_strides[3];
    int64_t lse_strides[3];
} attnkit_merge_args;

/* Merges. exec may be NULL: one thread; no workspace is needed or looked at. Rows are shared out
 * evenly, to at most 1024 threads. On an error the outputs are as they were. Cost: reading every
 * part and writing out once; checks cost some 40 ns for each part. The caller's rounding and
 * flush-to-zero modes do not matter and are restored. */
ATTNKIT_API attnkit_status attnkit_merge(const attnkit_merge_args *args, const attnkit_exec *exec,
                                         char *message);

/* ---------------------------------------------------------------------------------------------
 * Appending to a KV cache, with rotation (RoPE) and conversion on the way.
 *
 * For batch entry b, head h and row i < lens[b], with r = starts[b] + i and p = positions[b] + i:
 *
 *     dst[b][h][r] = convert(rotate(src[b][h][i], p))
 *
 * One call for K, with rotation; one for V, without; and one for Q, into a plain tensor or in
 * place. Nothing else of dst is written.
 *
 * Rotation. Each of the rope_dim / 2 pairs of elements (x0, x1) is turned by an angle, in binary32:
 *
 *     y0 = fma(x0, cos, -(x1 * sin)),   y1 = fma(x1, cos, x0 * sin)
 *
 * Elements from rope_dim on are not turned. For pair j, cos and sin are entry [p][j] of tables that
 * the caller has (for frequencies scaled in any way), or else those of the angle
 *
 *     p * 2^(-2 j / rope_dim * log2(rope_base)),   which is p / rope_base^(2 j / rope_dim),
 *
 * with every operation in binary64, log2, 2^x, cos and sin by SLEEF's (at most 1.0 ulp off), and
 * cos and sin rounded to binary32. A build without SLEEF has no angles and takes tables alone.
 *
 * Conversion. src is widened to binary32, which is exact, and rounded once: to nearest even for
 * ATTNKIT_F16 and ATTNKIT_BF16; for ATTNKIT_I8 and ATTNKIT_Q8_0, a group of elements gets the
 * scale max |x| / 127 (for Q8_0 rounded to binary16) and each element is x / scale, rounded to
 * nearest even. A group with a NaN or an infinity becomes NaN as a whole. Rows that are neither
 * converted nor turned are copied byte for byte.
 *
 * The bits of a row depend on its src, p and the options alone, those of a NaN included: not on the
 * instruction set, the threads or how rows are grouped into calls.
 */

/* Which elements of a row are a pair. */
typedef enum attnkit_rope {
    ATTNKIT_ROPE_NONE = 0,        /* no rotation */
    ATTNKIT_ROPE_INTERLEAVED = 1, /* 2 j and 2 j + 1 */
    ATTNKIT_ROPE_HALF = 2         /* j and j + rope_dim / 2 */
} attnkit_rope;

typedef struct attnkit_append_args {
    size_t size;    /* sizeof(attnkit_append_args) */
    uint32_t flags; /* ATTNKIT_STRIDED | ATTNKIT_TILED: dst and dst_scales are stored in tiles */
    attnkit_rope rope;

    /* Shape, none of it negative. batch, heads or len of 0 are legal: nothing is done. */
    int64_t batch;
    int64_t heads;
    int64_t len;      /* rows of src for each batch entry and head */
    int64_t dim;      /* elements of a row, at least 1; for ATTNKIT_Q8_0 a multiple of 32 */
    int64_t capacity; /* rows of dst for each batch entry and head; paged, those of its table */

    /* Tensors: src [batch][heads][len][dim], dst [batch][heads][capacity][dim], or paged
     * [pages][heads][page_size][dim]; dst_scales with dst_type ATTNKIT_I8, else NULL, has the shape
     * of dst with dim / scale_group floats in a row. Pointers are aligned to their element (2 bytes
     * for ATTNKIT_Q8_0), and NULL only where a tensor has no rows. dst and dst_scales overlap
     * nothing that the call reads or writes, but may lie in the gaps between rows of each other
     * and of src. And dst may be src itself, for a rotation in place: then the type, the address
     * and the strides are the same, starts is NULL and dst is neither paged nor tiled; a
     * parallel-for must not run a task of such a call again.
     * Tiles: with ATTNKIT_TILED, dst and dst_scales are shaped as k and k_scales of an attention
     * with that flag, where capacity is kv_len, and what is called a row of dst is the elements
     * that row has in its tile. No other byte of a tile is read or written, so that the rows of one
     * may come from several calls and threads; but none of its bytes may be another tensor's. */
    const void *src;
    void *dst;
    float *dst_scales;
    attnkit_type src_type; /* ATTNKIT_F32, ATTNKIT_F16 or ATTNKIT_BF16 */
    attnkit_type dst_type; /* any */
    int64_t scale_group;   /* elements that share a scale, a divisor of dim; 0 means dim */

    /* Strides in bytes of {batch, head, row} (paged: page for batch, tiled: tile for row), as in
     * attention: read only with ATTNKIT_STRIDED, and then all of them are. Those of dst and
     * dst_scales nest. */
    int64_t src_strides[3];
    int64_t dst_strides[3];
    int64_t dst_scale_strides[3];

    /* Which rows: starts[b] + lens[b] is at most capacity. */
    const int64_t *starts; /* [batch], row of dst for row 0: the keys cached so far; NULL: 0 */
    const int64_t *lens;   /* [batch], each 0 .. len: how many rows of src are taken; NULL: len */

    /* Pages: row r of entry b is row r % page_size of page page_table[b * page_table_stride +
     * r / page_size]. Only the table's entries for rows that are written are read; each is one of
     * 0 .. pages - 1. No two rows of a call may lie in the same row of a page: that is not
     * checked, and one of them is lost. Without page_table all four are 0. */
    const int32_t *page_table;
    int64_t page_table_stride; /* entries from b to b + 1; with batch > 1, room for capacity */
    int64_t page_size;         /* rows of a page; with ATTNKIT_TILED a multiple of 16 */
    int64_t pages;

    /* Rotation: all 0 without. */
    const int64_t *positions; /* [batch], position of row 0, not negative; NULL: starts */
    int64_t rope_dim;         /* elements that are turned, even, at most dim; 0 means dim */
    double rope_base;         /* at least 1; 0 means 10000, or that there are tables */
    const float *rope_cos;    /* [rope_positions][rope_dim / 2], dense; both tables or none */
    const float *rope_sin;
    int64_t rope_positions; /* of the tables; 0 without */
} attnkit_append_args;

/* Bytes of workspace that attnkit_append needs for these args and this exec (NULL: one thread). Of
 * the pointers it only matters which are NULL: nothing is read through them. At most, for each
 * thread, 12 * dim + 128 bytes, and with ATTNKIT_TILED 5 * dim more. */
ATTNKIT_API attnkit_status attnkit_append_workspace(const attnkit_append_args *args,
                                                    const attnkit_exec *exec, size_t *bytes,
                                                    char *message);

/* Append. exec is as for attention; work is shared by rows, all heads of a row together. Cost:
 * reading src and writing dst once, and with ATTNKIT_TILED some 0.6 ns for each element; for angles
 * also some 30 ns for each pair of a position (all its heads together) and 20 ns for each pair of a
 * call. A call that fails has written nothing. */
ATTNKIT_API attnkit_status attnkit_append(const attnkit_append_args *args, const attnkit_exec *exec,
                                          char *message);

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

typedef struct attnkit_pack_args {
    size_t size;    /* sizeof(attnkit_pack_args) */
    uint32_t flags; /* ATTNKIT_STRIDED */

    int64_t out_dim; /* at least 1 */
    int64_t in_dim;  /* at least 1; for ATTNKIT_Q8_0, of w or packed, a multiple of 32 */

    /* w [out_dim][in_dim]; packed_type is w_type, or any of the four where w_type is not
     * ATTNKIT_Q8_0: then elements are converted as attnkit_append converts. */
    const void *w;
    attnkit_type w_type;      /* ATTNKIT_F32, ATTNKIT_F16, ATTNKIT_BF16 or ATTNKIT_Q8_0 */
    attnkit_type packed_type; /* the same */
    int64_t w_stride;         /* bytes from row to row, with ATTNKIT_STRIDED, else 0 */

    /* Memory for the packed matrix, aligned to 64 bytes, which overlaps nothing. Its bytes follow
     * from w and the types alone, and may be kept in a file: tiles of 16 rows of w as those of K
     * with ATTNKIT_TILED, [ceil(out_dim / 16)][in_dim][16], zeros after the last row. */
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

typedef struct attnkit_linear_args {
    size_t size;    /* sizeof(attnkit_linear_args) */
    uint32_t flags; /* ATTNKIT_STRIDED */

    int64_t rows; /* 0 is legal: nothing is done */
    int64_t in_dim;
    int64_t out_dim;

    /* x [rows][in_dim], y [rows][out_dim], bias [out_dim] or NULL for none; w is what attnkit_pack
     * wrote for the same dims, with packed_type = w_type. y overlaps nothing. */
    const void *x;
    const void *w;
    const float *bias;
    void *y;
    attnkit_type x_type; /* ATTNKIT_F32, ATTNKIT_F16 or ATTNKIT_BF16 */
    attnkit_type w_type; /* ATTNKIT_F32, ATTNKIT_F16, ATTNKIT_BF16 or ATTNKIT_Q8_0 */
    attnkit_type y_type; /* ATTNKIT_F32, ATTNKIT_F16 or ATTNKIT_BF16 */

    /* Bytes from row to row, with ATTNKIT_STRIDED, else 0: multiples of the element, also 0 or
     * negative, as long as no rows of y overlap. */
    int64_t x_stride;
    int64_t y_stride;
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

/* ---------------------------------------------------------------------------------------------
 * Token embeddings: out[i] = table[ids[i]], or zeros where ids[i] is the padding id.
 */

typedef struct attnkit_embed_args {
    size_t size;    /* sizeof(attnkit_embed_args) */
    uint32_t flags; /* ATTNKIT_STRIDED | ATTNKIT_PADDING_GIVEN | ATTNKIT_IDS_64 */

    int64_t count; /* of ids; 0 is legal */
    int64_t vocab; /* rows of table */
    int64_t dim;   /* elements of a row, at least 1; for ATTNKIT_Q8_0 a multiple of 32 */

    /* ids [count] of int32_t, with ATTNKIT_IDS_64 of int64_t, each one of 0 .. vocab - 1 or the
     * padding id; table [vocab][dim], out [count][dim], which overlaps nothing. Rows are copied
     * byte for byte where the types are equal, else elements are widened to binary32, which is
     * exact, and rounded once to out_type. */
    const void *ids;
    const void *table;
    void *out;
    attnkit_type table_type; /* ATTNKIT_F32, ATTNKIT_F16, ATTNKIT_BF16 or ATTNKIT_Q8_0 */
    attnkit_type out_type;   /* ATTNKIT_F32, ATTNKIT_F16 or ATTNKIT_BF16 */
    int64_t padding_id;   /* with ATTNKIT_PADDING_GIVEN, any number, in the table or not; else 0 */
    int64_t table_stride; /* bytes from row to row, with ATTNKIT_STRIDED, else 0 */
    int64_t out_stride;
} attnkit_embed_args;

/* Looks up. exec may be NULL: one thread; no workspace is needed. An id that is out of range is
 * ATTNKIT_BAD_ARGUMENT with its index and value in the message, and nothing is written. */
ATTNKIT_API attnkit_status attnkit_embed(const attnkit_embed_args *args, const attnkit_exec *exec,
                                         char *message);

/* ---------------------------------------------------------------------------------------------
 * The multi-head attention layer: projections, attention, output projection.
 *
 *     q = x W_Qᵀ + b_q     k = key W_Kᵀ + b_k     v = value W_Vᵀ + b_v     each row cut into heads
 *     out = attention(rotate(q), rotate(k), v) W_Oᵀ + b_o
 *
 * Self-attention has key = value = x. The layer is what its parts are: the bits are those of the
 * calls attnkit_linear, attnkit_append and attnkit_attention one after the other, with q, k, v and
 * the result of attention in binary32.
 *
 * The weights are packed once, into the caller's memory, which from then on describes the layer.
 */

typedef struct attnkit_layer_weights {
    size_t size;    /* sizeof(attnkit_layer_weights) */
    uint32_t flags; /* 0 */

    int64_t d_model;   /* elements of a row of x */
    int64_t d_key;     /* of a row of key; 0: d_model */
    int64_t d_value;   /* of a row of value; 0: d_key */
    int64_t d_out;     /* of a row of out; 0: d_model */
    int64_t q_heads;   /* a multiple of kv_heads */
    int64_t kv_heads;  /* 0: q_heads */
    int64_t head_dim;  /* 0: d_model / q_heads, which then is whole */
    int64_t value_dim; /* 0: head_dim */

    /* Dense, in rows of an output each as PyTorch's Linear has them: w_q [q_heads * head_dim]
     * [d_model], w_k [kv_heads * head_dim][d_key], w_v [kv_heads * value_dim][d_value],
     * w_o [d_out][q_heads * value_dim]; or, with the three input dims equal, instead of the first
     * three w_qkv, which has their rows one after the other, as in_proj_weight of PyTorch's
     * MultiheadAttention. Biases have an element for each row; each may be NULL. */
    const void *w_q;
    const void *w_k;
    const void *w_v;
    const void *w_qkv;
    const void *w_o;
    const void *b_q;
    const void *b_k;
    const void *b_v;
    const void *b_qkv; /* instead of the first three, with w_qkv or without */
    const void *b_o;
    attnkit_type w_type;      /* of all matrices, as in attnkit_pack_args */
    attnkit_type packed_type; /* the same */
    attnkit_type bias_type;   /* ATTNKIT_F32, ATTNKIT_F16 or ATTNKIT_BF16 */
} attnkit_layer_weights;

/* Bytes that attnkit_layer_pack writes; no pointer is read through. */
ATTNKIT_API attnkit_status attnkit_layer_packed_size(const attnkit_layer_weights *weights,
                                                     size_t *bytes, char *message);

/* Packs the weights into `packed`, aligned to 64 bytes, at least `bytes` of them, which overlaps
 * nothing. They may be kept in a file and mapped later, at any address that is aligned so. exec as
 * in attnkit_pack. */
ATTNKIT_API attnkit_status attnkit_layer_pack(const attnkit_layer_weights *weights, void *packed,
                                              size_t bytes, const attnkit_exec *exec,
                                              char *message);

typedef struct attnkit_layer_args {
    size_t size;    /* sizeof(attnkit_layer_args) */
    uint32_t flags; /* ATTNKIT_STRIDED | ATTNKIT_NO_APPEND */

    const void *packed; /* what attnkit_layer_pack wrote */
    size_t packed_size;

    /* x [batch][q_len][d_model], key [batch][kv_len][d_key], value [batch][kv_len][d_value], out
     * [batch][q_len][d_out]. key NULL: key and value are x, and kv_len is 0; value NULL: it is key.
     * out overlaps nothing. With attention->q_starts or kv_starts shapes begin with the rows; where
     * key is NULL, q_starts are kv_starts, too.
     * batch or q_len of 0 are legal: there is no result, but new keys go into the cache. */
    int64_t batch;
    int64_t q_len;
    int64_t kv_len;
    const void *x;
    const void *key;
    const void *value;
    void *out;
    attnkit_type x_type;   /* of x, key and value: ATTNKIT_F32, ATTNKIT_F16 or ATTNKIT_BF16 */
    attnkit_type out_type; /* the same */

    /* Bytes from batch entry to batch entry and from row to row, with ATTNKIT_STRIDED, else 0. */
    int64_t x_strides[2];
    int64_t key_strides[2];
    int64_t value_strides[2];
    int64_t out_strides[2];

    /* Rotation of q and of new keys, as in attnkit_append_args; row i of entry b of both is at
     * positions[b] + i, where positions is NULL at cached[b] + i, and without a cache at i. Only
     * where key is NULL. */
    attnkit_rope rope;
    int64_t rope_dim;
    double rope_base;
    const float *rope_cos;
    const float *rope_sin;
    int64_t rope_positions;
    const int64_t *positions; /* [batch] or NULL */

    /* Everything else that an attention call has: flags, align, scale, masks, lengths, documents,
     * packed sequences, softcap, ALiBi, sinks, dropout, lse and weights, shaped and strided as
     * there; NULL: nothing of it. What the layer knows is 0: batch, heads, dims, q_len and kv_len
     * (but see below), q, out, their types and strides.
     *
     * Cache: with `cached`, attention has the cache: k, v, types, scales, strides, pages, tiles,
     * and the room in kv_len. The call appends the new keys and values, those of x or key, behind
     * the cached[b] that are there, by attnkit_append; with ATTNKIT_NO_APPEND it appends none, W_K
     * and W_V are not used and key is NULL. The rows then see cached[b] and new keys, as if that
     * were kv_lens, which is NULL. Not with packed sequences. Without `cached` k and v of attention
     * are NULL. */
    const attnkit_attention_args *attention;
    const int64_t *cached; /* [batch], or NULL: no cache */

    /* ATTNKIT_WEIGHTS_SOFTMAX, the mean of all heads, dense [batch][q_len][keys], with q_starts
     * [q_len][keys], where keys is kv_len of the attention; or NULL. Not with a weights_kind other
     * than that one. */
    float *mean_weights;
} attnkit_layer_args;

/* Bytes of workspace that attnkit_layer needs for these args and this exec (NULL: one thread). Of
 * what `packed` points to it reads the description, at `attention` the struct; of other pointers it
 * only matters which are NULL. About 4 bytes for each element of q, k, v and the result of
 * attention, with mean_weights alone for each weight of each head, and what the calls need. */
ATTNKIT_API attnkit_status attnkit_layer_workspace(const attnkit_layer_args *args,
                                                   const attnkit_exec *exec, size_t *bytes,
                                                   char *message);

/* The layer. exec as for attention; threads of your own need its barrier. On an error out, cache,
 * lse and weights are as they were. Cost: that of four attnkit_linear, the appends and the
 * attention; for one row that is reading the weights and the cache once. */
ATTNKIT_API attnkit_status attnkit_layer(const attnkit_layer_args *args, const attnkit_exec *exec,
                                         char *message);

/* ---------------------------------------------------------------------------------------------
 * Instruction sets. All give the same bits. The best that CPU and operating system allow is
 * chosen on first use. The environment variable ATTNKIT_ISA (not read in a set-uid process) names
 * another; attnkit_exec.isa names one for a single call and wins. A name that is unknown or cannot
 * run here is ATTNKIT_BAD_ISA with the possible names in the message, from the first call on and
 * as long as the variable has it.
 */

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

typedef struct attnkit_isa_choice {
    size_t size;         /* sizeof(attnkit_isa_choice), set by the caller */
    const char *prefill; /* the instruction set that runs many query rows */
    const char *decode;  /* the one that runs few */
    const char *reason;  /* why it is this one, as text */
} attnkit_isa_choice;

/* What a call with exec.isa = isa (NULL: automatic) would run, and why. */
ATTNKIT_API attnkit_status attnkit_isa_choose(const char *isa, attnkit_isa_choice *choice,
                                              char *message);

#ifdef __cplusplus
}
#endif

#endif /* ATTNKIT_H */
