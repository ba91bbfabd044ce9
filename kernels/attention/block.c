/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns stored rows into rows that tiles take. For prefill, memory limits the speed: each element
 * is read once and written to scratch that stays in L2. For decode, most rows stay in place, and
 * finding their addresses takes a few cycles for each row.
 */
#include "kernels/attention/block.h"

#include <string.h>

#include "kernels/attention/keys.h"
#include "kernels/attention/mask.h"

bool attnkit_needs_wide(const struct attention *a)
{
    return a->q_type != TYPE_F32 || a->k.type != TYPE_F32 || a->v.type != TYPE_F32 ||
           a->out_type != TYPE_F32 || a->k.tiled || a->pages.table;
}

bool attnkit_may_have_gaps(const struct attention *a)
{
    const struct extras *const x = &a->extras;
    return x->q_docs || x->bytes.first || x->bits.first || x->bias.first ||
           (x->window && x->keep_first > 0) || has_cells(a);
}

/* Returns whether the rows of a head share sets of L1 and L2, because there are gaps between the
 * rows, and they lie a multiple of 2 KiB apart. The rows of a head in token-major order may have
 * this distance. An L2 of 512 KiB with 8 ways has room for 64 KiB of rows of 512 bytes that lie
 * 4 KiB apart. K and V of a block have twice as much, so panels would read both from L3. On a Zen
 * 3, prefill with such rows takes 1.3 to 1.4 times as long as with copies (bench/README.md). If
 * rows lie 3 KiB apart, copies save no time. */
static bool do_rows_share_sets(const struct cache *c)
{
    enum { APART = 2048 };
    const int64_t bytes = bytes_of(c->type, c->dim), stride = c->stride.row;
    return !c->tiled && (stride > bytes || stride < -bytes) && stride % APART == 0;
}

bool attnkit_gains_by_copies(const struct attention *a, const struct kernels *kernels)
{
    return kernels->copies_rows && a->k.type == TYPE_F32 && a->v.type == TYPE_F32 &&
           (do_rows_share_sets(&a->k) || do_rows_share_sets(&a->v));
}

static bool has_wide(const struct attention *a, const struct kernels *kernels)
{
    return attnkit_needs_wide(a) || attnkit_may_have_gaps(a) || attnkit_gains_by_copies(a, kernels);
}

int64_t attnkit_wide_floats(const struct attention *a, const struct kernels *kernels)
{
    return has_wide(a, kernels) ? KEY_BLOCK * (wide_dim(a) + a->value_dim) : 0;
}

struct wide attnkit_take_wide(const struct attention *a, const struct kernels *kernels,
                              float *scratch)
{
    if (!has_wide(a, kernels))
        return (struct wide){NULL, NULL};
    return (struct wide){scratch, scratch + KEY_BLOCK * wide_dim(a)};
}

static bool is_at_one_stride(const struct attention *a, const struct cache *c, int64_t first,
                             struct key_set keys)
{
    if (c->type != TYPE_F32 || c->tiled || !is_in_a_row(keys))
        return false;
    const int from = first_of(keys);
    if (!are_in_order(a, first + from, end_of(keys) - from))
        return false;
    return !a->pages.table ||
           (first + first_of(keys)) / a->pages.size == (first + end_of(keys) - 1) / a->pages.size;
}

/* The source of K or V for some keys, and the scratch for the widened rows. */
struct widening {
    const struct attention *a;
    const struct kernels *kernels;
    const struct cache *c;
    int64_t batch, kv_head, first; /* first: the key from which other keys are counted */
    float *wide;
    int64_t row_floats; /* number of floats that a row takes in `wide` */
    uint32_t *least;    /* if not NULL, rows become words of pairs, and *least is their least
                         * magnitude so far */
};

static float *wide_row(const struct widening *w, int i)
{
    return w->wide + i * w->row_floats;
}

static struct key_row row_after(struct key_row row, ptrdiff_t bytes, ptrdiff_t scale_bytes)
{
    return (struct key_row){
        row.data + bytes, row.scales ? row.scales + scale_bytes / (ptrdiff_t)sizeof(float) : NULL};
}

/* Prefetches a row to L2. */
static inline __attribute__((always_inline)) void prefetch_row(const char *row, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += 64)
        __builtin_prefetch(row + at, 0, 2);
}

static void pair_row(const struct widening *w, struct key_row row, int to)
{
    uint32_t *const words = (uint32_t *)(void *)wide_row(w, to);
    const uint32_t magnitude = w->kernels->pairs->pair(row.data, w->c->dim, words);
    *w->least = magnitude < *w->least ? magnitude : *w->least;
}

static inline __attribute__((always_inline)) void widen_row(const struct widening *w,
                                                            struct key_row row, int to)
{
    const struct cache *const c = w->c;
    if (w->least)
        pair_row(w, row, to);
    else
        w->kernels->widen(c->type, row.data, row.scales, c->scale_group, c->dim, wide_row(w, to));
}

