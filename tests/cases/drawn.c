/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cases/drawn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/attention/attention.h"
#include "dispatch/attention/bind_cells.h"
#include "kernels/attention/mask.h"
#include "kernels/scalar/scalar.h"
#include "tests/support/random.h"

/* The flags that exclude weights as an output. */
enum { PRODUCTS = ATTNKIT_INTEGERS | ATTNKIT_BF16_PRODUCTS };

static int64_t below(struct drawn *c, int64_t n)
{
    return random_below(&c->random, n);
}

static bool one_in(struct drawn *c, int64_t n)
{
    return below(c, n) == 0;
}

/* Allocates memory that ends at an unmapped page. */
static void *take(struct drawn *c, size_t size)
{
    struct guarded *const m = &c->piece[c->pieces++];
    assert_true(c->pieces <= DRAWN_PIECES);
    *m = memory_guarded(size, 0, true);
    return m->data;
}

/* --- Shapes ----------------------------------------------------------------------------------- */

static int64_t draw_dim(struct drawn *c, attnkit_type type, int64_t *group)
{
    static const int64_t dims[] = {1, 2, 3, 8, 15, 16, 17, 33, 40, 64, 65};
    if (block_elements((enum type)type) > 1)
        return 32 * (1 + below(c, 2));
    if (type == ATTNKIT_I8 && c->args.flags & ATTNKIT_INTEGERS) {
        *group = 32 * below(c, 3);
        return *group > 0 ? *group * (1 + below(c, 2)) : 32 * (1 + below(c, 3));
    }
    if (type == ATTNKIT_I8 && one_in(c, 2)) {
        static const int64_t groups[] = {1, 3, 8, 16, 32};
        *group = groups[below(c, 5)];
        return *group * (1 + below(c, 64 / *group));
    }
    return dims[below(c, 11)];
}

enum { ROUNDED_TYPES = 3, WRITTEN_TYPES = 7 };

static attnkit_type draw_type(struct drawn *c, int types)
{
    static const attnkit_type all[] = {ATTNKIT_F32,  ATTNKIT_F16,  ATTNKIT_BF16, ATTNKIT_I8,
                                       ATTNKIT_Q8_0, ATTNKIT_Q4_0, ATTNKIT_Q5_0};
    return one_in(c, 2) ? ATTNKIT_F32 : all[below(c, types)];
}

/* row_entries returns the number of batch entries in the tensors of query rows. key_entries returns
 * the number of batch entries in the tensors of keys. Packed tensors have one batch entry. */
static int64_t row_entries(const struct drawn *c)
{
    return c->groups.storage.cu_seqlens_q.data ? 1 : c->args.batch;
}

static int64_t key_entries(const struct drawn *c)
{
    return c->groups.storage.cu_seqlens_kv.data ? 1 : c->args.batch;
}

static double cost(const struct drawn *c)
{
    const attnkit_attention_args *const a = &c->args;
    const double entries = (double)row_entries(c);
    return entries * (double)(a->q_heads * a->q_len) * (double)a->kv_len *
           (double)(a->head_dim + a->value_dim + 24);
}

/* Draws the types of K and V for ATTNKIT_INTEGERS. In a quarter of the calls, the two types
 * differ. */
static void draw_types_of_integers(struct drawn *c)
{
    c->args.k.type = one_in(c, 2) ? ATTNKIT_I8 : ATTNKIT_Q8_0;
    c->args.v.type = !one_in(c, 4)                  ? c->args.k.type
                     : c->args.k.type == ATTNKIT_I8 ? ATTNKIT_Q8_0
                                                    : ATTNKIT_I8;
}

static void draw_shape(struct drawn *c)
{
    static const int64_t q_lens[] = {1, 1, 1, 2, 3, 5, 8, 16, 17, 33, 65, 129, 300};
    static const int64_t kv_lens[] = {0,   1,   5,   15,  16,  17,  33,  64,  100, 127,  128,
                                      129, 130, 200, 256, 300, 400, 511, 513, 700, 1100, 1400};
    attnkit_attention_args *const a = &c->args;
    a->q.type = draw_type(c, ROUNDED_TYPES);
    a->k.type = draw_type(c, WRITTEN_TYPES);
    a->v.type = draw_type(c, WRITTEN_TYPES);
    a->out.type = draw_type(c, ROUNDED_TYPES);
    if (a->flags & ATTNKIT_INTEGERS)
        draw_types_of_integers(c);
    if (a->flags & ATTNKIT_BF16_PRODUCTS)
        a->q.type = a->k.type = a->v.type = ATTNKIT_BF16;
    a->head_dim = draw_dim(c, a->k.type, &c->groups.storage.k_scale_group);
    a->value_dim = draw_dim(c, a->v.type, &c->groups.storage.v_scale_group);
    do {
        a->batch = 1 + below(c, DRAWN_BATCH);
        a->kv_heads = 1 + below(c, 3);
        a->q_heads = a->kv_heads * (1 + below(c, one_in(c, 3) ? 8 : 3));
        a->q_len = q_lens[below(c, 13)];
        a->kv_len = kv_lens[below(c, 22)];
    } while (cost(c) > 2e6);
}

