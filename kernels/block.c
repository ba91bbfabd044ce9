/* SPDX-License-Identifier: Apache-2.0
 *
 * From stored rows to rows that tiles take. For prefill bound by memory: each element is read once,
 * and written to scratch that stays in the second cache. For decode a few cycles a row.
 */
#include "block.h"

#include "keys.h"

bool attnkit_needs_wide(const struct attention *a)
{
    return a->q_type != TYPE_F32 || a->k.type != TYPE_F32 || a->v.type != TYPE_F32 ||
           a->out_type != TYPE_F32 || a->k.tiled || a->pages.table;
}

int64_t attnkit_wide_floats(const struct attention *a)
{
    return attnkit_needs_wide(a) ? KEY_BLOCK * (a->head_dim + a->value_dim) : 0;
}

struct wide attnkit_take_wide(const struct attention *a, float *scratch)
{
    if (!attnkit_needs_wide(a))
        return (struct wide){NULL, NULL};
    return (struct wide){scratch, scratch + KEY_BLOCK * a->head_dim};
}

static bool is_at_one_stride(const struct attention *a, const struct cache *c, int64_t first,
                             int keys)
{
    return c->type == TYPE_F32 && !c->tiled &&
           (!a->pages.table || first / a->pages.size == (first + keys - 1) / a->pages.size);
}

/* Tiles as a whole: the keys end with a tile or the block, and a block has whole tiles. */
static struct rows widen(const struct attention *a, const struct kernels *kernels,
                         const struct cache *c, int64_t batch, int64_t kv_head, int64_t first,
                         int keys, float *wide)
{
    const int step = c->tiled ? TILE_KEYS : 1;
    for (int i = 0; i < keys; i += step) {
        const struct key_row row = key_row(a, c, batch, kv_head, first + i);
        (c->tiled ? kernels->widen_tile : kernels->widen)(
            c->type, row.data, row.scales, c->scale_group, c->dim, wide + i * c->dim);
    }
    return (struct rows){(const char *)wide, c->dim * (int64_t)sizeof *wide, c->dim};
}

static struct rows in_place(const struct attention *a, const struct cache *c, int64_t batch,
                            int64_t kv_head, int64_t first)
{
    return (struct rows){key_row(a, c, batch, kv_head, first).data, c->stride.row, c->dim};
}

struct block attnkit_block(const struct attention *a, const struct kernels *kernels, int64_t batch,
                           int64_t kv_head, int64_t first, int keys, struct wide wide)
{
    const bool k_in_place = is_at_one_stride(a, &a->k, first, keys);
    const bool v_in_place = is_at_one_stride(a, &a->v, first, keys);
    return (struct block){
        .k = k_in_place ? in_place(a, &a->k, batch, kv_head, first)
                        : widen(a, kernels, &a->k, batch, kv_head, first, keys, wide.k),
        .v = v_in_place ? in_place(a, &a->v, batch, kv_head, first)
                        : widen(a, kernels, &a->v, batch, kv_head, first, keys, wide.v),
        .in_place = k_in_place && v_in_place,
    };
}

/* Whether a decode tile can read the rows as they are. */
static bool is_readable(const struct cache *c)
{
    return c->type != TYPE_I8 || c->tiled || c->scale_group % MAX_VECTOR == 0 ||
           c->scale_group == c->dim;
}

static int64_t unreadable_floats(const struct cache *c)
{
    return is_readable(c) ? 0 : KEY_BLOCK * c->dim;
}

int64_t attnkit_row_floats(const struct attention *a)
{
    return unreadable_floats(&a->k) + unreadable_floats(&a->v);
}

struct wide attnkit_take_row_floats(const struct attention *a, float *scratch)
{
    return (struct wide){scratch, scratch + unreadable_floats(&a->k)};
}

static struct key_row row_after(struct key_row row, ptrdiff_t bytes, ptrdiff_t scale_bytes)
{
    return (struct key_row){
        row.data + bytes, row.scales ? row.scales + scale_bytes / (ptrdiff_t)sizeof(float) : NULL};
}

/* `count` rows, of which `row` is the first, so many bytes apart. In numbers and without a
 * condition, so that both addresses of a row are one vector: there are two rows for every few
 * hundred cycles. */