/* Widens a tile and appends the rows of the keys in `keys` to the `rows` rows that scratch already
 * holds. The tile is widened as a whole. Scratch has room for the whole tile. In careful.c scratch
 * holds one tile, and `rows` is 0. In other calls scratch holds a block, and `rows` is at most the
 * number of keys of the block before the tile. Returns the new number of rows. */
static int widen_tile(const struct widening *w, int tile, struct key_set keys, int rows)
{
    const struct cache *const c = w->c;
    const struct key_row row = key_row(w->a, c, w->batch, w->kv_head, w->first + tile);
    const size_t bytes = (size_t)c->dim * sizeof(float);
    float *const from = wide_row(w, rows);
    w->kernels->widen_tile(c->type, row.data, row.scales, c->scale_group, c->dim, from);
    for (int i = 0; i < TILE_KEYS; i++)
        if (has_key(keys, tile + i)) {
            if (wide_row(w, rows) != from + i * c->dim)
                memmove(wide_row(w, rows), from + i * c->dim, bytes);
            rows++;
        }
    return rows;
}

static int keys_of_block(struct key_range keys)
{
    return keys.end - keys.first < KEY_BLOCK ? (int)(keys.end - keys.first) : KEY_BLOCK;
}

/* Returns the number of keys of the next block that are prefetched. Returns 0 if the sequence is
 * small enough to be in L2 or L3. In such a sequence, prefetching would make calls of few query
 * rows 4 % slower (Zen 3). */
static int keys_of_next(const struct widening *w, int64_t row_bytes)
{
    const int64_t far_bytes = 1 << 20, keys = sequence_keys(w->a, w->batch);
    if (keys * w->a->kv_heads * row_bytes < far_bytes)
        return 0;
    return (int)clamp(keys - w->first - KEY_BLOCK, 0, KEY_BLOCK);
}

/* Widens the rows of the keys in `keys` from key `from` to key end - 1. These rows must lie at one
 * stride. Appends the widened rows to the `rows` rows that scratch already holds. Returns the new
 * number of rows. For each row, also prefetches the first `later_bytes` bytes of the row that lies
 * KEY_BLOCK rows later. The hardware prefetcher does not foresee these later rows if rows of other
 * heads lie between them. */
static inline __attribute__((always_inline)) int widen_at_stride(const struct widening *w,
                                                                 struct key_set keys, int from,
                                                                 int end, int rows,
                                                                 int64_t later_bytes)
{
    const struct cache *const c = w->c;
    const struct key_row first = key_row(w->a, c, w->batch, w->kv_head, w->first);
    for (int key = from; key < end; key++)
        if (has_key(keys, key)) {
            const struct key_row row =
                row_after(first, key * c->stride.row, key * c->scale_stride.row);
            if (later_bytes > 0)
                prefetch_row(row.data + KEY_BLOCK * c->stride.row, later_bytes);
            widen_row(w, row, rows++);
        }
    return rows;
}

static void widen_anywhere(const struct widening *w, struct key_set keys, int first, int end)
{
    int rows = 0;
    for (int key = first; key < end; key++)
        if (has_key(keys, key))
            widen_row(w, key_row(w->a, w->c, w->batch, w->kv_head, w->first + key), rows++);
}

static void widen_tiles(const struct widening *w, struct key_set keys, int first, int end)
{
    int rows = 0;
    for (int key = first / TILE_KEYS * TILE_KEYS; key < end; key += TILE_KEYS)
        if (!is_empty(intersection_of(keys, key_set_of(key, key + TILE_KEYS))))
            rows = widen_tile(w, key, keys, rows);
}

static struct rows widen(const struct widening *w, struct key_set keys)
{
    const struct cache *const c = w->c;
    const int64_t bytes = bytes_of(c->type, c->dim);
    const int first = first_of(keys), end = end_of(keys);
    if (c->tiled) {
        widen_tiles(w, keys, first, end);
    } else if (has_cells(w->a) || w->a->pages.table) {
        widen_anywhere(w, keys, first, end);
    } else {
        const int next = (int)clamp(keys_of_next(w, bytes), first, end);
        const int rows = widen_at_stride(w, keys, first, next, 0, bytes);
        widen_at_stride(w, keys, next, end, rows, 0);
    }
    return (struct rows){(const char *)w->wide, w->row_floats * (int64_t)sizeof *w->wide,
                         w->row_floats};
}

static struct rows in_place(const struct attention *a, const struct cache *c, int64_t batch,
                            int64_t kv_head, int64_t key)
{
    return (struct rows){key_row(a, c, batch, kv_head, key).data, c->stride.row, c->dim};
}

struct rows attnkit_rows(const struct attention *a, const struct kernels *kernels,
                         const struct cache *c, int64_t batch, int64_t kv_head, int64_t first,
                         struct key_set keys, float *wide)
{
    const struct widening w = {a, kernels, c, batch, kv_head, first, wide, c->dim, NULL};
    if (is_at_one_stride(a, c, first, keys))
        return in_place(a, c, batch, kv_head, first + first_of(keys));
    return widen(&w, keys);
}