/* Draws the cu_seqlens of packed sequences that have `total` rows or keys together. */
static void draw_starts(struct drawn *c, int64_t total, int64_t *starts)
{
    for (int64_t b = 1; b <= c->args.batch; b++)
        starts[b] =
            b == c->args.batch ? total : starts[b - 1] + below(c, total - starts[b - 1] + 1);
}

static void draw_pages(struct drawn *c)
{
    static const int64_t sizes[] = {1, 5, 16, 48, 128, 256};
    const attnkit_attention_args *const a = &c->args;
    attnkit_pages *const p = &c->groups.pages;
    do
        p->page_size = sizes[below(c, 6)];
    while ((a->k.layout & ATTNKIT_TILED) && p->page_size % ATTNKIT_TILE_KEYS != 0);
    p->block_table_stride = (a->kv_len + p->page_size - 1) / p->page_size;
    p->pages = a->batch * p->block_table_stride;
    int32_t *const table = take(c, (size_t)p->pages * sizeof *table);
    p->block_table = table;
    for (int64_t i = 0; i < p->pages; i++) {
        const int64_t b = i / p->block_table_stride;
        const int64_t first = i % p->block_table_stride * p->page_size;
        const int64_t keys = c->groups.visibility.kv_lens.data ? c->kv_lens[b] : a->kv_len;
        table[i] = first < keys ? (int32_t)(p->pages - 1 - i) : -1;
    }
}

static void draw_storage(struct drawn *c)
{
    attnkit_attention_args *const a = &c->args;
    if (one_in(c, 4)) {
        draw_starts(c, a->q_len, c->cu_seqlens_q);
        c->groups.storage.cu_seqlens_q.data = c->cu_seqlens_q;
    }
    if (one_in(c, 8)) {
        draw_starts(c, a->kv_len, c->cu_seqlens_kv);
        c->groups.storage.cu_seqlens_kv.data = c->cu_seqlens_kv;
        return;
    }
    for (int64_t b = 0; b < a->batch; b++)
        c->kv_lens[b] = below(c, a->kv_len + 1);
    if (one_in(c, 3))
        c->groups.visibility.kv_lens.data = c->kv_lens;
    const bool has_tiles =
        !is_only_widened((enum type)a->k.type) && !(a->flags & ATTNKIT_BF16_PRODUCTS);
    if (one_in(c, 4) && has_tiles)
        a->k.layout |= ATTNKIT_TILED;
    if (one_in(c, 4))
        draw_pages(c);
    else if (a->k.type <= ATTNKIT_BF16 && a->v.type <= ATTNKIT_BF16 &&
             !(a->k.layout & ATTNKIT_TILED))
        *(one_in(c, 2) ? &c->slots : &c->tokens) = one_in(c, 3);
}

/* --- Cells ------------------------------------------------------------------------------------ */

static bool can_have_cells(const struct drawn *c)
{
    return !(c->args.k.layout & ATTNKIT_TILED) && !c->groups.pages.block_table &&
           !c->groups.storage.cu_seqlens_kv.data;
}

/* Draws the index of the key in each cell of a batch entry, as a ring or in random order. The
 * indices begin at `first`. In some batch entries, only every third index occurs. The index of an
 * empty cell is -1. */
static void draw_order(int64_t cells, int64_t first, uint64_t *random, int64_t *index)
{
    const int64_t turn = random_below(random, cells), empty = random_below(random, 4);
    const bool shuffled = random_below(random, 2), spread = random_below(random, 4) == 0;
    for (int64_t cell = 0; cell < cells; cell++) {
        const int64_t place = (cell + turn) % cells;
        index[cell] = first + (spread ? 3 * place : place);
    }
    for (int64_t cell = cells - 1; cell > 0 && shuffled; cell--) {
        const int64_t other = random_below(random, cell + 1), moved = index[cell];
        index[cell] = index[other];
        index[other] = moved;
    }
    for (int64_t cell = 0; cell < cells; cell++)
        if (empty > 0 && random_below(random, 1 << empty) == 0)
            index[cell] = -1;
}

