/* SPDX-License-Identifier: Apache-2.0
 *
 * K and V of a golden case. Rows are drawn in their type, and stored in the case's layout: dense,
 * token-major, in tiles, in pages or packed. The only arithmetic of the library that this file uses
 * is the rounding of numbers to 16 bits.
 */
#include <string.h>

#include "kernels/scalar/scalar.h"
#include "tests/promises/golden/call.h"
#include "tests/support/blocks.h"
#include "tests/support/formats.h"
#include "tests/support/random.h"

enum { MOST_DIM = 512 };

/* K or V, or the scales of K or V. The scales of a key are a row of floats. */
struct plane {
    const struct golden_call *call;
    char *first;
    enum type type;
    int64_t row_bytes;
    bool tiled;
};

static int64_t entries_of(const struct golden_call *c)
{
    return c->what.packed_kv ? 1 : c->what.batch;
}

/* Returns the number of rows for which a head has memory, in the tensor or in a page. In tiles,
 * this number is rounded up to whole tiles. */
static int64_t room_of(const struct plane *p)
{
    const struct golden_attention *const what = &p->call->what;
    const int64_t rows = what->page_size ? what->page_size : what->kv_len;
    return p->tiled ? (rows + TILE_KEYS - 1) / TILE_KEYS * TILE_KEYS : rows;
}

/* Returns the first byte of a key's row, or of the tile that has the key. */
static char *place(const struct plane *p, int64_t entry, int64_t head, int64_t key)
{
    const struct golden_attention *const what = &p->call->what;
    const attnkit_pages *const pages = &p->call->groups.pages;
    if (what->tokens)
        return p->first + ((entry * what->kv_len + key) * what->kv_heads + head) * p->row_bytes;
    int64_t outer = entry, row = key;
    if (what->page_size) {
        outer = pages->block_table[entry * pages->block_table_stride + key / what->page_size];
        row = key % what->page_size;
    }
    row = p->tiled ? row / TILE_KEYS * TILE_KEYS : row;
    return p->first + ((outer * what->kv_heads + head) * room_of(p) + row) * p->row_bytes;
}

static void put(const struct plane *p, const char *row, int64_t entry, int64_t head, int64_t key)
{
    char *const to = place(p, entry, head, key);
    if (!p->tiled)
        memcpy(to, row, (size_t)p->row_bytes);
    for (int64_t n = 0; n < p->row_bytes && p->tiled; n++)
        to[byte_in_tile(p->type, n, key % TILE_KEYS)] = row[n];
}

/* --- Rows ------------------------------------------------------------------------------------- */

/* Draws a scale. The product of the scale and a signed byte has about the magnitude of the case's
 * numbers. */
static float draw_scale(enum golden_numbers numbers, uint64_t *random)
{
    const float scale = golden_number(numbers, random);
    return scale * 0x1p-7f;
}

static void draw_bytes(char *row, int64_t count, uint64_t *random)
{
    for (int64_t i = 0; i < count; i++)
        row[i] = (char)(random_below(random, 255) - 127);
}

struct scale_source {
    enum golden_numbers numbers;
    uint64_t *random;
};

static uint16_t draw_half(void *source)
{
    const struct scale_source *const from = source;
    return f16_from_float(draw_scale(from->numbers, from->random));
}

/* Draws a row of one of the types from Q4_0 to F8_E4M3. Bytes of F8_E4M3 that mean NaN become 0. */
static void draw_packed(enum type type, int64_t dim, struct scale_source from, char *row)
{
    for (int64_t i = 0; i < bytes_of(type, dim); i++) {
        row[i] = (char)random_below(from.random, 256);
        if (type == TYPE_F8_E4M3 && (row[i] & 0x7f) == 0x7f)
            row[i] = 0;
    }
    block_put_halves(type, row, dim, draw_half, &from);
}

static void draw_row(enum type type, int64_t dim, enum golden_numbers numbers, uint64_t *random,
                     char *row)
{
    float x[MOST_DIM];
    if (is_only_widened(type)) {
        draw_packed(type, dim, (struct scale_source){numbers, random}, row);
        return;
    }
    switch (type) {
    case TYPE_I8:
        draw_bytes(row, dim, random);
        break;
    case TYPE_Q8_0:
        for (int64_t i = 0; i < dim / Q8_BLOCK; i++) {
            x[0] = draw_scale(numbers, random);
            attnkit_scalar_narrow(TYPE_F16, x, 1, 1, row + i * Q8_BLOCK_BYTES, NULL);
            draw_bytes(row + i * Q8_BLOCK_BYTES + 2, Q8_BLOCK, random);
        }
        break;
    default:
        for (int64_t i = 0; i < dim; i++)
            x[i] = golden_number(numbers, random);
        attnkit_scalar_narrow(type, x, dim, dim, row, NULL);
    }
}

