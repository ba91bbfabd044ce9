/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden cases of appends, with all types that an append can read and write. The cache is
 * head-major or token-major, or has tiles, pages or tiles in pages. The appended rows are rotated
 * by tables, rotated by angles, or not rotated. Other cases rotate rows in place. The hash covers
 * the bytes of each appended row, in the order of its elements, and the scales of the row.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attnkit.h"
#include "kernels/scalar/scalar.h"
#include "tests/promises/golden/hash.h"
#include "tests/promises/golden/kind.h"
#include "tests/support/formats.h"
#include "tests/support/memory.h"

enum {
    SRC_TYPES = 3,
    DST_TYPES = 5,
    ROPES = 3,
    PLACES = 5, /* number of values of enum place */
    BATCH = 3,
    MOST_DIM = 256,
    MOST_PAGES = 160,
};

static const uint64_t SEED = 12, IN_PLACE_SEED = 13, BLOCK_SEED = 20;

enum place { ROWS, TILES, PAGES, TILES_IN_PAGES, HEADS_INSIDE };

struct append {
    uint64_t seed;
    attnkit_type src, dst;
    attnkit_rope rope;
    enum place place;
    bool in_place, by_angles, has_lens, is_usual;
    int64_t batch, heads, len, dim, capacity, group, rope_dim, page_size;
    int64_t starts[BATCH], lens[BATCH], positions[BATCH];
    double base;
};

static void draw_dim(struct append *a, uint64_t *random)
{
    static const int64_t even[] = {2, 6, 8, 16, 30, 34, 64, 66, 96, 128, 130, 256};
    static const int64_t any[] = {1, 3, 7, 15, 17, 31, 33, 63, 65, 129};
    const bool is_even = a->rope || golden_one_in(random, 2);
    a->dim = is_even ? even[random_below(random, 12)] : any[random_below(random, 10)];
    if (block_elements((enum type)a->dst) > 1)
        a->dim = 32 * (1 + random_below(random, 5));
    if (a->rope && golden_one_in(random, 2))
        a->rope_dim = 2 * (1 + random_below(random, a->dim / 2));
    const int64_t parts = 1 + random_below(random, 4);
    if (a->dst == ATTNKIT_I8 && a->dim % parts == 0)
        a->group = a->dim / parts;
}

static void draw_rows(struct append *a, uint64_t *random)
{
    a->batch = 1 + random_below(random, BATCH);
    a->heads = 1 + random_below(random, 3);
    a->len = 1 + random_below(random, 7);
    a->capacity = a->in_place ? a->len : a->len + random_below(random, 40);
    a->has_lens = golden_one_in(random, 2);
    for (int b = 0; b < BATCH; b++) {
        a->lens[b] = random_below(random, a->len + 1);
        a->starts[b] = a->in_place ? 0 : random_below(random, a->capacity - a->len + 1);
        a->positions[b] = random_below(random, golden_one_in(random, 2) ? 64 : 131072);
    }
}

static void draw_angles(struct append *a, uint64_t *random)
{
    static const double bases[] = {0.0, 10000.0, 500000.0, 1.0, 1e300};
    a->by_angles = golden_one_in(random, 2);
    a->base = bases[random_below(random, 5)];
}

static struct append draw_append(const struct golden_kind *kind, int number)
{
    static const int64_t pages[] = {1, 3, 16}, pages_of_tiles[] = {16, 32, 48};
    struct append a = {.in_place = strcmp(kind->name, "rotate") == 0};
    uint64_t random = golden_random(a.in_place ? IN_PLACE_SEED : SEED, number);
    a.seed = random_bits(&random);
    a.src = (attnkit_type)(number % SRC_TYPES);
    a.dst = a.in_place ? a.src : (attnkit_type)(number / SRC_TYPES % DST_TYPES);
    a.rope = (attnkit_rope)(a.in_place ? 1 + number / SRC_TYPES % 2
                                       : number / SRC_TYPES / DST_TYPES % ROPES);
    a.place = a.in_place ? ROWS : (enum place)(random_below(&random, PLACES));
    a.is_usual = !golden_one_in(&random, 4);
    if (a.place == PAGES)
        a.page_size = pages[random_below(&random, 3)];
    if (a.place == TILES_IN_PAGES)
        a.page_size = pages_of_tiles[random_below(&random, 3)];
    draw_dim(&a, &random);
    draw_rows(&a, &random);
    draw_angles(&a, &random);
    return a;
}

/* Draws an append to Q4_0 or Q5_0. Rows of these types cannot lie in tiles. */
static struct append draw_block_append(int number)
{
    static const enum place places[] = {ROWS, PAGES, HEADS_INSIDE};
    static const int64_t pages[] = {1, 3, 16};
    uint64_t random = golden_random(BLOCK_SEED, number);
    struct append a = {.seed = random_bits(&random),
                       .src = (attnkit_type)(number % SRC_TYPES),
                       .dst = number / SRC_TYPES % 2 ? ATTNKIT_Q5_0 : ATTNKIT_Q4_0,
                       .rope = (attnkit_rope)(number / SRC_TYPES / 2 % ROPES),
                       .place = places[random_below(&random, 3)],
                       .is_usual = !golden_one_in(&random, 4)};
    if (a.place == PAGES)
        a.page_size = pages[random_below(&random, 3)];
    draw_dim(&a, &random);
    draw_rows(&a, &random);
    draw_angles(&a, &random);
    return a;
}

