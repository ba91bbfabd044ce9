/* SPDX-License-Identifier: Apache-2.0
 *
 * The problem the two loops work on: the arguments of one call after dispatch/ has checked them,
 * with every default filled in. Strides are in bytes. "Rows" of a KV head are the query rows of
 * all heads of its group, the heads of a position next to each other: row r is query position
 * r / group of query head kv_head * group + r % group. So K and V are read once for the group.
 */
#ifndef ATTNKIT_ATTENTION_H
#define ATTNKIT_ATTENTION_H

#include <stdbool.h>

#include "kernels/kernels.h"
#include "kernels/cache/pages.h"
#include "kernels/ints.h"

enum {
    ROW_BLOCK = 256, /* most query rows that share a walk over the keys */
    MAX_WALKS = 8,   /* most heads that are walked through in turns, which share pages of memory */
};

struct strides {
    int64_t batch, head, row;
};

/* K or V as they are stored. */
struct cache {
    const char *first;
    struct strides stride; /* of pages, where batch is, if there are any; row: of tiles, if tiled */
    enum type type;
    bool tiled; /* as in struct key_rows; a page has whole tiles, and K is not packed */
    int64_t dim;
    const char *scales; /* where has_scales: a float for each `scale_group` elements of a row */
    struct strides scale_stride;
    int64_t scale_group;
};

/* Something for each query row and key of the call: bytes, bits or numbers. */
struct mask {
    const char *first; /* NULL: there is none */
    struct strides stride;
    int64_t columns; /* keys from here on are masked */
    bool ignores;    /* true masks a key */
    enum type type;  /* of numbers */
};

/* The kind of weights that the caller asks for, with the numbers of attnkit_weights_kind. */
enum weights_kind { WEIGHTS_NONE, WEIGHTS_SOFTMAX, WEIGHTS_BIASED, WEIGHTS_CAPPED, WEIGHTS_SCALED };

/* The options of a call, beyond a scale and a range of keys that begins with the first key. */
struct extras {
    bool any; /* of what follows but sinks and weights, which come after the walk over the keys */
    bool window;
    int64_t left, right;             /* of the window, not negative; left INT64_MAX: no bound */
    bool has_right;                  /* whether there is a bound on the right */
    int64_t keep_first;              /* keys that are in every window, by absolute index */
    const int32_t *q_docs, *kv_docs; /* or NULL */
    struct mask bytes, bits, bias;
    int64_t columns;          /* of the mask that has the fewest; INT64_MAX: there is none */
    struct adjust adjust;     /* factor is scale_log2 where there is no softcap */
    const float *slopes;      /* [q_heads], or NULL; as they are, not in log2 */
    const float *bias_scales; /* [q_heads], or NULL; likewise */
    bool has_huge_scale;      /* which may be infinite in log2: it makes NaN of a bias of 0 */
    const float *sinks;       /* [q_heads], or NULL */
    bool drops;
    uint64_t dropped;      /* of 2^32 words, those below it drop their key */
    float keep_factor;     /* 1 / (1 - rate) */
    const uint64_t *seeds; /* [batch] */
    enum weights_kind weights_kind;
    char *weights; /* or NULL */
    struct strides weights_stride;
    float scale; /* for scores that are not in log2 */
    float cap;
};

/* A cache whose cells hold keys in any order; see cells.h. */
struct cells {
    struct ints index;        /* of each cell's key, or -1; none: cell j has key j */
    int64_t stride;           /* numbers from entry to entry */
    struct cell_table *table; /* of the thread; NULL until there is memory */
};

struct attention {
    int64_t batch, kv_heads, group, q_len, kv_len, head_dim, value_dim;
    int64_t q_room, kv_room; /* rows of dense arrays for each entry: at least q_len, kv_len */
    const char *q;
    char *out, *lse; /* lse may be NULL */
    enum type q_type, out_type;
    struct strides q_stride, out_stride, lse_stride;
    struct cache k, v;
    struct pages pages; /* in which K and V lie */
    int64_t first_key;  /* the absolute index of key 0, at the edge of a chunk, but with cells */
    struct cells cells;
    /* Dense, with a line per query row of [batch][q_heads][q_room]; out is NULL where there is
     * none: of the keys before these, and where the total goes that takes the place of a result. */
    struct total before, after;
    float scale_log2;
    bool causal;
    bool bottom_right;     /* offset = kv_len of the sequence - q_len, else q_offsets, else 0 */
    struct ints kv_lens;   /* or none */
    struct ints q_starts;  /* or none: entry b's rows are q_starts[b] .. q_starts[b + 1] - 1 of */
    struct ints kv_starts; /* one tensor of q_len or kv_len rows without a batch */
    struct ints q_offsets; /* or none */
    struct extras extras;
};