struct rows attnkit_pairs_of_k(const struct attention *a, const struct kernels *kernels,
                               int64_t batch, int64_t kv_head, int64_t first, struct key_set keys,
                               float *wide, uint32_t *least)
{
    const struct widening w = {
        a, kernels, &a->k, batch, kv_head, first, wide, words_of_pairs(a->k.dim), least};
    *least = NO_MAGNITUDE;
    return widen(&w, keys);
}

struct block attnkit_block(const struct attention *a, const struct kernels *kernels, int64_t batch,
                           int64_t kv_head, int64_t first, struct key_set keys, struct wide wide)
{
    return (struct block){
        .k = attnkit_rows(a, kernels, &a->k, batch, kv_head, first, keys, wide.k),
        .v = attnkit_rows(a, kernels, &a->v, batch, kv_head, first, keys, wide.v),
        .in_place =
            is_at_one_stride(a, &a->k, first, keys) && is_at_one_stride(a, &a->v, first, keys),
    };
}

struct block attnkit_block_copy(const struct attention *a, const struct kernels *kernels,
                                int64_t batch, int64_t kv_head, int64_t first, struct key_set keys,
                                struct wide wide)
{
    const struct widening k = {a, kernels, &a->k, batch, kv_head, first, wide.k, a->k.dim, NULL};
    const struct widening v = {a, kernels, &a->v, batch, kv_head, first, wide.v, a->v.dim, NULL};
    return (struct block){.k = widen(&k, keys), .v = widen(&v, keys)};
}

/* --- Words of groups -------------------------------------------------------------------------- */

/* Returns the number of keys of the next block whose rows are prefetched by words_of_k, words_of_v
 * and pack_integers. */
static int keys_ahead(const struct widening *w)
{
    if (has_cells(w->a) || w->a->pages.table)
        return 0;
    return keys_of_next(w, bytes_of(w->c->type, w->c->dim));
}

/* Returns NULL if the key is not in `keys`. Otherwise returns the row of the key. If `key` is less
 * than `ahead`, also prefetches the row that lies KEY_BLOCK rows later. */
static const void *row_in(const struct widening *w, struct key_set keys, int key, int ahead)
{
    if (key >= KEY_BLOCK || !has_key(keys, key))
        return NULL;
    const struct cache *const c = w->c;
    const char *const row = key_row(w->a, c, w->batch, w->kv_head, w->first + key).data;
    if (key < ahead)
        prefetch_row(row + KEY_BLOCK * c->stride.row, bytes_of(c->type, c->dim));
    return row;
}

static struct rows words_of_k(const struct widening *w, struct key_set keys)
{
    const int first = first_of(keys) / GROUP_PRODUCTS * GROUP_PRODUCTS, ahead = keys_ahead(w);
    for (int key = first; key < whole_quads(end_of(keys)); key++) {
        const void *const row = row_in(w, keys, key, ahead);
        if (row)
            w->kernels->grouped->pack_row(row, w->c->dim, wide_row(w, key));
        else
            memset(wide_row(w, key), 0, (size_t)w->row_floats * sizeof(float));
    }
    return (struct rows){(const char *)w->wide, w->row_floats * (int64_t)sizeof(float),
                         w->row_floats};
}

static struct rows words_of_v(const struct widening *w, struct key_set keys)
{
    const int first = first_of(keys) / GROUP_PRODUCTS * GROUP_PRODUCTS, ahead = keys_ahead(w);
    const int elements = w->kernels->grouped->elements;
    const int end = (int)whole_quads(end_of(keys));
    for (int key = first; key < end; key += GROUP_PRODUCTS) {
        const void *row[GROUP_PRODUCTS];
        const int count = end - key < GROUP_PRODUCTS ? end - key : GROUP_PRODUCTS;
        for (int i = 0; i < count; i++)
            row[i] = row_in(w, keys, key + i, ahead);
        w->kernels->grouped->pack_group(row, count, w->c->dim, wide_row(w, key / elements));
    }
    return (struct rows){(const char *)w->wide, w->row_floats * (int64_t)sizeof(float),
                         w->row_floats};
}

struct block attnkit_grouped_block(const struct attention *a, const struct kernels *kernels,
                                   int64_t batch, int64_t kv_head, int64_t first,
                                   struct key_set keys, struct wide wide)
{
    if (!HAS_PRODUCTS)
        __builtin_trap(); /* the function is never called; the compiler leaves out the code after
                           * this line */
    const int64_t words = wide_dim(a) / kernels->grouped->elements;
    const struct widening k = {a, kernels, &a->k, batch, kv_head, first, wide.k, words, NULL};
    const struct widening v = {a, kernels, &a->v, batch, kv_head, first, wide.v, a->v.dim, NULL};
    return (struct block){.k = words_of_k(&k, keys), .v = words_of_v(&v, keys)};
}