static struct append draw_case(const struct golden_kind *kind, int number)
{
    const bool has_blocks = strcmp(kind->name, "append-blocks") == 0;
    return has_blocks ? draw_block_append(number) : draw_append(kind, number);
}

/* --- Memory ----------------------------------------------------------------------------------- */

struct memory {
    struct guarded src, dst, scales;
    int32_t table[MOST_PAGES];
    float *cos, *sin;
};

static bool is_tiled(const struct append *a)
{
    return a->place == TILES || a->place == TILES_IN_PAGES;
}

static int64_t bytes_in_row(const struct append *a, bool of_scales)
{
    const int64_t scales = a->group ? a->dim / a->group : 1;
    return of_scales ? 4 * scales : bytes_of((enum type)a->dst, a->dim);
}

static int64_t pages_each(const struct append *a)
{
    return (a->capacity + a->page_size - 1) / a->page_size;
}

/* Returns the number of rows for which a head has memory, in the cache or in a page. In tiles, this
 * number is rounded up to whole tiles. */
static int64_t room_of(const struct append *a)
{
    const int64_t rows = a->page_size ? a->page_size : a->capacity;
    return is_tiled(a) ? (rows + ATTNKIT_TILE_KEYS - 1) / ATTNKIT_TILE_KEYS * ATTNKIT_TILE_KEYS
                       : rows;
}

static int64_t outers_of(const struct append *a)
{
    return a->page_size ? a->batch * pages_each(a) : a->batch;
}

/* Draws the rows to append. If a->is_usual is false, every second row has numbers of all kinds,
 * such as NaN and subnormals. */
static void fill_src(const struct append *a, char *src, uint64_t *random)
{
    const int64_t count = a->batch * a->heads * a->len * a->dim;
    const int64_t element = bytes_of((enum type)a->src, 1);
    for (int64_t i = 0; i < count; i++) {
        const bool is_usual = a->is_usual || i / a->dim % 2;
        const float x = is_usual ? random_normal(random) : random_number(random);
        attnkit_scalar_narrow((enum type)a->src, &x, 1, 1, src + i * element, NULL);
    }
}

static int64_t table_positions(const struct append *a)
{
    int64_t most = 0;
    for (int b = 0; b < BATCH; b++)
        most = a->positions[b] % 64 + a->len > most ? a->positions[b] % 64 + a->len : most;
    return most;
}

static float *take_table(const struct append *a, uint64_t *random)
{
    const int64_t count = table_positions(a) * ((a->rope_dim ? a->rope_dim : a->dim) / 2);
    float *const x = malloc((size_t)count * sizeof *x + 1);
    for (int64_t i = 0; i < count; i++)
        x[i] = a->is_usual ? random_uniform(random) : random_number(random);
    return x;
}

static void take_memory(const struct append *a, struct memory *m)
{
    uint64_t random = a->seed;
    const size_t rows = (size_t)(outers_of(a) * a->heads * room_of(a));
    const int64_t elements = a->batch * a->heads * a->len * a->dim;
    *m = (struct memory){
        .src = memory_guarded((size_t)bytes_of((enum type)a->src, 1) * (size_t)elements, 0, true)};
    m->dst = memory_guarded(rows * (size_t)bytes_in_row(a, false), 0, true);
    m->scales = memory_guarded(rows * (size_t)bytes_in_row(a, true), 0, true);
    fill_src(a, m->src.data, &random);
    for (int64_t i = 0; a->page_size && i < outers_of(a); i++)
        m->table[i] = (int32_t)(outers_of(a) - 1 - i);
    if (a->rope && !a->by_angles) {
        m->cos = take_table(a, &random);
        m->sin = take_table(a, &random);
    }
}

static void free_memory(struct memory *m)
{
    memory_unguard(&m->src);
    memory_unguard(&m->dst);
    memory_unguard(&m->scales);
    free(m->cos);
    free(m->sin);
}

/* --- The call --------------------------------------------------------------------------------- */

static attnkit_tensor tensor_of(const struct append *a, const struct guarded *memory,
                                bool of_scales)
{
    attnkit_tensor t = {.data = memory->data,
                        .type = of_scales ? ATTNKIT_F32 : a->dst,
                        .layout = is_tiled(a) && !of_scales ? ATTNKIT_TILED : 0};
    if (a->place == HEADS_INSIDE) {
        t.layout |= ATTNKIT_STRIDED;
        t.strides[1] = bytes_in_row(a, of_scales);
        t.strides[2] = t.strides[1] * a->heads;
        t.strides[0] = t.strides[2] * a->capacity;
    }
    return t;
}

