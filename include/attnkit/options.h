/* SPDX-License-Identifier: Apache-2.0
 *
 * attnkit: the optional groups of an attention call. Read attnkit.h first. All groups can be
 * combined with each other, in prefill and decode, for every type and layout. Comments state the
 * exceptions.
 */
#include "attnkit.h" /* which includes this file in its turn */

#ifndef ATTNKIT_PUBLIC_OPTIONS_H
#define ATTNKIT_PUBLIC_OPTIONS_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
 * Pages. The shape of k, v and their scales is [pages][kv_heads][page_size][...], with strides of
 * {page, head, row}. Key j of batch entry b is row j % page_size of page
 * block_table[b * block_table_stride + j / page_size].
 */

/* The pages of a cache, and the block table, which lists the pages of each batch entry. */
typedef struct attnkit_pages {
    size_t size; /* sizeof(attnkit_pages) */

    /* block_table: a row of page numbers for each batch entry, each number one of 0 .. pages - 1.
     * The call reads only the numbers for keys below kv_len (or kv_lens[b]), and only the pages
     * that these numbers name. All other pages may be unmapped. NULL: no pages, and the other
     * fields are 0. */
    const int32_t *block_table;
    int64_t block_table_stride; /* numbers from one row of the table to the next; if batch > 1, at
                                 * least the number of pages of a batch entry */
    int64_t page_size; /* keys of a page, at least 1; with tiles a multiple of 16. With pages of 1
                        * key, the table gives the row of each key, for example in a ring, or in a
                        * cache with padding on the left. */
    int64_t pages;     /* number of pages */
} attnkit_pages;

/* ---------------------------------------------------------------------------------------------
 * Storage: how K and V lie in memory.
 *
 * Tiles. ATTNKIT_TILED in k.layout stores K in the layout that decoding reads fastest: the same
 * element of 16 keys lies side by side.
 *
 *     k         [batch][kv_heads][tiles][head_dim][16], where tiles = ceil(kv_len / 16)
 *     k_scales  [batch][kv_heads][tiles][head_dim / k_scale_group][16]
 *
 * Strides are of {batch, head, tile}. With pages the shape of k is
 * [pages][kv_heads][page_size / 16][head_dim][16], and strides are of {page, head, tile}. A tile of
 * ATTNKIT_Q8_0 has head_dim / 32 parts. Each part is 16 binary16 scales and then [32][16] bytes.
 * Key j is number j % 16 of tile j / 16. attnkit_append writes tiles. Only K can be in tiles, V
 * cannot. Every tile has room for 16 keys, also the last tile if kv_len is not a multiple of 16. If
 * a row sees one key of a tile, the whole tile is read. Elements of keys from kv_len (or
 * kv_lens[b]) on have no meaning and may be NaN. The bits of the result are the same as for K in
 * rows. Tiles are not allowed with cu_seqlens_kv.
 * Cost: decoding takes up to a quarter less time than with K in rows. The gain is small if decoding
 * mostly waits for memory. Calls with more than a few query rows for each KV head convert K back
 * into rows, once for each block of 256 or 512 query rows of a KV head. For a long prompt this cost
 * is negligible. For 32 rows of a prompt over a long cache, the call takes a tenth to a quarter
 * longer than with K in rows. So use tiles if most calls that read the cache are decoding steps.
 */