static void fill_rows(struct key_row row, ptrdiff_t bytes, ptrdiff_t scale_bytes, int count,
                      struct key_row *rows)
{
    const uintptr_t step = (uintptr_t)bytes, scale_step = row.scales ? (uintptr_t)scale_bytes : 0;
    uintptr_t data = (uintptr_t)row.data, scales = (uintptr_t)row.scales;
    for (int i = 0; i < count; i++, data += step, scales += scale_step)
        rows[i] = (struct key_row){(const char *)data, (const float *)scales};
}

/* The sixteenths of tiles. */
static void fill_tiles(const struct cache *c, struct key_row first, int count, struct key_row *rows)
{
    const ptrdiff_t bytes = bytes_of(c->type, c->dim),
                    scale_bytes = c->dim / c->scale_group * (ptrdiff_t)sizeof(float);
    for (int i = 0; i < count; i += TILE_KEYS) {
        const int tile = i / TILE_KEYS;
        fill_rows(row_after(first, tile * c->stride.row, tile * c->scale_stride.row), bytes,
                  scale_bytes, TILE_KEYS, rows + i);
    }
}

/* The addresses of `count` rows from key `first` on: page after page, because finding a page takes
 * a division, and within it in steps. */
static void point_in_place(const struct attention *a, const struct cache *c, int64_t batch,
                           int64_t kv_head, int64_t first, int count, struct key_row *rows)
{
    for (int i = 0; i < count;) {
        const int64_t left_in_page =
            a->pages.table ? a->pages.size - (first + i) % a->pages.size : count;
        const int end = left_in_page < count - i ? i + (int)left_in_page : count;
        const struct key_row row = key_row(a, c, batch, kv_head, first + i);
        if (c->tiled)
            fill_tiles(c, row, end - i, rows + i);
        else
            fill_rows(row, c->stride.row, c->scale_stride.row, end - i, rows + i);
        i = end;
    }
}

static void repeat_last(struct key_row *rows, int count)
{
    for (int i = count; i % MAX_VECTOR != 0; i++)
        rows[i] = rows[count - 1];
}

/* Tiles are read as a whole. */
static int whole_tiles(const struct cache *c, int keys)
{
    return c->tiled ? (keys + TILE_KEYS - 1) / TILE_KEYS * TILE_KEYS : keys;
}

static int keys_of_block(struct key_range keys)
{
    return keys.end - keys.first < KEY_BLOCK ? (int)(keys.end - keys.first) : KEY_BLOCK;
}

static struct key_rows describe(const struct cache *c, const struct key_row *rows)
{
    return (struct key_rows){is_readable(c) ? c->type : TYPE_F32, c->tiled, c->dim, c->scale_group,
                             rows};
}

/* K or V of a block, and no rows after it. */
static struct key_rows point(const struct attention *a, const struct kernels *kernels,
                             const struct cache *c, struct key_range keys, struct key_row *rows,
                             float *wide)
{
    const int count = whole_tiles(c, keys_of_block(keys));
    if (is_readable(c)) {
        point_in_place(a, c, keys.batch, keys.kv_head, keys.first, count, rows);
    } else {
        widen(a, kernels, c, keys.batch, keys.kv_head, keys.first, count, wide);
        for (int i = 0; i < count; i++)
            rows[i] = (struct key_row){(const char *)(wide + i * c->dim), NULL};
    }
    repeat_last(rows, count);
    return describe(c, rows);
}

static bool is_same(struct key_range a, struct key_range b)
{
    return a.batch == b.batch && a.kv_head == b.kv_head && a.first == b.first && a.end == b.end;
}

void attnkit_point_to_rows(const struct attention *a, const struct kernels *kernels,
                           struct key_range keys, struct key_range next, struct row_room *room,
                           struct decode_block *block)
{
    if (is_same(room->known, keys))
        block->k = describe(&a->k, room->k[room->next]);
    else
        block->k = point(a, kernels, &a->k, keys, room->k[room->next], room->wide.k);
    block->v = point(a, kernels, &a->v, keys, room->v, room->wide.v);
    room->next = !room->next;
    room->known = (struct key_range){0};
    block->next_k = room->k[room->next];
    block->next_keys = 0;
    if (!block->far || next.first == next.end || !is_readable(&a->k))
        return;
    point(a, kernels, &a->k, next, room->k[room->next], NULL);
    block->next_keys = whole_tiles(&a->k, keys_of_block(next));
    room->known = next;
}