/* --- Decode ----------------------------------------------------------------------------------- */

/* Returns whether a decode tile can read the rows as they are. */
static bool is_readable(const struct cache *c)
{
    if (is_only_widened(c->type))
        return false;
    return c->type != TYPE_I8 || c->tiled || c->scale_group % MAX_VECTOR == 0 ||
           c->scale_group == c->dim;
}

/* Returns the type of the rows that a decode tile gets. Rows that the tile cannot read become
 * TYPE_Q8_0 if their type is_unpacked, else TYPE_F32. TYPE_Q8_0 has fewer bytes, so more rows fit
 * into the caches of the CPU. */
static enum type readable_type(const struct cache *c)
{
    if (is_readable(c))
        return c->type;
    return is_unpacked(c->type) ? TYPE_Q8_0 : TYPE_F32;
}

static int64_t unreadable_floats(const struct cache *c)
{
    return is_readable(c) ? 0 : KEY_BLOCK * c->dim;
}

/* Returns whether a row of zeros may take the place of a row of V. Only tiled K needs zeros: a tile
 * of K is read as a whole, with keys that no query row sees. */
static bool needs_zeros(const struct attention *a)
{
    return a->k.tiled && (a->extras.window || attnkit_may_have_gaps(a));
}

int64_t attnkit_row_floats(const struct attention *a)
{
    return unreadable_floats(&a->k) + unreadable_floats(&a->v) + (needs_zeros(a) ? a->v.dim : 0);
}

void attnkit_begin_rows(const struct attention *a, float *scratch, struct row_room *room)
{
    room->wide = (struct wide){scratch, scratch + unreadable_floats(&a->k)};
    room->next = room->turn = 0;
    room->turns = 1;
    room->touched_k = room->touched_v = (struct touched){0};
    room->known = (struct key_range){0};
    float *const zeros = room->wide.v + unreadable_floats(&a->v);
    room->zeros = zeros;
    if (needs_zeros(a))
        memset(zeros, 0, (size_t)a->v.dim * sizeof *zeros);
}

/* Sets the addresses of `count` rows in `list`, from entry `at` on. `row` is the first row. */
static void fill_rows(const struct kernels *kernels, struct key_row row, ptrdiff_t bytes,
                      ptrdiff_t scale_bytes, int count, struct row_list *list, int at)
{
    kernels->fill_pointers(row.data, bytes, count, list->row + at);
    if (row.scales)
        kernels->fill_pointers(row.scales, scale_bytes, count, list->scales + at);
}

/* Sets the addresses of tiles. Each tile has TILE_KEYS addresses, one for each of its TILE_KEYS
 * equal parts. */
static void fill_tiles(const struct kernels *kernels, const struct cache *c, struct key_row first,
                       int count, struct row_list *list, int at)
{
    const ptrdiff_t bytes = bytes_of(c->type, c->dim),
                    scale_bytes = c->dim / c->scale_group * (ptrdiff_t)sizeof(float);
    for (int i = 0; i < count; i += TILE_KEYS) {
        const int tile = i / TILE_KEYS;
        fill_rows(kernels, row_after(first, tile * c->stride.row, tile * c->scale_stride.row),
                  bytes, scale_bytes, TILE_KEYS, list, at + i);
    }
}

/* Sets the addresses of rows in pages or tiles. Goes page by page, because finding a page takes a
 * division. Within a page, addresses are at one stride. The function is not inlined, so that calls
 * of few keys without pages and tiles execute fewer bytes of code. */
static __attribute__((noinline)) void point_to_pages(const struct attention *a,
                                                     const struct kernels *kernels,
                                                     const struct cache *c, struct key_range keys,
                                                     int count, struct row_list *list)
{
    for (int i = 0; i < count;) {
        const int64_t first = keys.first + i;
        const int64_t left_in_page = a->pages.table ? a->pages.size - first % a->pages.size : count;
        const int end = left_in_page < count - i ? i + (int)left_in_page : count;
        const struct key_row row = key_row(a, c, keys.batch, keys.kv_head, first);
        if (c->tiled)
            fill_tiles(kernels, c, row, end - i, list, i);
        else
            fill_rows(kernels, row, c->stride.row, c->scale_stride.row, end - i, list, i);
        i = end;
    }
}

/* Sets the address of each row by its cell. A key without a cell gets the address of cell 0. This
 * address only fills a place: tiles read only rows of seen keys, and all seen keys have cells. */
static void point_to_cells(const struct attention *a, const struct cache *c, struct key_range keys,
                           int count, struct row_list *list)
{
    const int32_t *const cell = cells_from(a, keys.first);
    const struct key_row row = key_row_at(c, (struct index){keys.batch, 0}, keys.kv_head);
    for (int i = 0; i < count; i++)
        list->row[i] = row.data + (cell[i] < 0 ? 0 : cell[i]) * c->stride.row;
    for (int i = 0; row.scales && i < count; i++)
        list->scales[i] =
            row_after(row, 0, (cell[i] < 0 ? 0 : cell[i]) * c->scale_stride.row).scales;
}