/* Pages, scales, packed sequences and cells of K and V. */
typedef struct attnkit_kv_storage {
    size_t size; /* sizeof(attnkit_kv_storage) */

    const attnkit_pages *pages; /* or NULL */

    /* k_scales and v_scales: the scales of k or v if the type of k or v is ATTNKIT_I8 or
     * ATTNKIT_F8_E4M3; else none, and the scale group is 0. The scales have the shapes of k and v
     * (k_scales lies in tiles if k.layout has ATTNKIT_TILED), with head_dim / k_scale_group and
     * value_dim / v_scale_group binary32 numbers in a row. A scale may be any number, NaN and
     * infinity included. A stride of 0 repeats the scales for all keys, or for all heads. */
    attnkit_tensor k_scales;
    attnkit_tensor v_scales;
    int64_t k_scale_group; /* elements that share a scale, a divisor of head_dim; 0: head_dim */
    int64_t v_scale_group; /* elements of v that share a scale; divides value_dim; 0: value_dim */

    /* Packed sequences lie one after the other, without a batch dimension. With cu_seqlens_q, the
     * shapes of q, out, lse, weights, masks, bias and states lose their batch dimension. q_len is
     * then the number of rows of all entries together, and entry b has the rows
     * cu_seqlens_q[b] .. cu_seqlens_q[b + 1] - 1. With cu_seqlens_kv the same holds for k, v, their
     * scales and kv_len. cu_seqlens_kv is not allowed with pages, tiles or kv_lens. Each array has
     * batch + 1 elements, begins with 0, never decreases, and ends with q_len or kv_len. */
    attnkit_ints cu_seqlens_q;
    attnkit_ints cu_seqlens_kv;

    /* Cells: keys in any order, as in a ring, or in a cache that several sequences share. A row of
     * k and v is then a cell. key_index [batch][kv_len] gives for each cell the absolute index of
     * its key, or -1 if the cell is empty. Entry b has the kv_len numbers from b * key_index_stride
     * on. With a stride of 0 all entries have the same numbers. With kv_lens the cells from
     * kv_lens[b] on are empty, whatever their numbers are. No two cells of an entry have the same
     * index, and the largest index is at most the smallest index + 4 * kv_len.
     * The bits are the same as for a cache in which each key lies at its index. Positions,
     * causality, windows, slopes and dropout use the index. With ATTNKIT_ALIGN_BOTTOM_RIGHT the
     * last row is at the largest index. If no cell has the index of a key, the key is absent. Empty
     * cells are not read. Columns of masks, bias, kv_segment_ids and weights are cells. If a mask
     * has fewer columns than there are cells, no row sees the keys in the cells beyond the columns.
     * In weights, an empty cell gets the same number as a key beyond kv_lens[b].
     * If several sequences share one cache, each sequence is a batch entry, and k and v have a
     * stride of 0 from entry to entry. Each entry has its own row of key_index, with -1 for the
     * cells that hold no key of this entry. kv_len is at most 2^31 - 1. Cells are not allowed with
     * pages, tiles, cu_seqlens_kv, first_key or states.
     * Cost: a thread usually reads key_index of an entry at most three times, which takes one or
     * two cycles for each number. There is no further cost where 128 consecutive cells hold 128
     * consecutive keys. Elsewhere decoding looks up the address of each row. If no two keys with
     * consecutive indices lie in consecutive cells, decoding takes 1.2 to 1.8 times as long as
     * without cells. Calls with many query rows copy K and V, and the columns of masks, 128 keys at
     * a time. These calls take up to a tenth longer than without cells. The indices of a ring that
     * keeps its first keys for ever become too far apart for cells. Use pages of one key
     * instead. */
    attnkit_ints key_index;
    int64_t key_index_stride; /* 0, or at least kv_len */
} attnkit_kv_storage;

/* ---------------------------------------------------------------------------------------------
 * Visibility: which keys a row sees. Without options a row sees all keys below kv_len. With
 * ATTNKIT_CAUSAL a row sees only the keys below kv_len that are not after its position. Each of the
 * following options hides further keys. A key that a row does not see is absent, as defined in
 * attnkit.h. If a row sees no key, its result is 0. Its lse is then -infinity, or the sink if the
 * head has a sink. But a sink of NaN or +infinity makes every row of its head NaN.
 */

/* A window around the position of the row: the keys position - left .. position + right, both
 * included. left = 2 and right = 0 are 3 keys: the row's own key and two keys before it. left =
 * right = 0 is the row's own key alone. Needs align. Rows are computed in blocks of 256 or 512. If
 * no row of a block of rows sees a key of a block of 128 keys, these 128 keys cost no time. But
 * their page numbers in the block table are checked. */
