/* SPDX-License-Identifier: Apache-2.0
 *
 * struct attention has everything that the loops know of a call: the arguments after dispatch/ has
 * checked them, with every default filled in. Strides are in bytes. "Rows" of a KV head are the
 * query rows of all query heads that share this KV head. So one walk over K and V serves all these
 * query heads. Rows are counted position by position: row r is query position r / group of query
 * head kv_head * group + r % group.
 */
#ifndef ATTNKIT_ATTENTION_H
#define ATTNKIT_ATTENTION_H

#include <stdbool.h>

#include "kernels/kernels.h"
#include "kernels/cache/pages.h"
#include "kernels/ints.h"

enum {
    ROW_BLOCK = 512, /* most query rows of an item */
    MAX_WALKS = 8,   /* most items in one call of attnkit_decode */
};

struct strides {
    int64_t batch, head, row;
};

/* K or V as the caller stores them. */
struct cache {
    const char *first;
    struct strides stride; /* with pages, stride.batch is from page to page; if tiled, stride.row is
                              from tile to tile */
    enum type type;
    bool tiled; /* as in struct key_rows; if true, pages have whole tiles, and the keys of sequences
                   are not packed */
    int64_t dim;
    const char *scales; /* if has_scales(type): a float for each scale_group elements of a row */
    struct strides scale_stride;
    int64_t scale_group;
};

/* A mask or a bias: a tensor with an element for each query row and column. An element is a byte, a
 * bit or a number. A column belongs to a key or, if the call has cells, to a cell. */
struct mask {
    const char *first; /* NULL: no mask */
    struct strides stride;
    int64_t columns; /* number of columns; keys without a column are masked */
    bool ignores;    /* true: a true element hides its key; false: a false element hides its key */
    enum type type;  /* type of the elements, if they are numbers */
};

/* The kind of weights that the caller asks for, numbered as in attnkit_weights_kind. */
enum weights_kind { WEIGHTS_NONE, WEIGHTS_SOFTMAX, WEIGHTS_BIASED, WEIGHTS_CAPPED, WEIGHTS_SCALED };

/* The options of a call. scale_log2, and options that only say where the keys of a row end, such as
 * the lengths, are in struct attention instead. */
struct extras {
    bool any; /* whether any option below is used; sinks and weights do not count, because they come
                 after the walk over the keys */
    bool window;
    int64_t left, right;             /* bounds of the window, not negative; INT64_MAX: no bound */
    bool has_right;                  /* whether the window has a right bound */
    int64_t keep_first;              /* keys with a smaller absolute index are in every window */
    const int32_t *q_docs, *kv_docs; /* segment ids of rows and keys; NULL: none */
    struct mask bytes, bits, bias;
    int64_t columns;          /* fewest columns of bytes, bits and bias; INT64_MAX: all absent */
    struct adjust adjust;     /* factor is scale_log2 if there is no softcap */
    const float *slopes;      /* [q_heads], or NULL; not multiplied by log2 e */
    const float *bias_scales; /* [q_heads], or NULL; not multiplied by log2 e */
    bool has_huge_scale;      /* whether f32(bias_scale * log2 e) of some head is NaN or may be
                               * infinite; the product of such a factor and a bias of 0 is NaN */
    const float *sinks;       /* [q_heads], or NULL */
    bool drops;
    uint64_t dropped;      /* a random word of 32 bits below this number drops its key */
    float keep_factor;     /* 1 / (1 - rate) */
    const uint64_t *seeds; /* [batch] */
    enum weights_kind weights_kind;
    char *weights; /* NULL: not asked for */
    struct strides weights_stride;
    float scale; /* scale of scores, not multiplied by log2 e */
    float cap;
};

/* A cache whose cells hold keys in any order; see cells.h. */
struct cells {
    struct ints index; /* index of the key in each cell, -1: empty; no array: cell j has key j */
    int64_t stride;    /* integers from the first cell of a batch entry to the first cell of the
                        * next */
    struct cell_table *table; /* the thread's own table; NULL until there is memory */
};