/* Sets the addresses of the first `count` rows. The rows themselves stay in place. */
static void point_in_place(const struct attention *a, const struct kernels *kernels,
                           const struct cache *c, struct key_range keys, int count,
                           struct row_list *list)
{
    if (a->pages.table || c->tiled)
        point_to_pages(a, kernels, c, keys, count, list);
    else if (!are_in_order(a, keys.first, count))
        point_to_cells(a, c, keys, count, list);
    else
        fill_rows(kernels, key_row(a, c, keys.batch, keys.kv_head, keys.first), c->stride.row,
                  c->scale_stride.row, count, list, 0);
}

/* Copies the address of row `from` to entry `to` of the list. Only TYPE_I8 has scales in the
 * list. */
static void copy_row(const struct key_rows *rows, int from, struct row_list *list, int to)
{
    list->row[to] = rows->row[from];
    if (rows->scales)
        list->scales[to] = rows->scales[from];
}

static void repeat_last(const struct key_rows *rows, struct row_list *list, int count)
{
    for (int i = count; i % MAX_VECTOR != 0; i++)
        copy_row(rows, count - 1, list, i);
}

/* Returns the number of keys, rounded up to whole tiles if the cache is tiled, because tiles are
 * read as a whole. */
static int whole_tiles(const struct cache *c, int keys)
{
    return c->tiled ? (keys + TILE_KEYS - 1) / TILE_KEYS * TILE_KEYS : keys;
}

static struct key_rows describe(const struct cache *c, const struct row_list *list)
{
    const enum type type = readable_type(c);
    const bool scaled = c->scales && is_readable(c);
    return (struct key_rows){type,           c->tiled,  c->dim,
                             c->scale_group, list->row, scaled ? list->scales : NULL};
}

/* Returns the place of a key's row in scratch, where rows lie without gaps. */
static char *readable_row(const struct widening *w, int key)
{
    return (char *)w->wide + key * bytes_of(readable_type(w->c), w->c->dim);
}

static void make_run_readable(const struct widening *w, int key, int count)
{
    const struct cache *const c = w->c;
    const struct rows rows = {key_row(w->a, c, w->batch, w->kv_head, w->first + key).data,
                              c->stride.row, c->dim};
    if (readable_type(c) == TYPE_Q8_0)
        w->kernels->unpack(c->type, &rows, count, readable_row(w, key));
    else
        for (int i = key; i < key + count; i++)
            widen_row(w, key_row(w->a, c, w->batch, w->kv_head, w->first + i), i);
}

/* Returns whether the row of key + count lies `count` strides after the row of `key`. With pages,
 * both keys must be in the same page. */
static bool is_in_order(const struct widening *w, int key, int count)
{
    if (!has_cells(w->a))
        return true;
    const int32_t *const cell = cells_from(w->a, w->first + key);
    return cell[count] == cell[0] + count;
}

/* Returns how many keys, from `key` on, are seen and have rows at one stride. The result is at most
 * `most`. */
static int keys_in_run(const struct widening *w, struct key_set seen, int key, int most)
{
    const struct pages *const pages = &w->a->pages;
    const int64_t left = pages->table ? pages->size - (w->first + key) % pages->size : most;
    int count = 0;
    while (count < most && count < left && has_key(seen, key + count) && is_in_order(w, key, count))
        count++;
    return count;
}

/* Prefetches the rows of keys `key` to end - 1, counted from the first key of `keys`. */
static inline __attribute__((always_inline)) void
prefetch_rows(const struct widening *w, struct key_range keys, int key, int end)
{
    const int64_t bytes = bytes_of(w->c->type, w->c->dim);
    for (int i = key; i < end; i++)
        prefetch_row(key_row(w->a, w->c, keys.batch, keys.kv_head, keys.first + i).data, bytes);
}

/* Converts the rows of the seen keys to a type that decode tiles can read, and prefetches the rows
 * of `next` meanwhile. Sets the addresses of `count` rows. `next` may be empty. */
static void make_readable(const struct widening *w, struct key_set seen, int count,
                          struct key_range next, struct row_list *list)
{
    enum { STEP = 8 }; /* keys between prefetches */
    const int ahead = next.first < next.end ? keys_of_block(next) : 0;
    for (int i = 0; i < count; i++)
        list->row[i] = readable_row(w, i);
    for (int i = 0; i < count; i += STEP) {
        const int end = i + STEP < count ? i + STEP : count;
        prefetch_rows(w, next, i, end < ahead ? end : ahead);
        for (int key = i; key < end;) {
            const int run = keys_in_run(w, seen, key, end - key);
            if (run > 0)
                make_run_readable(w, key, run);
            key += run > 0 ? run : 1;
        }
    }
}