static void run(const attnkit_append_args *args, const char *isa)
{
    attnkit_exec exec = {.size = sizeof exec, .isa = isa};
    char message[ATTNKIT_MESSAGE_SIZE];
    if (attnkit_append_workspace(args, &exec, &exec.workspace_size, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    struct guarded workspace = memory_guarded(exec.workspace_size, 0, true);
    exec.workspace = workspace.data;
    if (attnkit_append(args, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    memory_unguard(&workspace);
}

static void run_append(const struct append *a, const struct memory *m, const char *isa)
{
    int64_t positions[BATCH];
    attnkit_rotation rotation = {.size = sizeof rotation,
                                 .kind = a->rope,
                                 .dim = a->rope_dim,
                                 .cos = m->cos,
                                 .sin = m->sin,
                                 .positions = {.data = positions}};
    attnkit_pages pages = {.size = sizeof pages, .page_size = a->page_size};
    attnkit_append_args args = {.size = sizeof args,
                                .batch = a->batch,
                                .heads = a->heads,
                                .len = a->len,
                                .dim = a->dim,
                                .capacity = a->capacity,
                                .src = {.data = m->src.data, .type = a->src},
                                .dst = tensor_of(a, a->in_place ? &m->src : &m->dst, false),
                                .scale_group = a->group};
    for (int b = 0; b < BATCH; b++)
        positions[b] = m->cos ? a->positions[b] % 64 : a->positions[b];
    rotation.base = m->cos ? 0.0 : a->base;
    rotation.table_positions = m->cos ? table_positions(a) : 0;
    if (a->rope)
        args.rotation = &rotation;
    if (a->dst == ATTNKIT_I8)
        args.dst_scales = tensor_of(a, &m->scales, true);
    if (!a->in_place)
        args.starts.data = a->starts;
    if (a->has_lens)
        args.lens.data = a->lens;
    if (a->page_size) {
        pages.block_table = m->table;
        pages.block_table_stride = pages_each(a);
        pages.pages = outers_of(a);
        args.pages = &pages;
    }
    run(&args, isa);
}

/* --- What an append has written --------------------------------------------------------------- */

/* Returns `hash` continued over row r of head h of entry b of the cache, in the order of the
 * elements. If of_scales is true, continues over the scales of the row instead. */
static uint64_t hash_row(uint64_t hash, const struct append *a, const struct memory *m,
                         bool of_scales, int64_t b, int64_t h, int64_t r)
{
    const struct guarded *const memory = of_scales ? &m->scales : a->in_place ? &m->src : &m->dst;
    const int64_t bytes = bytes_in_row(a, of_scales), in_tile = r % ATTNKIT_TILE_KEYS;
    int64_t outer = b, row = r;
    if (a->page_size) {
        outer = m->table[b * pages_each(a) + r / a->page_size];
        row = r % a->page_size;
    }
    int64_t at = (outer * a->heads + h) * room_of(a) + row;
    if (a->place == HEADS_INSIDE)
        at = (b * a->capacity + r) * a->heads + h;
    if (!is_tiled(a))
        return hash_bytes(hash, memory->data + at * bytes, (size_t)bytes);
    const char *const tile = memory->data + (at - in_tile) * bytes;
    const enum type type = of_scales ? TYPE_F32 : (enum type)a->dst;
    for (int64_t n = 0; n < bytes; n++)
        hash = hash_bytes(hash, tile + byte_in_tile(type, n, in_tile), 1);
    return hash;
}

static uint64_t hash_of(const struct golden_kind *kind, int number, int way, const char *isa)
{
    (void)way;
    const struct append a = draw_case(kind, number);
    struct memory m;
    take_memory(&a, &m);
    run_append(&a, &m, isa ? isa : "scalar");
    uint64_t hash = HASH_BEGIN;
    for (int64_t b = 0; b < a.batch; b++)
        for (int64_t h = 0; h < a.heads; h++)
            for (int64_t i = 0; i < (a.has_lens ? a.lens[b] : a.len); i++) {
                hash = hash_row(hash, &a, &m, false, b, h, a.starts[b] + i);
                if (a.dst == ATTNKIT_I8)
                    hash = hash_row(hash, &a, &m, true, b, h, a.starts[b] + i);
            }
    free_memory(&m);
    return hash;
}

static void print(const struct golden_kind *kind, int number)
{
    const struct append a = draw_case(kind, number);
    printf("# B%d H%d, %d rows of %d in %d, types %d %d, groups of %d, place %d, page %d%s%s\n",
           (int)a.batch, (int)a.heads, (int)a.len, (int)a.dim, (int)a.capacity, a.src, a.dst,
           (int)a.group, a.place, (int)a.page_size, a.has_lens ? ", lens" : "",
           a.in_place ? ", in place" : "");
    printf("# rotation %d of %d, %s, base %g\n", a.rope, (int)a.rope_dim,
           a.by_angles ? "angles" : "tables", a.base);
}

static const struct golden_kind kinds[] = {
    {"append", 600, 1, hash_of, print, NULL},
    {"rotate", 90, 1, hash_of, print, NULL},
    {"append-blocks", 108, 1, hash_of, print, NULL},
};

const struct golden_kinds golden_append = {kinds, sizeof kinds / sizeof kinds[0]};