typedef struct attnkit_window {
    size_t size;        /* sizeof(attnkit_window) */
    int64_t left;       /* -1: no bound */
    int64_t right;      /* -1: no bound */
    int64_t keep_first; /* number of first keys that are in every window */
} attnkit_window;

/* What true means in a mask. */
typedef int32_t attnkit_mask_kind;
enum {
    ATTNKIT_MASK_NONE = 0,   /* no mask */
    ATTNKIT_MASK_ATTEND = 1, /* the row sees the key */
    ATTNKIT_MASK_IGNORE = 2  /* the row does not see the key */
};

/* Options that hide keys from rows. */
typedef struct attnkit_visibility {
    size_t size; /* sizeof(attnkit_visibility) */

    attnkit_ints kv_lens; /* [batch], keys of each entry, 0 .. kv_len; none: kv_len keys each */

    const attnkit_window *window; /* or NULL */

    /* Segments: a row sees only keys with the id of the row. Ids may be any numbers. Both arrays
     * are dense. q_segment_ids is [batch][q_len], or [q_len] if the call has cu_seqlens_q.
     * kv_segment_ids is [batch][kv_len], or [kv_len] if the call has cu_seqlens_kv. Both arrays are
     * given, or neither. */
    const int32_t *q_segment_ids;
    const int32_t *kv_segment_ids;

    /* Masks, optional: mask is of ATTNKIT_BOOL, mask_bits of ATTNKIT_BITS. Shape
     * [batch][q_heads][q_len][columns]. Column j is key j of the batch entry, counted among the
     * keys of this call. With key_index, column j is cell j instead. A mask may have fewer columns
     * than there are keys. Then no row sees the keys beyond the columns. Strides may be any
     * numbers: a mask that depends only on the key is one row [columns] with ATTNKIT_STRIDED and
     * strides of 0. Rows of bits are (columns + 7) / 8 bytes; unused bits at the end of a row have
     * no meaning. If a mask is not given, its kind and its columns must be 0, except in a call
     * without rows or without keys.
     * Cost: in a call with 2 to 16 query rows for each KV head, neighbouring rows may share the
     * work on a block of 128 keys. They share the work in two cases. Either the rows see the same
     * keys of the block, or each of them sees an unbroken range of keys, and these ranges begin
     * with the same key. A block in which no rows share the work takes up to three times as long as
     * a block in which all rows share it.
     * A tree of speculative drafts is given as a mask. A branch has the same bits as if it were a
     * sequence of its own, if all drafts lie in one block of 128 keys, and the call has no window,
     * slopes, dropout or ATTNKIT_BF16_PRODUCTS. Otherwise the bits of a branch depend on the
     * indices of its keys. */
    attnkit_tensor mask;
    attnkit_tensor mask_bits;
    int64_t mask_columns;             /* at most kv_len; 0: kv_len */
    int64_t mask_bits_columns;        /* columns of mask_bits, at most kv_len; 0: kv_len */
    attnkit_mask_kind mask_kind;      /* what true means in mask */
    attnkit_mask_kind mask_bits_kind; /* what 1 means in mask_bits */
} attnkit_visibility;

/* ---------------------------------------------------------------------------------------------
 * Score mods: changes to a score before the softmax, and to a weight after the softmax.
 */