/* Puts the keys into cells, and adds the index of the first key to each of the q_offsets. The
 * function has random numbers of its own, so that all other parts of the call are drawn as without
 * cells. */
static void draw_cells(struct drawn *c, int number)
{
    attnkit_attention_args *const a = &c->args;
    attnkit_kv_storage *const storage = &c->groups.storage;
    uint64_t random = (uint64_t)number * 104729 + 1;
    const bool shared = random_below(&random, 4) == 0;
    const int64_t stride = shared ? 0 : a->kv_len + random_below(&random, 3);
    const int64_t first = random_below(&random, 3) * random_below(&random, 1200);
    int64_t *const index = take(c, (size_t)(stride * (a->batch - 1) + a->kv_len) * sizeof *index);
    for (int64_t b = 0; b < a->batch; b++)
        if (a->kv_len > 0 && (b == 0 || !shared))
            draw_order(a->kv_len, first, &random, index + b * stride);
    for (int64_t b = 0; b < a->batch; b++)
        c->q_offsets[b] += c->q_offsets[b] < INT64_MAX / 2 ? first : 0;
    storage->key_index.data = index;
    storage->key_index_stride = stride;
}

/* --- Options ---------------------------------------------------------------------------------- */

static void draw_positions(struct drawn *c)
{
    attnkit_attention_args *const a = &c->args;
    a->align = (attnkit_align)(1 + below(c, 3));
    for (int64_t b = 0; b < a->batch; b++)
        c->q_offsets[b] = below(c, a->kv_len + 20) - 20;
    if (one_in(c, 30))
        c->q_offsets[0] = one_in(c, 2) ? INT64_MIN : INT64_C(1) << 60;
    if (a->align == ATTNKIT_ALIGN_OFFSETS)
        a->q_offsets.data = c->q_offsets;
    if (!one_in(c, 3))
        a->flags |= ATTNKIT_CAUSAL;
    if (one_in(c, 3)) {
        int64_t left = one_in(c, 4) ? -1 : below(c, one_in(c, 2) ? 4 : 300);
        const int64_t right = one_in(c, 3) ? -1 : below(c, one_in(c, 2) ? 4 : 300);
        left = one_in(c, 20) ? INT64_MAX - 1 : left;
        groups_set_window(a, &c->groups, left, right, one_in(c, 2) ? below(c, 200) : 0);
    }
}

static int32_t *draw_segments(struct drawn *c, int64_t count)
{
    int32_t *const ids = take(c, (size_t)count * sizeof *ids);
    const bool random = one_in(c, 3);
    for (int64_t i = 0; i < count; i++)
        ids[i] = (int32_t)(random ? below(c, 2) : i / 70 % 5);
    return ids;
}

/* Draws the strides of a mask, some of which may be 0. Returns the size of the mask in bytes. */
static size_t draw_mask_strides(struct drawn *c, int64_t row_bytes, int64_t alignment,
                                attnkit_tensor *mask)
{
    const attnkit_attention_args *const a = &c->args;
    const int64_t count[3] = {row_entries(c), a->q_heads, a->q_len};
    int64_t bytes = row_bytes;
    mask->layout = ATTNKIT_STRIDED;
    for (int i = 2; i >= 0; i--) {
        mask->strides[i] = 0;
        if (one_in(c, 3) || count[i] == 0)
            continue;
        const int64_t gap = one_in(c, 4) ? alignment * below(c, 5) : 0;
        mask->strides[i] = bytes + gap;
        bytes += mask->strides[i] * (count[i] - 1);
        bytes = (bytes + alignment - 1) / alignment * alignment;
    }
    return (size_t)bytes;
}

static int64_t draw_columns(struct drawn *c)
{
    const int64_t kv_len = c->args.kv_len;
    return one_in(c, 4) && kv_len > 1 ? 1 + below(c, kv_len - 1) : kv_len;
}

/* Allocates and draws the bytes of a mask, region by region. In a region, all bytes are 0, all
 * bytes are 0xff, or the bytes are mixed. */
