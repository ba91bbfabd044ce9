/* SPDX-License-Identifier: Apache-2.0
 *
 * attnkit: the optional groups of an attention call. attnkit.h comes first. Any of them go
 * together, in prefill and decode, for every type and layout.
 */
#include "attnkit.h" /* which includes this file in its turn */

#ifndef ATTNKIT_PUBLIC_OPTIONS_H
#define ATTNKIT_PUBLIC_OPTIONS_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
 * Pages: k and v, and their scales, are [pages][kv_heads][page_size][...], and key j of entry b is
 * row j % page_size of page block_table[b * block_table_stride + j / page_size]. The strides of
 * these tensors are of {page, head, row}.
 */

/* Where the pages of each batch entry are. */
typedef struct attnkit_pages {
    size_t size; /* sizeof(attnkit_pages) */

    /* block_table [batch][entries]: entries for keys below kv_len (or kv_lens[b]) are read, each
     * one of 0 .. pages - 1; other pages may be unmapped. NULL: there are no pages, and the other
     * fields are 0. */
    const int32_t *block_table;
    int64_t block_table_stride; /* entries from b to b + 1; with batch > 1, room for kv_len */
    int64_t page_size; /* keys of a page, at least 1; of tiles, a multiple of 16. With 1 the
                        * table says of each key where it lies, as in a cache that is padded
                        * on the left or goes round. */
    int64_t pages;     /* that there are */
} attnkit_pages;

/* ---------------------------------------------------------------------------------------------
 * Storage: how K and V lie in memory.
 *
 * Tiles. With ATTNKIT_TILED in k.layout, K is stored as decoding reads it fastest, each element of
 * 16 keys side by side:
 *
 *     k         [batch][kv_heads][tiles][head_dim][16], where tiles = ceil(kv_len / 16)
 *     k_scales  [batch][kv_heads][tiles][head_dim / k_scale_group][16]
 *
 * in pages [pages][kv_heads][page_size / 16][head_dim][16]. Strides are of {batch, head, tile}.
 * A tile of ATTNKIT_Q8_0 is head_dim / 32 times 16 binary16 scales and then [32][16] bytes.
 * Key j is number j % 16 of tile j / 16. attnkit_append writes tiles; v stays in rows. Tiles are
 * whole, the last one too where kv_len is no multiple of 16, and all of a tile is read once a row
 * sees one of its keys. The elements that a tile holds for keys from kv_len (or kv_lens[b]) on have
 * no meaning, NaN included. The bits of the result are those of K in rows. Not with cu_seqlens_kv.
 * Cost: decoding takes up to a quarter less time, and little less where reading memory takes most
 * of it. Calls with more than a few query rows turn K back into rows, once for each block of 256
 * rows of a KV head: a long prompt does not feel it, a chunk of 32 rows over a long cache takes a
 * tenth to a quarter longer. For caches that are decoded from.
 */

/* Pages, scales, packed sequences and cells of K and V. */
typedef struct attnkit_kv_storage {
    size_t size; /* sizeof(attnkit_kv_storage) */

    const attnkit_pages *pages; /* or NULL */

    /* k_scales and v_scales: scales of ATTNKIT_I8 and ATTNKIT_F8_E4M3, else none and 0: shaped as k
     * and v, in tiles where k is, with head_dim / k_scale_group and value_dim / v_scale_group
     * binary32 numbers in a row. Any value is taken as it is. With strides of 0 all keys, or all
     * heads, have the same. */
    attnkit_tensor k_scales;
    attnkit_tensor v_scales;
    int64_t k_scale_group; /* elements that share a scale, a divisor of head_dim; 0: all of them */
    int64_t v_scale_group; /* the same of value_dim */

    /* Sequences packed one after the other, without a batch dimension. With cu_seqlens_q the shapes
     * of q, out, lse, weights, masks and states begin at their heads, q_len is the rows of all
     * entries together, and entry b has the rows cu_seqlens_q[b] .. cu_seqlens_q[b + 1] - 1;
     * cu_seqlens_kv is the same for k, v, their scales and kv_len, without pages, tiles and
     * kv_lens. Each has batch + 1 elements, begins with 0, does not fall, and ends with q_len or
     * kv_len. */
    attnkit_ints cu_seqlens_q;
    attnkit_ints cu_seqlens_kv;

    /* Keys in any order, as in a cache that goes round, or one that several sequences share. A row
     * of k and v then is a cell, and key_index [batch][kv_len] says of each cell the absolute index
     * of its key, or -1 where it is empty. Entry b has the kv_len numbers from
     * b * key_index_stride on; with a stride of 0 all entries have the same. With kv_lens the cells
     * from kv_lens[b] on are empty, whatever their numbers. An entry has no index twice, and its
     * largest index is at most its smallest + 4 * kv_len.
     * The bits are those of a cache in which each key lies at its index. Positions, causality,
     * windows, slopes and dropout are by index, and with ATTNKIT_ALIGN_BOTTOM_RIGHT the last row is
     * at the largest index. An index that no cell has is an absent key. Empty cells are not read.
     * Columns of masks, bias, kv_segment_ids and weights are cells. A mask of fewer columns than
     * cells masks the keys of all other cells, and in weights an empty cell has what is behind
     * kv_lens[b].
     * Several sequences in one cache are batch entries whose k and v have a stride of 0 from entry
     * to entry. Each has its own numbers, with -1 for the cells of all others.
     * kv_len is at most 2^31 - 1. Not with pages, tiles, cu_seqlens_kv, first_key and states.
     * Cost: each thread looks at each number of each entry once or twice, at one or two cycles for
     * a number. Where 128 keys lie in 128 cells one after the other, nothing more. Elsewhere
     * decoding finds each row by its address, and where no two keys are neighbours takes 1.2 to 1.8
     * times as long; calls with many query rows copy K and V, and the columns of masks, 128 keys at
     * a time, which takes up to a tenth longer. A cache that keeps its first keys for ever and goes
     * round with all others has indices too far apart: there pages of one key do it. */
    attnkit_ints key_index;
    int64_t key_index_stride; /* 0, or at least kv_len */
} attnkit_kv_storage;