/* Softcap, bias, ALiBi, sinks and dropout. */
typedef struct attnkit_score_mods {
    size_t size; /* sizeof(attnkit_score_mods) */

    double softcap; /* 0: none; else positive; softcap * log2 e and scale / softcap must be finite
                     * in binary32 */

    /* bias, optional: a number that is added to each score. ATTNKIT_F32, F16 or BF16, with the
     * shape of a mask and the same rules for columns and strides. -infinity masks the key. Without
     * bias_scales, a row that sees a key with a bias of +infinity or NaN is NaN. A score above
     * 2.35e38 makes the row NaN, too, because score * log2 e overflows binary32. A finite bias
     * below -2^126 counts as -2^126. If all keys that a row sees have such a bias, and the head has
     * no sink, the result of the row is the mean of v over these keys.
     * Cost: as for a mask. bias_scales, below, has a factor of the bias for each head. */
    attnkit_tensor bias;
    int64_t bias_columns; /* at most kv_len; 0: kv_len */

    const float *alibi_slopes; /* [q_heads], or NULL; any number, NaN included; needs align */
    const float *sinks;        /* [q_heads], or NULL; -infinity is no sink; NaN and +infinity make
                                * rows NaN; a sink beyond 2.35e38 in magnitude counts as infinite;
                                * not with state_out, because the call that gives the result adds
                                * the sink */

    /* Dropout, for 0 < dropout < 1; 0: none. After softmax and lse are computed, each weight is
     * multiplied by 0 with this probability, and otherwise by 1 / (1 - dropout). Only dropout,
     * dropout_seeds[b], head, position and key index j decide whether a weight becomes 0. The
     * weight becomes 0 if word j % 4 of Philox4x32-10 (Salmon et al. 2011) is below dropout * 2^32.
     * The key of Philox is the two halves of the seed, the lower half first. The counter is {low 32
     * bits of j / 4, low 32 bits of the position, head, w}. The low half of w is bits 32 to 47 of
     * j / 4, the high half is bits 32 to 47 of the position. Needs align. */
    double dropout;
    const uint64_t *dropout_seeds; /* [batch]; NULL if and only if dropout is 0 */

    /* Factors of the bias, [q_heads], or NULL: head h adds bias_scales[h] * bias. Needs a bias. The
     * release 0.1.0 does not have this field. If the numbers of the bias are distances, the same
     * for all heads, the factors are slopes as in ALiBi. A bias of -infinity masks the key whatever
     * the factor is, even 0 or NaN. For any other bias, the product counts like a bias, but never
     * masks the key. A product of NaN or +infinity makes the row NaN. A product below -2^126, even
     * -infinity, counts as -2^126. A factor beyond 2.35e38 in magnitude counts as infinite. Factors
     * of 1 give the same bits as NULL.
     * Cost: as for a bias whose numbers differ between heads. */
    const float *bias_scales;
} attnkit_score_mods;

/* ---------------------------------------------------------------------------------------------
 * States: attention over part of the keys at a time. Each call hands its softmax state on to the
 * next call. The last call gives the same bits as one call over all keys.
 */

/* The softmax state of rows: M, l and o of kernels/README.md. M is the largest score times log2 e,
 * rounded up to an integer, or -infinity. l is the sum of weights and o the weighted sum of v, both
 * in units of 2 to the power of M. Dense [batch][q_heads][q_len]; out has a further dimension
 * [value_dim]. All three arrays are given, or none. Calls write an integer or -infinity as max, or
 * +infinity if a score is +infinity, which makes the row NaN. Any other max has no meaning. */
typedef struct attnkit_state {
    float *max;  /* M: the largest score times log2 e, rounded up to an integer, or -infinity */
    double *sum; /* l: binary64, because l adds up chunks of keys */
    double *out; /* o: binary64, as l */
} attnkit_state;

/* The part of the keys that a call sees, and the states before and after this part. */
typedef struct attnkit_states {
    size_t size; /* sizeof(attnkit_states) */

    /* The absolute index of row 0 of k and v, a multiple of ATTNKIT_CHUNK_KEYS. kv_len, kv_lens and
     * the block table count the keys of this call; positions count all keys. */
    int64_t first_key;

    /* With state_out the call writes the state of its rows; out and lse must be none. With state_in
     * the call continues from a state over the keys before first_key. The call does not write to
     * state_in. state_in and state_out do not overlap. A call with kv_len = 0 turns a state into a
     * result. */
    attnkit_state state_in;
    attnkit_state state_out;
} attnkit_states;

/* ---------------------------------------------------------------------------------------------
 * Weights as a third output.
 */