struct attention {
    int64_t batch, kv_heads, group, q_len, kv_len, head_dim, value_dim;
    int64_t q_room, kv_room; /* query rows and keys for which dense arrays have room in each batch
                              * entry: at least q_len and at least kv_len */
    const char *q;
    char *out, *lse; /* lse may be NULL */
    enum type q_type, out_type;
    struct strides q_stride, out_stride, lse_stride;
    struct cache k, v;
    struct pages pages; /* the pages with K and V */
    int64_t first_key;  /* absolute index of key 0, a multiple of CHUNK_KEYS; not used with cells */
    struct cells cells;
    /* Dense totals of the query rows, [batch][q_heads][q_room], or [q_heads][q_room] if rows are
     * packed. `before` is the total over earlier keys. `after` receives the total of each row in
     * place of a result. A total that the call does not have is marked by `out` = NULL. */
    struct total before, after;
    float scale_log2;
    /* K and V, of TYPE_I8 or TYPE_Q8_0, are multiplied as integers. The loops call has_integers and
     * do not read this field. */
    bool integers;
    /* q, K and V are TYPE_BF16 in rows, and are multiplied in groups of 32 products. The loops call
     * is_grouped and do not read this field. */
    bool grouped;
    bool short_weights; /* with `grouped`: a weight is one bf16 instead of two */
    bool causal;
    bool bottom_right;     /* whether the last row of a sequence is at the last key; else the
                              absolute position of row 0 is in q_offsets, or 0 */
    struct ints kv_lens;   /* optional */
    struct ints q_starts;  /* optional; batch entry b has rows q_starts[b] .. q_starts[b + 1] - 1 */
    struct ints kv_starts; /* optional; packed tensors have q_len or kv_len rows and no batch */
    struct ints q_offsets; /* optional */
    struct extras extras;
};

/* Returns the number of bytes of one key: of its row of K and its row of V. */
static inline int64_t key_bytes(const struct attention *a)
{
    return bytes_of(a->k.type, a->k.dim) + bytes_of(a->v.type, a->v.dim);
}

/* Returns whether K and V are multiplied as integers. In a build without the part `integers`
 * (docs/embedding.md) the result is constant, so that the compiler leaves out the code for
 * integers. */
static inline bool has_integers(const struct attention *a)
{
    return HAS_INTEGERS && a->integers;
}

/* Returns whether products are added in groups. In a build without the part `products`
 * (docs/embedding.md) the result is constant, so that the compiler leaves out the code for
 * groups. */
static inline bool is_grouped(const struct attention *a)
{
    return HAS_PRODUCTS && a->grouped;
}

/* The unit of work: some query rows of one KV head, or all query rows of several KV heads. In an
 * item of one head, the first rows go through panels, in attnkit_prefill. The other rows go through
 * decode tiles, in attnkit_decode. In an item of several heads, attnkit_heads computes the rows of
 * all these heads together, or attnkit_decode computes one head after the other. */
struct work_item {
    int64_t batch, kv_head;
    int64_t first_row;
    int panel_rows;  /* at most attnkit_most_panel_rows */
    int decode_rows; /* at most kernels->decode_rows; with groups of products 0 */
    int heads;       /* number of consecutive KV heads in the item, from kv_head on; more than 1
                      * only in calls of few keys */
};

/* Returns the most panel rows of an item: ROW_BLOCK, or half of ROW_BLOCK if the queries, states
 * and totals of ROW_BLOCK rows would take too much of L2. The number is rounded down to whole
 * panels. The more rows an item has, the less each row pays for widening K and V. */
int attnkit_most_panel_rows(const struct attention *a, const struct kernels *kernels);

/* Return the number of bytes of scratch that a loop needs. attnkit_prefill_scratch and
 * attnkit_heads_scratch are for any item of the call. attnkit_decode_scratch is for `items` items
 * with at most `rows` decode rows each. None of the numbers grows with kv_len. */
size_t attnkit_prefill_scratch(const struct attention *a, const struct kernels *kernels);
size_t attnkit_decode_scratch(const struct attention *a, const struct kernels *kernels, int rows,
                              int items);
size_t attnkit_heads_scratch(const struct attention *a, const struct kernels *kernels);

/* A library that is optimised for size leaves out the code for struct sights. */
#ifdef __OPTIMIZE_SIZE__
enum { HAS_SIGHTS = 0 };
#else
enum { HAS_SIGHTS = 1 };
#endif
enum { SIGHTS = 4096 }; /* bits of none and of all */

/* What panels of query rows see of blocks of keys, for one batch entry. A bit of `none` is set if
 * no row of the panel sees a key of the block. A bit of `all` is set if every row sees all keys of
 * the block, with a bias of 0. If masks do not differ between heads, panels of different KV heads
 * see the same keys. So a thread passes the same struct to attnkit_prefill for all its items, and
 * the elements of such blocks are read for one head only. A panel has kv_len / KEY_BLOCK + 1 bits
 * of each array. Panels for which no bits are left read the masks for each head. */