static void *draw_bytes(struct drawn *c, size_t size)
{
    unsigned char *const bytes = take(c, size);
    const int64_t region = 1 + below(c, one_in(c, 2) ? 20 : 400);
    for (size_t i = 0; i < size;) {
        const int64_t kind = below(c, 4), end = 1 + below(c, region);
        for (int64_t j = 0; j < end && i < size; j++)
            bytes[i++] = kind == 0   ? 0
                         : kind == 1 ? 0xff
                         : kind == 2 ? (unsigned char)below(c, 2)
                                     : (unsigned char)random_bits(&c->random);
    }
    return bytes;
}

static float draw_bias(struct drawn *c, int64_t kind)
{
    static const float specials[] = {INFINITY, NAN, -FLT_MAX, -0.0f, 1e30f, -65504.0f};
    if (kind == 0)
        return -INFINITY;
    if (kind == 1)
        return 0.0f;
    if (kind == 2)
        return specials[below(c, one_in(c, 20) ? 6 : 4) % 6];
    return 4.0f * random_uniform(&c->random);
}

static void draw_bias_tensor(struct drawn *c)
{
    attnkit_score_mods *const scores = &c->groups.scores;
    scores->bias.type = (attnkit_type)below(c, 3);
    scores->bias_columns = draw_columns(c);
    const enum type type = (enum type)scores->bias.type;
    const int64_t element = bytes_of(type, 1);
    const size_t bytes =
        draw_mask_strides(c, scores->bias_columns * element, element, &scores->bias);
    const int64_t count = (int64_t)bytes / element;
    char *const bias = take(c, bytes);
    const bool special = one_in(c, 10);
    for (int64_t i = 0; i < count;) {
        const int64_t kind = below(c, 40) == 0 && special ? 2
                             : below(c, 3) % 3 == 2       ? 3
                                                          : below(c, 2);
        for (int64_t end = i + 1 + below(c, 90); i < end && i < count; i++) {
            const float x = draw_bias(c, kind);
            attnkit_scalar_narrow(type, &x, 1, 1, bias + i * element, NULL);
        }
    }
    scores->bias.data = bias;
}

static void draw_masks(struct drawn *c)
{
    const attnkit_attention_args *const a = &c->args;
    attnkit_visibility *const see = &c->groups.visibility;
    if (one_in(c, 5)) {
        see->q_segment_ids = draw_segments(c, row_entries(c) * a->q_len);
        see->kv_segment_ids = draw_segments(c, key_entries(c) * a->kv_len);
    }
    if (a->kv_len == 0)
        return;
    if (one_in(c, 3)) {
        see->mask.type = ATTNKIT_BOOL;
        see->mask_kind = (attnkit_mask_kind)(1 + below(c, 2));
        see->mask_columns = draw_columns(c);
        see->mask.data = draw_bytes(c, draw_mask_strides(c, see->mask_columns, 1, &see->mask));
    }
    if (one_in(c, 4)) {
        see->mask_bits.type = ATTNKIT_BITS;
        see->mask_bits_kind = (attnkit_mask_kind)(1 + below(c, 2));
        see->mask_bits_columns = draw_columns(c);
        see->mask_bits.data = draw_bytes(
            c, draw_mask_strides(c, (see->mask_bits_columns + 7) / 8, 1, &see->mask_bits));
    }
    if (one_in(c, 3))
        draw_bias_tensor(c);
}

static void draw_functions(struct drawn *c)
{
    attnkit_attention_args *const a = &c->args;
    attnkit_score_mods *const scores = &c->groups.scores;
    for (int h = 0; h < DRAWN_HEADS; h++) {
        c->slopes[h] = random_uniform(&c->random);
        c->sinks[h] = one_in(c, 20) ? -INFINITY : 4.0f * random_uniform(&c->random);
    }
    if (one_in(c, 60))
        c->sinks[below(c, DRAWN_HEADS)] = one_in(c, 2) ? NAN : INFINITY;
    if (one_in(c, 4))
        scores->softcap = one_in(c, 3) ? 0.5 : 30.0;
    if (one_in(c, 5) && a->align)
        scores->alibi_slopes = c->slopes;
    if (one_in(c, 4))
        scores->sinks = c->sinks;
    if (one_in(c, 6) && a->align && !(a->flags & ATTNKIT_BF16_PRODUCTS)) {
        scores->dropout = one_in(c, 3) ? 0.9 : 0.1;
        scores->dropout_seeds = c->seeds;
        for (int b = 0; b < DRAWN_BATCH; b++)
            c->seeds[b] = random_bits(&c->random);
    }
    if (one_in(c, 4)) {
        a->flags |= ATTNKIT_SCALE_GIVEN;
        a->scale = one_in(c, 4) ? 0.0 : random_uniform(&c->random);
    }
}