/* ---------------------------------------------------------------------------------------------
 * Visibility: which keys a row sees. It sees the keys that each of the following lets it see, of
 * the keys below kv_len or kv_lens[b], and with ATTNKIT_CAUSAL up to its position. A key that a row
 * does not see is absent, as said in attnkit.h; a row that sees no key is 0, and its lse is
 * -infinity, or the logarithm of its sink.
 */

/* A window around the position of the row: the keys position - left .. position + right, both
 * included, so that left = 2 and right = 0 are 3 keys with the row's own, and zeros are that key
 * alone. Needs align. Blocks of 128 keys that no row of a block of 256 sees cost nothing, but
 * entries of the block table are checked. */
typedef struct attnkit_window {
    size_t size;        /* sizeof(attnkit_window) */
    int64_t left;       /* -1: no bound */
    int64_t right;      /* -1: no bound */
    int64_t keep_first; /* keys of an index below it are in every window */
} attnkit_window;

/* What true means in a mask. */
typedef int32_t attnkit_mask_kind;
enum {
    ATTNKIT_MASK_NONE = 0,   /* there is no mask */
    ATTNKIT_MASK_ATTEND = 1, /* the row sees the key */
    ATTNKIT_MASK_IGNORE = 2  /* the row does not see the key */
};

/* What takes keys away from a row. */
typedef struct attnkit_visibility {
    size_t size; /* sizeof(attnkit_visibility) */

    attnkit_ints kv_lens; /* [batch], each 0 .. kv_len: keys beyond are absent; optional */

    const attnkit_window *window; /* or NULL */

    /* Segments: the row sees the keys with its own id, whatever that is. q_segment_ids is dense
     * [batch][q_len] and kv_segment_ids [batch][kv_len], with cu_seqlens_q [q_len] and with
     * cu_seqlens_kv [kv_len]; both or none. */
    const int32_t *q_segment_ids;
    const int32_t *kv_segment_ids;

    /* Masks, optional: mask is of ATTNKIT_BOOL, mask_bits of ATTNKIT_BITS. Column j is key j of the
     * batch entry, of the keys of this call. Shape [batch][q_heads][q_len][columns]; a mask may
     * have fewer columns than there are keys, and all keys after them are masked. Strides are any
     * number; a mask of the keys is one row of [columns] with ATTNKIT_STRIDED and strides of 0.
     * Rows of bits are (columns + 7) / 8 bytes, and the last bits of a row have no meaning.
     * Where a mask is none its kind and columns are 0, unless there are no rows or no keys.
     * Cost: of 2 to 16 rows of a KV head, blocks that are not masked alike for all rows take each
     * row by itself, up to three times as long. A tree of speculative decoding is a mask: a branch
     * has the bits that it has as a sequence of its own where all drafts lie in one block of 128
     * keys, and otherwise the bits of its keys where they are. */
    attnkit_tensor mask;
    attnkit_tensor mask_bits;
    int64_t mask_columns;             /* at most kv_len; 0: kv_len */
    int64_t mask_bits_columns;        /* the same of mask_bits */
    attnkit_mask_kind mask_kind;      /* what true means in mask */
    attnkit_mask_kind mask_bits_kind; /* what 1 means in mask_bits */
} attnkit_visibility;

/* ---------------------------------------------------------------------------------------------
 * Score functions: what happens to a score before the softmax, and to a weight after it.
 */