static int64_t keys_of(const struct golden_call *c, int64_t entry)
{
    const attnkit_ints lens = c->groups.visibility.kv_lens;
    return lens.data ? ints_at(lens, entry) : c->what.kv_len;
}

/* Fills a plane with random rows of its type, or with scales. */
static void fill(const struct plane *p, int64_t dim, bool of_scales, uint64_t random)
{
    const struct golden_call *const c = p->call;
    float floats[MOST_DIM];
    char *const row = (char *)floats;
    for (int64_t b = 0; b < entries_of(c); b++)
        for (int64_t h = 0; h < c->what.kv_heads; h++)
            for (int64_t j = 0; j < keys_of(c, b); j++) {
                if (!of_scales)
                    draw_row(p->type, dim, c->what.numbers, &random, row);
                for (int64_t i = 0; i < dim && of_scales; i++)
                    floats[i] = draw_scale(c->what.numbers, &random);
                put(p, row, b, h, j);
            }
}

/* --- Tensors ---------------------------------------------------------------------------------- */

static void store_plane(struct golden_call *c, attnkit_tensor *t, struct plane *p)
{
    const struct golden_attention *const what = &c->what;
    const int64_t outer = what->page_size ? c->groups.pages.pages : entries_of(c);
    const int64_t bytes = outer * what->kv_heads * room_of(p) * p->row_bytes;
    p->first = golden_take(c, bytes);
    memset(p->first, 0xff, (size_t)bytes); /* a row without a key, or its scale, stays NaN */
    t->data = p->first;
    if (what->tokens) {
        t->layout |= ATTNKIT_STRIDED;
        t->strides[1] = p->row_bytes;
        t->strides[2] = p->row_bytes * what->kv_heads;
        t->strides[0] = t->strides[2] * what->kv_len;
    }
}

static void store_rows(struct golden_call *c, attnkit_tensor *t, attnkit_tensor *scales,
                       int64_t dim, int64_t group, enum golden_tensor tensor)
{
    const bool tiled = t->layout & ATTNKIT_TILED;
    struct plane rows = {.call = c,
                         .type = (enum type)t->type,
                         .row_bytes = bytes_of((enum type)t->type, dim),
                         .tiled = tiled};
    store_plane(c, t, &rows);
    fill(&rows, dim, false, golden_stream(&c->what, tensor));
    if (!has_scales((enum type)t->type))
        return;
    const int64_t count = group ? dim / group : 1;
    struct plane floats = {.call = c, .type = TYPE_F32, .row_bytes = 4 * count, .tiled = tiled};
    store_plane(c, scales, &floats);
    fill(&floats, count, true,
         golden_stream(&c->what, tensor == GOLDEN_K ? GOLDEN_K_SCALES : GOLDEN_V_SCALES));
}

/* Makes the block table. The table assigns the pages in descending order. Its entries for pages
 * without keys are -1. */
static void store_pages(struct golden_call *c)
{
    attnkit_pages *const p = &c->groups.pages;
    p->page_size = c->what.page_size;
    p->block_table_stride = (c->what.kv_len + p->page_size - 1) / p->page_size;
    p->pages = c->what.batch * p->block_table_stride;
    int32_t *const table = golden_take(c, p->pages * (int64_t)sizeof *table);
    for (int64_t i = 0; i < p->pages; i++) {
        const int64_t first = i % p->block_table_stride * p->page_size;
        const bool is_there = first < keys_of(c, i / p->block_table_stride);
        table[i] = is_there ? (int32_t)(p->pages - 1 - i) : -1;
    }
    p->block_table = table;
}

static void store_lens(struct golden_call *c)
{
    uint64_t random = golden_stream(&c->what, GOLDEN_LENS);
    int64_t *const lens = golden_take(c, c->what.batch * (int64_t)sizeof *lens);
    for (int64_t b = 0; b < c->what.batch; b++)
        lens[b] = random_below(&random, c->what.kv_len + 1);
    c->groups.visibility.kv_lens.data = lens;
}

void golden_store(struct golden_call *c)
{
    const struct golden_attention *const what = &c->what;
    attnkit_kv_storage *const storage = &c->groups.storage;
    attnkit_attention_args *const a = &c->args;
    if (what->has_lens)
        store_lens(c);
    if (what->page_size)
        store_pages(c);
    a->k.type = what->k;
    a->v.type = what->v;
    a->k.layout = what->tiled ? ATTNKIT_TILED : 0;
    storage->k_scale_group = what->k_group;
    storage->v_scale_group = what->v_group;
    store_rows(c, &a->k, &storage->k_scales, what->head_dim, what->k_group, GOLDEN_K);
    store_rows(c, &a->v, &storage->v_scales, what->value_dim, what->v_group, GOLDEN_V);
}