/* Returns K or V of a block. The last row is repeated up to a whole vector. If a decode tile cannot
 * read the rows, prefetches `next`. */
static struct key_rows point(const struct attention *a, const struct kernels *kernels,
                             const struct cache *c, struct key_range keys, struct key_set seen,
                             struct key_range next, struct row_list *list, float *wide)
{
    const int count = whole_tiles(c, keys_of_block(keys));
    const struct key_rows rows = describe(c, list);
    if (is_readable(c)) {
        point_in_place(a, kernels, c, keys, count, list);
    } else {
        const struct widening w = {a,          kernels, c,      keys.batch, keys.kv_head,
                                   keys.first, wide,    c->dim, NULL};
        make_readable(&w, seen, count, next, list);
    }
    repeat_last(&rows, list, count);
    return rows;
}

static bool is_same(struct key_range a, struct key_range b)
{
    return a.batch == b.batch && a.kv_head == b.kv_head && a.first == b.first && a.end == b.end;
}

/* Replaces the rows by the rows of a list. */
static void point_to_list(struct key_rows *rows, const struct row_list *list)
{
    rows->row = list->row;
    if (rows->scales)
        rows->scales = list->scales;
}

/* Leaves only the rows of the keys that are seen, one after the other. */
static void rows_of_seen(struct key_rows *rows, struct key_set seen, struct row_list *left)
{
    int count = 0;
    for (int i = 0; i < KEY_BLOCK; i++)
        if (has_key(seen, i))
            copy_row(rows, i, left, count++);
    point_to_list(rows, left);
    repeat_last(rows, left, count);
}

static void zeros_for_unseen(struct key_rows *rows, struct key_set seen, int count,
                             const float *zeros, struct row_list *all)
{
    for (int i = 0; i < count; i++) {
        copy_row(rows, i, all, i);
        if (!has_key(seen, i)) {
            all->row[i] = (const char *)zeros;
            all->scales[i] = zeros;
        }
    }
    point_to_list(rows, all);
    repeat_last(rows, all, count);
}

/* Replaces each tile without a seen key by the first tile with a seen key. */
static void tiles_of_seen(struct key_rows *rows, struct key_set seen, int count,
                          struct row_list *all)
{
    for (int tile = 0; tile < count; tile += TILE_KEYS) {
        const bool is_seen = !is_empty(intersection_of(seen, key_set_of(tile, tile + TILE_KEYS)));
        const int from = is_seen ? tile : first_of(seen) / TILE_KEYS * TILE_KEYS;
        for (int i = 0; i < TILE_KEYS; i++)
            copy_row(rows, from + i, all, tile + i);
    }
    point_to_list(rows, all);
}

static void leave_out_unseen(const struct attention *a, struct key_set seen, int count,
                             struct row_room *room, struct decode_block *block)
{
    if (is_equal(seen, key_set_of(0, count)))
        return;
    if (a->k.tiled) {
        tiles_of_seen(&block->k, seen, count, &room->seen_k);
        zeros_for_unseen(&block->v, seen, count, room->zeros, &room->seen_v);
        return;
    }
    rows_of_seen(&block->k, seen, &room->seen_k);
    rows_of_seen(&block->v, seen, &room->seen_v);
}

enum { PAGE = 4096 }; /* bytes of a page of memory, on nearly all machines */

/* Prefetches one cache line from each page of memory in which one of `count` rows begins. Takes
 * the distance of the first two rows as the distance of all rows. `count` is at least 1. If the
 * address of the page is not in the TLB, a prefetch holds up all later work until the CPU has
 * found the address, which takes long in a virtual machine. But the CPU looks for the addresses of
 * several prefetches at the same time if they directly follow each other. So all pages of a block
 * are prefetched here, one right after the other. Without this function a tile would meet the
 * pages one by one while it prefetches line by line, and wait for each address. */
static void prefetch_pages(const char *const *row, int count)
{
    const intptr_t between = count > 1 ? (intptr_t)row[1] - (intptr_t)row[0] : PAGE;
    const intptr_t apart = between < 0 ? -between : between;
    const int step = apart != 0 && apart < PAGE ? (int)(PAGE / apart) : 1;
    for (int i = 0; i < count; i += step)
        __builtin_prefetch(row[i], 0, 2);
    __builtin_prefetch(row[count - 1], 0, 2);
}

/* Prefetches the pages of `count` rows, which belong to the keys from key `first` on. Does nothing
 * if the most recent prefetch of pages was for keys from the same key on, with a first row less
 * than a page away. Usually that prefetch was for another head. In this case the TLB has the pages
 * already, and a second prefetch would only delay cache lines that are needed sooner. */
static void prefetch_new_pages(const char *const *row, int count, int64_t first,
                               struct touched *last)
{
    if (count == 0)
        return;
    const intptr_t apart = (intptr_t)row[0] - (intptr_t)last->row;
    if (first == last->first && apart < PAGE && apart > -PAGE)
        return;
    prefetch_pages(row, count);
    *last = (struct touched){first, row[0]};
}