/* Draws a factor of the bias for each head, in half of the calls that have a bias. */
static void draw_bias_scales(struct drawn *c)
{
    static const float specials[] = {0.0f,     NAN,    INFINITY, -INFINITY,
                                     -FLT_MAX, 1e-40f, 1e38f,    -1.0f};
    attnkit_score_mods *const scores = &c->groups.scores;
    if (!scores->bias.data || !one_in(c, 2))
        return;
    const bool special = one_in(c, 3);
    for (int h = 0; h < DRAWN_HEADS; h++)
        c->bias_scales[h] =
            special && one_in(c, 4) ? specials[below(c, 8)] : 2.0f * random_uniform(&c->random);
    scores->bias_scales = c->bias_scales;
}

/* --- Tensors ---------------------------------------------------------------------------------- */

static void draw_queries(struct drawn *c)
{
    attnkit_attention_args *const a = &c->args;
    const enum type type = (enum type)a->q.type;
    const int64_t count = row_entries(c) * a->q_heads * a->q_len * a->head_dim;
    const int64_t element = bytes_of(type, 1);
    char *const q = take(c, (size_t)(count * element));
    for (int64_t i = 0; i < count; i++) {
        const float x = 3.0f * random_uniform(&c->random);
        attnkit_scalar_narrow(type, &x, 1, 1, q + i * element, NULL);
    }
    a->q.data = q;
}

static void take_outputs(struct drawn *c)
{
    attnkit_attention_args *const a = &c->args;
    const int64_t rows = row_entries(c) * a->q_heads * a->q_len;
    c->out_bytes = (size_t)(rows * bytes_of((enum type)a->out.type, a->value_dim));
    c->lse_bytes = (size_t)rows * sizeof(float);
    a->out.data = c->out = take(c, c->out_bytes);
    a->lse.data = c->lse = take(c, c->lse_bytes);
    if (!one_in(c, 3) || (a->flags & PRODUCTS))
        return;
    c->groups.weights.kind = (attnkit_weights_kind)(1 + below(c, 4));
    c->weights_bytes = (size_t)(rows * a->kv_len) * sizeof(float);
    c->groups.weights.weights.data = c->weights = take(c, c->weights_bytes);
}

/* K or V, and the append that fills it. */
struct store {
    attnkit_append_args append; /* without src, dst and dst_scales: fill_store sets them */
    attnkit_tensor *rows, *scales;
};

static struct store store_of(struct drawn *c, bool is_k)
{
    attnkit_attention_args *const a = &c->args;
    const int64_t dim = is_k ? a->head_dim : a->value_dim;
    attnkit_kv_storage *const storage = &c->groups.storage;
    return (struct store){
        .append = {.size = sizeof(attnkit_append_args),
                   .batch = key_entries(c),
                   .heads = a->kv_heads,
                   .len = a->kv_len,
                   .lens = c->groups.visibility.kv_lens,
                   .dim = dim,
                   .capacity = a->kv_len,
                   .scale_group = is_k ? storage->k_scale_group : storage->v_scale_group,
                   .pages = &c->groups.pages},
        .rows = is_k ? &a->k : &a->v,
        .scales = is_k ? &storage->k_scales : &storage->v_scales,
    };
}

static int64_t rows_of(const struct store *s)
{
    const attnkit_append_args *const p = &s->append;
    const bool paged = p->pages->block_table;
    int64_t rows = paged ? p->pages->page_size : p->capacity;
    if (s->rows->layout & ATTNKIT_TILED)
        rows = (rows + ATTNKIT_TILE_KEYS - 1) / ATTNKIT_TILE_KEYS * ATTNKIT_TILE_KEYS;
    return (paged ? p->pages->pages : p->batch) * p->heads * rows;
}

static const void *take_filled(struct drawn *c, int64_t bytes)
{
    void *const memory = take(c, (size_t)bytes);
    return memset(memory, 0xff, (size_t)bytes);
}