/* Softcap, bias, ALiBi, sinks and dropout. */
typedef struct attnkit_score_mods {
    size_t size; /* sizeof(attnkit_score_mods) */

    double softcap; /* 0: none; else positive, and finite in binary32 are both softcap * log2 e and
                     * scale / softcap */

    /* Added to the scores, optional: ATTNKIT_F32, F16 or BF16, of the shape of a mask, with the
     * same rules for columns and strides. -infinity masks the key. Any other bias is taken as it
     * is, up to +infinity and NaN, which make the row NaN, as does a score that leaves binary32 in
     * log2, beyond 2.35e38; but a bias below -2^126 counts as -2^126: rows of nothing but such
     * values are the mean of v. Cost: as masks. A factor for each head is bias_scales, below. */
    attnkit_tensor bias;
    int64_t bias_columns; /* at most kv_len; 0: kv_len */

    const float *alibi_slopes; /* [q_heads], or NULL; any value is taken as it is; needs align */
    const float *sinks;        /* [q_heads], or NULL; -infinity is no sink, NaN and +infinity make
                                * rows NaN, and beyond 2.35e38 a sink counts as infinite. Not for
                                * calls that give a state: it goes into the result */

    /* Dropout: with 0 < dropout < 1 (0: none), each weight is multiplied, after the softmax and its
     * lse, by 0 with this probability and else by 1 / (1 - dropout). Which ones follows from
     * dropout_seeds[b], head, position and key index alone: the key is dropped where word j % 4 of
     * Philox4x32-10 (Salmon et al. 2011) is below dropout * 2^32, with the halves of the seed as
     * its key, the lower first, and the counter {low 32 bits of j / 4, low 32 bits of the position,
     * head, bits 32 - 47 of j / 4 and, shifted up by 16, of the position}. Needs align. */
    double dropout;
    const uint64_t *dropout_seeds; /* [batch]; NULL where dropout is 0, and only there */

    /* Factors of the bias, [q_heads], or NULL: head h adds bias_scales[h] * bias. Not without a
     * bias, and not in 0.1.0. With a bias of distances that all heads share, the factors are the
     * slopes of ALiBi. A bias of -infinity masks the key whatever the factor is, 0 and NaN too. Any
     * other product is what arithmetic makes of it, and is taken as a bias is: NaN and +infinity
     * make the row NaN, and below -2^126 it counts as -2^126. Beyond 2.35e38 a factor counts as
     * infinite. Factors of 1 have the bits of NULL. Cost: as a bias for each head. */
    const float *bias_scales;
} attnkit_score_mods;

/* ---------------------------------------------------------------------------------------------
 * States: attention over part of the keys, from state to state, with the bits of one call.
 */

/* The softmax state of rows: M, l and o of kernels/README.md, which are the integer maximum of the
 * scores in log2, or -infinity, the sum of weights and the weighted sum of v, each row in units of
 * 2 to its max. Dense, [batch][q_heads][q_len], and [value_dim] more for out. All three or none. A
 * max that is no whole number comes from no call, and has no meaning. */
typedef struct attnkit_state {
    float *max;  /* M: the integer maximum of the scores in log2, or -infinity */
    double *sum; /* l: binary64, in which chunks of keys are added up */
    double *out; /* o: binary64, for the same reason */
} attnkit_state;

/* Which part of the keys a call has, and the states before and after it. */
typedef struct attnkit_states {
    size_t size; /* sizeof(attnkit_states) */

    /* The absolute index of row 0 of k and v, a multiple of ATTNKIT_CHUNK_KEYS. kv_len, kv_lens and
     * the block table are of the keys of this call; positions stay what they are among all keys. */
    int64_t first_key;

    /* With state_out the call gives the state of its rows instead of out and lse, which then are
     * none. A call with state_in, which is not written, goes on from a state over the keys before
     * first_key. They do not overlap. A call with kv_len = 0 turns a state into a result. */
    attnkit_state state_in;
    attnkit_state state_out;
} attnkit_states;

/* ---------------------------------------------------------------------------------------------
 * Weights as a third output.
 */

/* Which stage of the formula, from left to right. */
typedef int32_t attnkit_weights_kind;
enum {
    ATTNKIT_WEIGHTS_NONE = 0,    /* no weights are asked for */
    ATTNKIT_WEIGHTS_SOFTMAX = 1, /* softmax(x)_j, before dropout; 0 where the row does not see j */
    ATTNKIT_WEIGHTS_BIASED = 2,  /* x_j as softmax takes it; -infinity where it does not see j */
    ATTNKIT_WEIGHTS_CAPPED = 3,  /* x_j before bias and ALiBi, of all keys, seen or not */
    ATTNKIT_WEIGHTS_SCALED = 4   /* x_j before softcap, of all keys, seen or not */
};

/* Which weights a call writes, and where. */
typedef struct attnkit_weights_out {
    size_t size; /* sizeof(attnkit_weights_out) */

    /* weights: ATTNKIT_F32 [batch][q_heads][q_len][kv_len]; or none, and no kind. Columns from
     * kv_lens[b], or the end of a packed entry's keys, on are 0 for ATTNKIT_WEIGHTS_SOFTMAX and
     * -infinity for the others; of all keys before them the last two kinds read K. Not with states
     * and not with first_key. Costs what the scores cost, once more, and writing. */
    attnkit_tensor weights;
    attnkit_weights_kind kind;
    uint32_t flags; /* 0 */
} attnkit_weights_out;

/* ---------------------------------------------------------------------------------------------
 * Data of the groups: what a run of a plan brings for them (attnkit_attention_data.groups).
 */

/* Each field is the one of the same name in a group, whose type, strides and shape the plan has. */
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
    const void *key_index; /* integers of the width that was planned */
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