/* Some rows of one KV head: the unit of work. The first of them go through panels, by
 * attnkit_prefill, and the rest through decode tiles, by attnkit_decode, or together with those of
 * the next heads by attnkit_heads. */
struct work_item {
    int64_t batch, kv_head;
    int64_t first_row;
    int panel_rows;  /* at most what of ROW_BLOCK fills whole panels */
    int decode_rows; /* at most kernels->decode_rows or f32_decode_rows */
    int heads;       /* from this one on whose rows, all of them, go together; 1 but for few keys */
};

/* Bytes of scratch that a loop needs: prefill for any item of this problem, decode for so many with
 * so many rows. Neither grows with kv_len. */
size_t attnkit_prefill_scratch(const struct attention *a, const struct kernels *kernels);
size_t attnkit_decode_scratch(const struct attention *a, int rows, int items);
size_t attnkit_heads_scratch(const struct attention *a, const struct kernels *kernels);

/* The loops: each computes and writes its rows of the item, at least one; decode those of up to
 * MAX_WALKS items, chunk by chunk of their keys in turns. `scratch` is aligned to 64 bytes. */
void attnkit_prefill(const struct attention *a, const struct kernels *kernels,
                     const struct work_item *item, char *scratch);
void attnkit_decode(const struct attention *a, const struct kernels *kernels,
                    const struct work_item *items, int count, char *scratch);
void attnkit_heads(const struct attention *a, const struct kernels *kernels,
                   const struct work_item *item, char *scratch);

/* Computes a row again whose result is not finite although its sum is, with the bits that it has in
 * every loop, and writes out or the state, of which only that can differ. Bytes of scratch, which
 * is aligned to a float, and `row` is one of decode. */
size_t attnkit_careful_scratch(const struct attention *a);
void attnkit_careful_row(const struct attention *a, const struct kernels *kernels,
                         const struct work_item *row, char *scratch);

/* An item may be worked on by several threads: each takes chunks of its keys, whose states are then
 * joined in order to a total, with the same bits. A state is so many floats, a total so many
 * doubles, aligned as scratch is; those of decode follow those of prefill. */
int64_t attnkit_prefill_state(const struct attention *a, const struct kernels *kernels, int rows);
int64_t attnkit_prefill_total(const struct attention *a, const struct kernels *kernels, int rows);
int64_t attnkit_decode_state(const struct attention *a, int rows);
int64_t attnkit_decode_total(const struct attention *a, int rows);

/* The state of the chunk that begins at key `first`; decode those of up to MAX_WALKS items, in
 * turns as above, which lie `step` floats apart. */
void attnkit_prefill_chunk(const struct attention *a, const struct kernels *kernels,
                           const struct work_item *item, int64_t first, float *state,
                           char *scratch);
void attnkit_decode_chunk(const struct attention *a, const struct kernels *kernels,
                          const struct work_item *items, int count, int64_t first, float *states,
                          int64_t step, char *scratch);

/* The same of one item of one row, in as many bytes of scratch; for careful.c. */
size_t attnkit_decode_row_scratch(const struct attention *a);
void attnkit_decode_row_chunk(const struct attention *a, const struct kernels *kernels,
                              const struct work_item *row, int64_t first, float *state,
                              char *scratch);

/* States of consecutive chunks, `step` floats apart, which have no meaning afterwards. */
struct chunk_run {
    double *total; /* of all chunks before these, and then of these as well */
    float *states;
    int64_t step, first_chunk; /* its index or, with a window, less */
    int count;
    bool begins; /* there are no chunks before these: the total holds nothing yet */
    bool ends;   /* there are none after: the result is written, and the total has no meaning */
};

void attnkit_prefill_join(const struct attention *a, const struct kernels *kernels,
                          const struct work_item *item, const struct chunk_run *run, char *scratch);
void attnkit_decode_join(const struct attention *a, const struct kernels *kernels,
                         const struct work_item *item, const struct chunk_run *run, char *scratch);

#endif