static void take_store(struct drawn *c, const struct store *s, int *slot)
{
    const attnkit_append_args *const p = &s->append;
    attnkit_tensor *const t = s->rows;
    const int64_t rows = rows_of(s);
    const int64_t bytes = bytes_of((enum type)t->type, p->dim);
    const int64_t group = p->scale_group ? p->scale_group : p->dim;
    if (c->slots) {
        t->data = memory_slots(*slot, (int)rows + 1) + SLOT_BYTES - bytes;
        *slot += (int)rows + 1;
        t->layout |= ATTNKIT_STRIDED;
        t->strides[2] = SLOT_STRIDE;
        t->strides[1] = t->strides[2] * p->len;
        t->strides[0] = t->strides[1] * p->heads;
    } else {
        t->data = take_filled(c, rows * bytes);
    }
    if (c->tokens) {
        t->layout |= ATTNKIT_STRIDED;
        t->strides[1] = bytes;
        t->strides[2] = t->strides[1] * p->heads;
        t->strides[0] = t->strides[2] * p->len;
    }
    if (t->type == ATTNKIT_I8)
        s->scales->data = take_filled(c, rows * (p->dim / group) * (int64_t)sizeof(float));
}

/* Sets the strides of the tensors of query rows explicitly. These strides are the strides of dense
 * tensors. */
static void set_strides(struct drawn *c)
{
    attnkit_attention_args *const a = &c->args;
    attnkit_tensor *const tensors[4] = {&a->q, &a->out, &a->lse, &c->groups.weights.weights};
    const int64_t dims[4] = {a->head_dim, a->value_dim, 1, a->kv_len};
    for (int i = 0; i < 4; i++) {
        int64_t *const strides = tensors[i]->strides;
        tensors[i]->layout |= ATTNKIT_STRIDED;
        strides[2] = bytes_of((enum type)tensors[i]->type, dims[i]);
        strides[1] = strides[2] * a->q_len;
        strides[0] = strides[1] * a->q_heads;
    }
}

/* Returns an array [entry][KV head][key]. An element tells whether some row of the KV head sees the
 * key. */
static bool *seen_rows(const struct attention *a, const attnkit_attention_args *args)
{
    const int64_t heads = args->kv_heads, keys = args->kv_len;
    bool *const seen = calloc((size_t)(args->batch * heads * keys + 1), sizeof *seen);
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t r = 0; r < sequence_rows(a, b) * a->group; r++)
                for (int64_t block = 0; block < keys; block += KEY_BLOCK) {
                    const struct place place = place_of_row(a, b, h, r);
                    struct seen s;
                    attnkit_see(a, &attnkit_scalar, &place, block, &s);
                    for (int i = 0; i < KEY_BLOCK && block + i < keys; i++)
                        if (has_key(s.keys, i)) {
                            const bool packed = a->kv_starts.data;
                            const int64_t first = packed ? int_at(a->kv_starts, b) : 0;
                            const int64_t entry = packed ? 0 : b;
                            seen[(entry * heads + h) * keys + first + block + i] = true;
                        }
                }
    return seen;
}

/* Returns an array [entry][KV head][cell]. An element tells whether some row of the KV head sees
 * the key in the cell. */