/* The stage of the formula in attnkit.h whose numbers are written as weights. */
typedef int32_t attnkit_weights_kind;
enum {
    ATTNKIT_WEIGHTS_NONE = 0,    /* no weights */
    ATTNKIT_WEIGHTS_SOFTMAX = 1, /* softmax(x)_j, before dropout; 0 where the row does not see j */
    ATTNKIT_WEIGHTS_BIASED = 2,  /* x_j that softmax takes; -infinity if the row does not see j */
    ATTNKIT_WEIGHTS_CAPPED = 3,  /* x_j before bias and ALiBi, of all keys, seen or not */
    ATTNKIT_WEIGHTS_SCALED = 4   /* x_j before softcap, of all keys, seen or not */
};

/* Which weights a call writes, and where. */
typedef struct attnkit_weights_out {
    size_t size; /* sizeof(attnkit_weights_out) */

    /* weights: ATTNKIT_F32 [batch][q_heads][q_len][kv_len]; or none, with kind 0. Columns after the
     * last key of an entry (kv_lens[b], or the length of a packed sequence) are 0 for
     * ATTNKIT_WEIGHTS_SOFTMAX and -infinity for the other kinds. ATTNKIT_WEIGHTS_CAPPED and
     * ATTNKIT_WEIGHTS_SCALED read K of all keys of the entry, seen or not. Weights are not allowed
     * with states or first_key.
     * Cost: the scores are computed a second time, and the weights are written. */
    attnkit_tensor weights;
    attnkit_weights_kind kind;
    uint32_t flags; /* 0 */
} attnkit_weights_out;

/* ---------------------------------------------------------------------------------------------
 * Data of the groups: the pointers of a run of a plan (attnkit_attention_data.groups).
 */

/* Each field has the meaning of the field with the same name in a group. Types, strides and shapes
 * are in the plan. */
typedef struct attnkit_attention_group_data {
    size_t size; /* sizeof(attnkit_attention_group_data) */
    const float *k_scales;
    const float *v_scales;
    const int32_t *q_segment_ids;
    const int32_t *kv_segment_ids;
    const void *mask;
    const void *mask_bits;
    const void *bias;
    const float *alibi_slopes;
    const float *sinks;
    const uint64_t *dropout_seeds;
    attnkit_state state_in;
    attnkit_state state_out;
    float *weights;
    const float *bias_scales;
    const void *key_index; /* integers of the planned width */
} attnkit_attention_group_data;

/* --------------------------------------------------------------------------------------------- */

static inline void attnkit_pages_init(attnkit_pages *pages)
{
    memset(pages, 0, sizeof *pages);
    pages->size = sizeof *pages;
}

static inline void attnkit_kv_storage_init(attnkit_kv_storage *storage)
{
    memset(storage, 0, sizeof *storage);
    storage->size = sizeof *storage;
}

static inline void attnkit_window_init(attnkit_window *window)
{
    memset(window, 0, sizeof *window);
    window->size = sizeof *window;
}

static inline void attnkit_visibility_init(attnkit_visibility *visibility)
{
    memset(visibility, 0, sizeof *visibility);
    visibility->size = sizeof *visibility;
}

static inline void attnkit_score_mods_init(attnkit_score_mods *scores)
{
    memset(scores, 0, sizeof *scores);
    scores->size = sizeof *scores;
}

static inline void attnkit_states_init(attnkit_states *states)
{
    memset(states, 0, sizeof *states);
    states->size = sizeof *states;
}

static inline void attnkit_weights_out_init(attnkit_weights_out *weights)
{
    memset(weights, 0, sizeof *weights);
    weights->size = sizeof *weights;
}

static inline void attnkit_attention_group_data_init(attnkit_attention_group_data *data)
{
    memset(data, 0, sizeof *data);
    data->size = sizeof *data;
}

#ifdef __cplusplus
}
#endif

#endif /* ATTNKIT_PUBLIC_OPTIONS_H */