static void prefetch_next(const struct attention *a, const struct kernels *kernels,
                          struct key_range next, struct row_room *room, struct decode_block *block)
{
    if (a->k.tiled) /* a window may begin inside a tile */
        next.first = next.first / TILE_KEYS * TILE_KEYS;
    point(a, kernels, &a->k, next, key_set_of(0, 0), (struct key_range){0}, &room->k[room->next],
          NULL);
    block->next_keys = whole_tiles(&a->k, keys_of_block(next));
    room->known = next;
}

/* Sets the addresses of the rows that this head prefetches. `turns` heads lie side by side and
 * prefetch the next block together. The rows of all these heads, token by token as in memory, are
 * cut into equal parts, one for each head. A part has as many rows as the block has keys. */
static void point_to_part(const struct attention *a, const struct kernels *kernels,
                          const struct cache *c, struct key_range next, const struct row_room *room,
                          const char **rows)
{
    const int64_t bytes = bytes_of(c->type, c->dim);
    const int keys = keys_of_block(next), turns = room->turns;
    const bool in_a_row = c->stride.row == turns * bytes; /* no gap between tokens */
    const struct key_row first = key_row(a, c, next.batch, next.kv_head, next.first);
    int64_t token = room->turn * keys / turns;
    int head = room->turn * keys % turns;
    for (int i = 0; i < keys; token++, head = 0) {
        const int left = keys - i, pieces = in_a_row || turns - head > left ? left : turns - head;
        kernels->fill_pointers(first.data + token * c->stride.row + head * bytes, bytes, pieces,
                               rows + i);
        i += pieces;
    }
}

/* Prefetches the pages of memory in which the tokens of block `next` begin. `c` is K or V. The rows
 * of all heads that prefetch together lie side by side in a token, and the first row belongs to the
 * head of `next`. `rows` is room for addresses. */
static void prefetch_pages_of_heads(const struct attention *a, const struct kernels *kernels,
                                    const struct cache *c, struct key_range next, const char **rows)
{
    const struct key_row first = key_row(a, c, next.batch, next.kv_head, next.first);
    kernels->fill_pointers(first.data, c->stride.row, keys_of_block(next), rows);
    prefetch_pages(rows, keys_of_block(next));
}

/* Sets the rows to prefetch: this head's part of K and V of the next block. The first head
 * prefetches the pages of all heads, so that the CPU looks for as many addresses as it can at the
 * same time. */
static void prefetch_part(const struct attention *a, const struct kernels *kernels,
                          struct key_range next, struct row_room *room, struct decode_block *block)
{
    if (room->turn == 0) {
        prefetch_pages_of_heads(a, kernels, &a->v, next, room->part_v);
        prefetch_pages_of_heads(a, kernels, &a->k, next, room->part_v);
    }
    point_to_part(a, kernels, &a->k, next, room, room->k[room->next].row);
    point_to_part(a, kernels, &a->v, next, room, room->part_v);
    block->with_k = room->part_v;
    block->next_keys = keys_of_block(next);
}

void attnkit_point_to_rows(const struct attention *a, const struct kernels *kernels,
                           struct key_range keys, struct key_set seen, struct key_range next,
                           struct row_room *room, struct decode_block *block)
{
    const struct key_range asked = block->far ? next : (struct key_range){0};
    if (is_same(room->known, keys))
        block->k = describe(&a->k, &room->k[room->next]);
    else
        block->k = point(a, kernels, &a->k, keys, seen, asked, &room->k[room->next], room->wide.k);
    block->v = point(a, kernels, &a->v, keys, seen, asked, &room->v, room->wide.v);
    leave_out_unseen(a, seen, keys_of_block(keys), room, block);
    room->next = !room->next;
    room->known = (struct key_range){0};
    block->with_k = block->v.row;
    block->next_k = room->k[room->next].row;
    block->next_keys = 0;
    if (!block->far || !is_readable(&a->k) || next.first >= next.end)
        return;
    if (room->turns > 1 && keys_of_block(next) == keys_of_block(keys) &&
        are_in_order(a, next.first, keys_of_block(next))) {
        prefetch_part(a, kernels, next, room, block);
        return;
    }
    next.kv_head += room->turn;
    prefetch_next(a, kernels, next, room, block);
    prefetch_new_pages(block->with_k, count_of(seen), keys.first, &room->touched_v);
    prefetch_new_pages(block->next_k, block->next_keys, next.first, &room->touched_k);
}

/* --- Words of integers ------------------------------------------------------------------------ */

/* Makes the words of the keys in `keys`, which are a part of the block at key w->first, by pack_k
 * or pack_v of struct integer_panel_kernels. Prefetches rows of the next block meanwhile. */