static bool *seen_cells(struct attention *a, const attnkit_attention_args *args)
{
    const int64_t heads = args->kv_heads, cells = args->kv_len;
    bool *const seen = calloc((size_t)(args->batch * heads * cells + 1), sizeof *seen);
    char *const memory = aligned_alloc(64, attnkit_cell_bytes(a)), message[ATTNKIT_MESSAGE_SIZE];
    if (attnkit_bind_cells(a, &attnkit_scalar, memory, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t r = 0; r < sequence_rows(a, b) * a->group; r++)
                for (int64_t key = 0; key < sequence_keys(a, b); key++) {
                    const struct place place = place_of_row(a, b, h, r);
                    struct seen s;
                    attnkit_take_cells(a, &attnkit_scalar, b);
                    if (key % KEY_BLOCK == 0)
                        attnkit_see(a, &attnkit_scalar, &place, key, &s);
                    if (has_key(s.keys, (int)(key % KEY_BLOCK)))
                        seen[(b * heads + h) * cells + *cells_from(a, key)] = true;
                }
    free(memory);
    return seen;
}

static bool *seen_keys(struct attention *a, const attnkit_attention_args *args)
{
    return has_cells(a) && args->kv_len > 0 ? seen_cells(a, args) : seen_rows(a, args);
}

/* Returns whether the call reads keys that no row sees. The weights CAPPED and SCALED need the
 * scores of all keys. */
static bool reads_all_keys(const struct drawn *c)
{
    return c->groups.weights.kind == ATTNKIT_WEIGHTS_CAPPED ||
           c->groups.weights.kind == ATTNKIT_WEIGHTS_SCALED;
}

static bool *all_keys(const attnkit_attention_args *args)
{
    const size_t count = (size_t)(args->batch * args->kv_heads * args->kv_len);
    bool *const all = malloc(count + 1);
    memset(all, true, count);
    return all;
}

static void fill_store(struct drawn *c, const struct store *s, const bool *seen, float largest,
                       bool special)
{
    static const float specials[] = {NAN, INFINITY, -INFINITY, -0.0f, 1e30f, 1e-40f};
    attnkit_append_args append = s->append;
    const int64_t rows = append.batch * append.heads * append.len;
    float *const src = malloc((size_t)(rows * append.dim + 1) * sizeof *src);
    char workspace[20 * 256 + 128], message[ATTNKIT_MESSAGE_SIZE];
    for (int64_t i = 0; i < rows * append.dim; i++) {
        src[i] = largest * random_uniform(&c->random);
        if (special && one_in(c, 300))
            src[i] = specials[below(c, 6)];
        if (!seen[i / append.dim])
            src[i] = NAN;
    }
    append.src.data = src;
    append.dst = *s->rows;
    append.dst_scales = *s->scales;
    const attnkit_exec exec = {
        .size = sizeof exec, .workspace = workspace, .workspace_size = sizeof workspace};
    if (attnkit_append(&append, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    free(src);
}

static void hide_slots(const struct store *s, const bool *seen, int slot)
{
    const int64_t rows = s->append.batch * s->append.heads * s->append.len;
    for (int64_t i = 0; i < rows; i++)
        if (!seen[i])
            memory_hide_slots(slot + (int)i, 1);
    memory_hide_slots(slot + (int)rows, 1);
}

static void draw_keys(struct drawn *c)
{
    struct attention a;
    const struct store k = store_of(c, true), v = store_of(c, false);
    const bool empty = c->args.batch == 0 || c->args.q_heads == 0 || c->args.q_len == 0;
    char message[ATTNKIT_MESSAGE_SIZE];
    int slot = 0;
    take_store(c, &k, &slot);
    const int v_slot = slot;
    take_store(c, &v, &slot);
    if (c->slots || c->tokens)
        set_strides(c);
    if (attnkit_attention_problem(&c->args, &a, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    bool *const seen = empty ? calloc(1, 1) : seen_keys(&a, &c->args);
    bool *const seen_k = reads_all_keys(c) ? all_keys(&c->args) : seen;
    const bool special = one_in(c, 6);
    c->huge = one_in(c, 6) && c->args.v.type != ATTNKIT_F16 &&
              block_elements((enum type)c->args.v.type) == 1;
    if (!empty) {
        fill_store(c, &k, seen_k, 1.0f, special);
        fill_store(c, &v, seen, c->huge ? 3e38f : 1.0f, special);
    }
    if (c->slots && !empty) {
        hide_slots(&k, seen_k, 0);
        hide_slots(&v, seen, v_slot);
    }
    if (seen_k != seen)
        free(seen_k);
    free(seen);
}

/* Draws a call. Returns NULL if in_cells is true and the call cannot have cells. */
static struct drawn *new_drawn(int number, bool in_cells, uint32_t flags)
{
    struct drawn *const c = calloc(1, sizeof *c);
    c->random = (uint64_t)number * 7919;
    attnkit_attention_args_init(&c->args);
    c->args.flags = flags;
    groups_init(&c->groups);
    groups_hang(&c->args, &c->groups);
    draw_shape(c);
    draw_storage(c);
    if (in_cells && !can_have_cells(c)) {
        drawn_free(c);
        return NULL;
    }
    if (!one_in(c, 4))
        draw_positions(c);
    if (in_cells)
        draw_cells(c, number);
    draw_masks(c);
    draw_functions(c);
    draw_queries(c);
    take_outputs(c);
    draw_keys(c);
    c->threads = 1 + (int)below(c, 4);
    draw_bias_scales(c);
    return c;
}

struct drawn *drawn_new(int number)
{
    return new_drawn(number, false, 0);
}

struct drawn *drawn_in_cells(int number)
{
    return new_drawn(number, true, 0);
}

struct drawn *drawn_with_integers(int number)
{
    struct drawn *const c = number % 4 == 3 ? new_drawn(number, true, ATTNKIT_INTEGERS) : NULL;
    return c ? c : new_drawn(number, false, ATTNKIT_INTEGERS);
}

struct drawn *drawn_with_bf16_products(int number)
{
    const uint32_t flags = ATTNKIT_BF16_PRODUCTS | (number % 2 ? ATTNKIT_SHORT_WEIGHTS : 0);
    struct drawn *const c = number % 4 == 3 ? new_drawn(number, true, flags) : NULL;
    return c ? c : new_drawn(number, false, flags);
}

void drawn_free(struct drawn *c)
{
    for (int i = 0; i < c->pieces; i++)
        memory_unguard(&c->piece[i]);
    free(c);
}

/* --- A case that is drawn --------------------------------------------------------------------- */

static bool fit_32_bits(attnkit_ints ints, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (ints_at(ints, i) != (int32_t)ints_at(ints, i))
            return false;
    return true;
}

bool drawn_narrow(struct drawn *c)
{
    attnkit_kv_storage *const storage = &c->groups.storage;
    attnkit_ints *const all[] = {&c->groups.visibility.kv_lens, &c->args.q_offsets,
                                 &storage->cu_seqlens_q, &storage->cu_seqlens_kv,
                                 &storage->key_index};
    const int64_t batch = c->args.batch,
                  cells = storage->key_index_stride * (batch - 1) + c->args.kv_len,
                  counts[] = {batch, batch, batch + 1, batch + 1, cells};
    bool any = false;
    for (int n = 0; n < 5; n++) {
        const int64_t count = counts[n];
        if (!all[n]->data || !fit_32_bits(*all[n], count))
            continue;
        int32_t *const narrow = take(c, (size_t)count * sizeof *narrow);
        for (int64_t i = 0; i < count; i++)
            narrow[i] = (int32_t)ints_at(*all[n], i);
        *all[n] = (attnkit_ints){.data = narrow, .type = ATTNKIT_INT32};
        any = true;
    }
    return any;
}

void drawn_clear(const struct drawn *c)
{
    memset(c->out, 0xa5, c->out_bytes);
    memset(c->lse, 0xa5, c->lse_bytes);
    if (c->weights)
        memset(c->weights, 0xa5, c->weights_bytes);
}

void drawn_print(int number)
{
    struct drawn *const c = drawn_new(number);
    drawn_print_call(c);
    drawn_free(c);
}

void drawn_print_call(const struct drawn *c)
{
    const attnkit_attention_args *const a = &c->args;
    const attnkit_kv_storage *const storage = &c->groups.storage;
    const attnkit_visibility *const see = &c->groups.visibility;
    const attnkit_score_mods *const scores = &c->groups.scores;
    const struct {
        const char *name;
        bool is_there;
    } options[] = {
        {"causal", a->flags & ATTNKIT_CAUSAL},
        {"scale", a->flags & ATTNKIT_SCALE_GIVEN},
        {"tiled", a->k.layout & ATTNKIT_TILED},
        {"cu_seqlens_q", storage->cu_seqlens_q.data},
        {"cu_seqlens_kv", storage->cu_seqlens_kv.data},
        {"kv_lens", see->kv_lens.data},
        {"pages", c->groups.pages.block_table},
        {"slots", c->slots},
        {"tokens", c->tokens},
        {"cells", storage->key_index.data},
        {"window", see->window},
        {"segments", see->q_segment_ids},
        {"mask", see->mask.data},
        {"bits", see->mask_bits.data},
        {"bias", scores->bias.data},
        {"bias_scales", scores->bias_scales},
        {"softcap", scores->softcap > 0},
        {"alibi", scores->alibi_slopes},
        {"sinks", scores->sinks},
        {"dropout", scores->dropout > 0},
        {"weights", c->weights},
    };
    printf("# B%lld H%lld/%lld %lld x %lld D%lld/%lld types %d %d %d %d align %d threads %d",
           (long long)a->batch, (long long)a->q_heads, (long long)a->kv_heads, (long long)a->q_len,
           (long long)a->kv_len, (long long)a->head_dim, (long long)a->value_dim, a->q.type,
           a->k.type, a->v.type, a->out.type, a->align, c->threads);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (options[i].is_there)
            printf(" %s", options[i].name);
    printf("\n");
}