struct sights {
    int64_t batch; /* the batch entry, or NO_BATCH: no bit is valid */
    uint64_t none[SIGHTS / 64], all[SIGHTS / 64];
};
#define NO_BATCH INT64_C(-1)

/* The loops. attnkit_prefill computes and writes the panel rows of an item. attnkit_decode and
 * attnkit_heads compute and write the decode rows. An item of attnkit_prefill must have panel rows,
 * an item of the other loops must have decode rows. attnkit_decode takes up to MAX_WALKS items of
 * one batch entry. These items take turns at each block of keys. `scratch` is aligned to 64
 * bytes. `sights` is NULL or a struct of this thread and call. */
void attnkit_prefill(const struct attention *a, const struct kernels *kernels,
                     const struct work_item *item, struct sights *sights, char *scratch);
void attnkit_decode(const struct attention *a, const struct kernels *kernels,
                    const struct work_item *items, int count, char *scratch);
void attnkit_heads(const struct attention *a, const struct kernels *kernels,
                   const struct work_item *item, char *scratch);

/* attnkit_careful_row recomputes a row whose result is not finite. The row gets the same bits,
 * whichever loop has found the row. Only the row of `out` is written, or the row's total in `after`
 * if the call has `after`. The log-sum-exp and the weights of the row are right already. `row` is
 * an item with one decode row. `scratch` is aligned to a float. attnkit_careful_scratch returns the
 * number of bytes of scratch. */
size_t attnkit_careful_scratch(const struct attention *a);
void attnkit_careful_row(const struct attention *a, const struct kernels *kernels,
                         const struct work_item *row, char *scratch);

/* Several threads may work on an item. Each thread takes chunks of the item's keys. The states of
 * the chunks are joined to a total, first chunk first. The result has the same bits as with a
 * single thread. The next four functions return how many floats the state of `rows` rows has, or
 * how many doubles their total has. The memory for an item's state or total is aligned to 64 bytes,
 * as scratch is. If an item has panel rows and decode rows, the state of the panel rows comes first
 * in memory, then the state of the decode rows. Totals lie in this order, too. */
int64_t attnkit_prefill_state(const struct attention *a, const struct kernels *kernels, int rows);
int64_t attnkit_prefill_total(const struct attention *a, const struct kernels *kernels, int rows);
int64_t attnkit_decode_state(const struct attention *a, int rows);
int64_t attnkit_decode_total(const struct attention *a, int rows);

/* Compute the state of the chunk that begins at key `first`. attnkit_decode_chunk computes the
 * states of up to MAX_WALKS items, which take turns as in attnkit_decode. These states lie `step`
 * floats apart. */
void attnkit_prefill_chunk(const struct attention *a, const struct kernels *kernels,
                           const struct work_item *item, int64_t first, float *state,
                           char *scratch);
void attnkit_decode_chunk(const struct attention *a, const struct kernels *kernels,
                          const struct work_item *items, int count, int64_t first, float *states,
                          int64_t step, char *scratch);

/* attnkit_decode_row_chunk computes the state of one item with one row, for careful.c.
 * attnkit_decode_row_scratch returns the number of bytes of scratch for this function. */
size_t attnkit_decode_row_scratch(const struct attention *a);
void attnkit_decode_row_chunk(const struct attention *a, const struct kernels *kernels,
                              const struct work_item *row, int64_t first, float *state,
                              char *scratch);

/* The states of some chunks of an item, `step` floats apart, in the order of the chunks. Chunks
 * that the item does not need are left out. After joining, the states have no meaning. */
struct chunk_run {
    double *total; /* total over the chunks before this run; after joining, also over the chunks of
                    * this run */
    float *states;
    int64_t step, first_chunk; /* first_chunk: how many of the chunks that the item needs come
                                * before this run. The index of the run's first chunk is at least
                                * this number */
    int count;
    bool begins; /* this run has the first chunk: the total holds nothing yet */
    bool ends;   /* this run has the last chunk: the result is written, and the total has no meaning
                  * afterwards */
};

/* Join the states of a run to the total, for the panel rows or for the decode rows of an item. If
 * run->ends, also compute and write the results of these rows. */
void attnkit_prefill_join(const struct attention *a, const struct kernels *kernels,
                          const struct work_item *item, const struct chunk_run *run, char *scratch);
void attnkit_decode_join(const struct attention *a, const struct kernels *kernels,
                         const struct work_item *item, const struct chunk_run *run, char *scratch);

#endif