static void pack_integers(const struct widening *w, struct key_set keys,
                          void (*pack)(const struct key_rows *rows, int first, int count,
                                       float *words))
{
    enum { STEP = 8 }; /* keys between prefetches */
    const struct cache *const c = w->c;
    const int from = first_of(keys), count = count_of(keys), ahead = keys_ahead(w);
    const struct key_range range = {w->batch, w->kv_head, w->first + from, w->first + end_of(keys)};
    struct row_list list, seen;
    struct key_rows rows = point(w->a, w->kernels, c, range, counted_from(keys, from),
                                 (struct key_range){0}, &list, NULL);
    if (!is_in_a_row(keys))
        rows_of_seen(&rows, counted_from(keys, from), &seen);
    for (int i = 0; i < count; i += STEP) {
        const int end = i + STEP < count ? i + STEP : count;
        for (int key = i; key < end && key < ahead; key++)
            prefetch_row(rows.row[key] + KEY_BLOCK * c->stride.row, bytes_of(c->type, c->dim));
        pack(&rows, i, end - i, w->wide);
    }
}

/* Copies key `at` of a tile of K to `row`, without a change of type. For TYPE_I8, copies the scales
 * of the key to `scales`. */
static void copy_from_tile(const struct cache *c, struct key_row tile, int64_t at, char *row,
                           float *scales)
{
    const bool has_groups = has_scales(c->type);
    for (int64_t d = 0; has_groups && d < c->dim; d++)
        row[d] = tile.data[d * TILE_KEYS + at];
    for (int64_t g = 0; has_groups && g < c->dim / c->scale_group; g++)
        scales[g] = tile.scales[g * TILE_KEYS + at];
    for (int64_t d = 0; !has_groups && d < c->dim; d += Q8_BLOCK, row += Q8_BLOCK_BYTES) {
        const char *const block = tile.data + bytes_of(TYPE_Q8_0, d) * TILE_KEYS;
        const char *const bytes = block + TILE_KEYS * sizeof(uint16_t) + at;
        memcpy(row, block + at * (int64_t)sizeof(uint16_t), sizeof(uint16_t));
        for (int i = 0; i < Q8_BLOCK; i++)
            row[sizeof(uint16_t) + (size_t)i] = bytes[i * TILE_KEYS];
    }
}

/* Does the work of pack_integers for K in tiles, but prefetches nothing. Keys are first copied to
 * rows. These rows lie behind the words in the scratch for K: the words take only a part of this
 * scratch. */
static void pack_tiles(const struct widening *w, struct key_set keys,
                       void (*pack)(const struct key_rows *rows, int first, int count,
                                    float *words))
{
    enum { STEP = 8 }; /* keys that are packed together */
    const struct cache *const c = w->c;
    const int64_t row_bytes = bytes_of(c->type, c->dim);
    char *const copies = (char *)(w->wide + KEY_BLOCK * rounded_row_floats(c->dim));
    float *const scales = (float *)(void *)(copies + STEP * row_bytes);
    struct row_list list;
    const struct key_rows rows = {c->type, false, c->dim, c->scale_group, list.row, list.scales};
    int count = 0;
    for (int key = first_of(keys); key < end_of(keys); key++) {
        if (!has_key(keys, key))
            continue;
        const int64_t index = w->first + key;
        float *const own_scales = scales + count % STEP * (c->dim / Q8_BLOCK);
        char *const row = copies + count % STEP * row_bytes;
        copy_from_tile(c, key_row(w->a, c, w->batch, w->kv_head, index), index % TILE_KEYS, row,
                       own_scales);
        list.row[count] = row;
        list.scales[count++] = own_scales;
        if (count % STEP == 0)
            pack(&rows, count - STEP, STEP, w->wide);
    }
    if (count % STEP != 0)
        pack(&rows, count - count % STEP, count % STEP, w->wide);
}

struct block attnkit_integer_block(const struct attention *a, const struct kernels *kernels,
                                   int64_t batch, int64_t kv_head, int64_t first,
                                   struct key_set keys, struct wide wide)
{
    const struct integer_panel_kernels *const panel = kernels->integers->panel;
    const struct widening k = {a, kernels, &a->k, batch, kv_head, first, wide.k, 0, NULL};
    const struct widening v = {a, kernels, &a->v, batch, kv_head, first, wide.v, 0, NULL};
    if (!HAS_INTEGERS)
        __builtin_trap(); /* the function is never called; the compiler leaves out the code after
                           * this line */
    if (a->k.tiled)
        pack_tiles(&k, keys, panel->pack_k);
    else
        pack_integers(&k, keys, panel->pack_k);
    pack_integers(&v, keys, panel->pack_v);
    const ptrdiff_t k_bytes = rounded_row_floats(a->head_dim) * (int64_t)sizeof *wide.k;
    return (struct block){.k = {(const char *)wide.k, k_bytes, a->head_dim},
                          .v = {(const char *)wide.v, 0, a->value_dim}};
}
