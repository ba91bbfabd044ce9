/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on tiled K. The same keys, appended as rows and as tiles, give the bits of the scalar
 * reference. The number of a case decides types, scale groups, dims, lengths, pages, strides and
 * threads. A case runs over all keys at once. If the tiles of a case can be cut between two chunks,
 * the case also runs over the keys in two parts. Tiles are NaN past the last key, and lie next to
 * unmapped pages.
 *
 * Usage: tiled [ISA [CASE]]. With ATTNKIT_TEST_LONG in the environment, the test runs ten times as
 * many cases.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/cpu/isa.h"
#include "attnkit.h"
#include "tests/cases/case.h"
#include "tests/support/memory.h"
#include "tests/support/random.h"
#include "tests/support/sample.h"
#include "tests/support/units.h"

enum {
    TYPES = 5,
    CASES = 36 * TYPES,
    MAX_ISAS = 8,
    MAX_BATCH = 3,
    MAX_KV_LEN = 1500,
    MAX_TABLE = MAX_BATCH * (MAX_KV_LEN / ATTNKIT_TILE_KEYS + 2),
    NOT_WRITTEN = 0xff, /* a byte that makes NaN in every type that has NaN */
};

static struct {
    const char *isa[MAX_ISAS];
    int isas;
    int only; /* the only case, or -1 for all */
} options = {.only = -1};

/* --- A case ----------------------------------------------------------------------------------- */

/* The tensors of K, V and their scales. Each has its own memory. K is stored twice, in rows and in
 * tiles. */
enum tensor_index { K_ROWS, K_ROW_SCALES, K_TILES, K_TILE_SCALES, V, V_SCALES, TENSORS };

enum spacing { DENSE_WITHOUT_STRIDES, GAPS, HEADS_INSIDE, SPACINGS };

struct placed {
    struct guarded memory;
    int64_t count[3], strides[3];
    int64_t bytes; /* bytes of a row or tile, or 0 if the case lacks the tensor */
};

struct drawn {
    uint64_t random;
    attnkit_attention_args args; /* without the fields that depend on how K is stored */
    struct groups groups;
    int64_t kv_lens[MAX_BATCH], q_offsets[MAX_BATCH];
    int32_t block_table[MAX_TABLE];
    enum spacing spacing;
    int threads;
    struct placed tensors[TENSORS];
    struct result result;
};

static int64_t below(struct drawn *c, int64_t n)
{
    return random_below(&c->random, n);
}

static bool is_tiled(enum tensor_index t)
{
    return t == K_TILES || t == K_TILE_SCALES;
}

static int64_t keys_of(const struct drawn *c, int64_t b)
{
    return c->groups.visibility.kv_lens.data ? c->kv_lens[b] : c->args.kv_len;
}

/* --- Drawing a case --------------------------------------------------------------------------- */

/* Draws a dim. Sets *group to the number of elements that share a scale. Leaves *group 0 if the
 * whole row shares a scale, or if the type has no separate scales. */
static int64_t draw_dim(struct drawn *c, attnkit_type type, int64_t *group)
{
    static const int64_t groups[] = {1, 3, 8, 16, 20, 32, 64};
    static const int64_t dims[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 65, 80, 127, 128, 129};
    if (type == ATTNKIT_Q8_0)
        return 32 * (1 + below(c, 4));
    if (type == ATTNKIT_I8 && below(c, 3) > 0) {
        *group = groups[below(c, 7)];
        return *group * (1 + below(c, 140 / *group));
    }
    return dims[below(c, 16)];
}

/* Returns the approximate cost of a call in multiply-adds of the reference. */
static double cost(const attnkit_attention_args *a)
{
    return (double)(a->batch * a->q_heads * a->q_len) * (double)a->kv_len *
           (double)(a->head_dim + a->value_dim + 16);
}

/* Draws lengths, from a decoding step to a prefill of 300 query rows of each query head. */
static void draw_lengths(struct drawn *c)
{
    attnkit_attention_args *a = &c->args;
    const bool is_prefill = below(c, 6) == 0;
    do {
        a->batch = is_prefill ? 1 : 1 + below(c, MAX_BATCH);
        a->kv_heads = is_prefill ? 1 : 1 + below(c, 3);
        a->q_heads = a->kv_heads * (1 + below(c, is_prefill ? 2 : 8));
        a->q_len = is_prefill ? 300 : below(c, 2) ? 1 : 1 + below(c, 40);
        a->kv_len = below(c, below(c, 4) ? 300 : MAX_KV_LEN + 1);
    } while (cost(a) > 8e6);
}

static void draw_options(struct drawn *c)
{
    attnkit_attention_args *a = &c->args;
    for (int b = 0; b < MAX_BATCH; b++) {
        c->kv_lens[b] = below(c, a->kv_len + 1);
        c->q_offsets[b] = below(c, a->kv_len + 1) - below(c, 30);
    }
    if (below(c, 2))
        c->groups.visibility.kv_lens.data = c->kv_lens;
    if (below(c, 3) == 0)
        return;
    a->flags = ATTNKIT_CAUSAL;
    a->align = below(c, 2) ? ATTNKIT_ALIGN_OFFSETS : ATTNKIT_ALIGN_UPPER_LEFT;
    if (a->align == ATTNKIT_ALIGN_OFFSETS)
        a->q_offsets.data = c->q_offsets;
}

/* Makes a block table with the pages in descending order. Places past the keys of a batch entry
 * have no page. */
static void draw_pages(struct drawn *c)
{
    static const int64_t sizes[] = {16, 32, 48, 128, 208};
    const attnkit_attention_args *const a = &c->args;
    attnkit_pages *const p = &c->groups.pages;
    p->page_size = sizes[below(c, 5)];
    p->block_table = c->block_table;
    p->block_table_stride = (a->kv_len + p->page_size - 1) / p->page_size;
    p->pages = a->batch * p->block_table_stride;
    assert_true(p->pages <= MAX_TABLE);
    for (int64_t i = 0; i < p->pages; i++) {
        const int64_t b = i / p->block_table_stride;
        const int64_t first = i % p->block_table_stride * p->page_size;
        c->block_table[i] = first < keys_of(c, b) ? (int32_t)(p->pages - 1 - i) : -1;
    }
}

static float *draw_floats(struct drawn *c, int64_t count, bool special)
{
    static const float specials[] = {NAN, INFINITY, -INFINITY, -0.0f, 1e30f, 1e-40f};
    float *x = malloc((size_t)count * sizeof *x + 1);
    for (int64_t i = 0; i < count; i++)
        x[i] = special && below(c, 500) == 0 ? specials[below(c, 6)] : random_uniform(&c->random);
    return x;
}

/* --- K and V in memory ------------------------------------------------------------------------ */

static int64_t group_of(int64_t group, int64_t dim)
{
    return group ? group : dim;
}

/* Returns the size of a row of a tensor in bytes, or 0 if the case lacks the tensor. */
static int64_t row_bytes(const struct drawn *c, enum tensor_index t)
{
    const attnkit_attention_args *const a = &c->args;
    const attnkit_kv_storage *const storage = &c->groups.storage;
    const int64_t k_scales = a->head_dim / group_of(storage->k_scale_group, a->head_dim);
    const int64_t v_scales = a->value_dim / group_of(storage->v_scale_group, a->value_dim);
    switch (t) {
    case K_ROWS:
    case K_TILES:
        return bytes_of((enum type)a->k.type, a->head_dim);
    case V:
        return bytes_of((enum type)a->v.type, a->value_dim);
    case V_SCALES:
        return a->v.type == ATTNKIT_I8 ? v_scales * 4 : 0;
    default:
        return a->k.type == ATTNKIT_I8 ? k_scales * 4 : 0;
    }
}

/* Returns how many rows or tiles of a head are in memory. If the case has one batch entry, one KV
 * head and no pages, the memory ends after the last row or tile with a key, although the kv_len of
 * the call may be larger. */
static int64_t rows_there(const struct drawn *c, enum tensor_index t)
{
    const bool is_one = c->args.batch == 1 && c->args.kv_heads == 1 && !c->groups.pages.block_table;
    const int64_t keys = keys_of(c, 0);
    return !is_one ? c->tensors[t].count[2] : is_tiled(t) ? (keys + 15) / 16 : keys;
}

/* Returns the size in bytes of a tensor whose last head has `rows` rows or tiles. */
static size_t size_with(const struct placed *p, int64_t rows)
{
    if (p->count[0] == 0 || rows == 0 || p->bytes == 0)
        return 0;
    return (size_t)((p->count[0] - 1) * p->strides[0] + (p->count[1] - 1) * p->strides[1] +
                    (rows - 1) * p->strides[2] + p->bytes);
}

static void place(struct drawn *c, enum tensor_index t)
{
    const attnkit_attention_args *a = &c->args;
    struct placed *p = &c->tensors[t];
    const attnkit_pages *const pages = &c->groups.pages;
    const int64_t rows = pages->block_table ? pages->page_size : a->kv_len;
    const int64_t gap = c->spacing == GAPS ? 4 * (t + 1) : 0;
    const int inner = c->spacing == HEADS_INSIDE ? 1 : 2, outer = 3 - inner;
    p->count[0] = pages->block_table ? pages->pages : a->batch;
    p->count[1] = a->kv_heads;
    p->count[2] = is_tiled(t) ? (rows + 15) / 16 : rows;
    p->bytes = row_bytes(c, t) * (is_tiled(t) ? 16 : 1);
    p->strides[inner] = p->bytes + gap;
    p->strides[outer] = p->strides[inner] * p->count[inner] + gap;
    p->strides[0] = p->strides[outer] * p->count[outer] + gap;
    const size_t all = size_with(p, p->count[2]), there = size_with(p, rows_there(c, t));
    p->memory = memory_guarded(there, all - there, below(c, 3) > 0);
    memset(p->memory.data, NOT_WRITTEN, there);
}

/* Appends the rows of src to tensor `to` and, if its type is I8, their scales to `scales`. */
static void append(const struct drawn *c, enum tensor_index to, enum tensor_index scales,
                   const float *src)
{
    const attnkit_attention_args *a = &c->args;
    const attnkit_kv_storage *storage = &c->groups.storage;
    char workspace[20 * 256 + 128], message[ATTNKIT_MESSAGE_SIZE];
    attnkit_append_args append = {
        .size = sizeof append,
        .batch = a->batch,
        .heads = a->kv_heads,
        .len = a->kv_len,
        .dim = to == V ? a->value_dim : a->head_dim,
        .capacity = a->kv_len,
        .src = {.data = src},
        .dst = {.data = c->tensors[to].memory.data,
                .type = to == V ? a->v.type : a->k.type,
                .layout = is_tiled(to) ? ATTNKIT_TILED : 0},
        .scale_group = to == V ? storage->v_scale_group : storage->k_scale_group,
        .lens = c->groups.visibility.kv_lens,
        .pages = &c->groups.pages,
    };
    if (append.dst.type == ATTNKIT_I8)
        append.dst_scales.data = c->tensors[scales].memory.data;
    if (c->spacing != DENSE_WITHOUT_STRIDES) {
        append.src.layout = append.dst_scales.layout = ATTNKIT_STRIDED;
        append.dst.layout |= ATTNKIT_STRIDED;
        append.src.strides[2] = append.dim * 4;
        append.src.strides[1] = append.src.strides[2] * a->kv_len;
        append.src.strides[0] = append.src.strides[1] * a->kv_heads;
        memcpy(append.dst.strides, c->tensors[to].strides, sizeof append.dst.strides);
        memcpy(append.dst_scales.strides, c->tensors[scales].strides,
               sizeof append.dst_scales.strides);
    }
    const attnkit_exec exec = {
        .size = sizeof exec, .workspace = workspace, .workspace_size = sizeof workspace};
    if (attnkit_append(&append, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
}

static void fill(struct drawn *c)
{
    const attnkit_attention_args *a = &c->args;
    const int64_t rows = a->batch * a->kv_heads * a->kv_len;
    const bool special = below(c, 3) == 0;
    float *k = draw_floats(c, rows * a->head_dim, special);
    float *v = draw_floats(c, rows * a->value_dim, special);
    append(c, K_ROWS, K_ROW_SCALES, k);
    append(c, K_TILES, K_TILE_SCALES, k);
    append(c, V, V_SCALES, v);
    free(k);
    free(v);
}

static struct drawn *new_case(int number)
{
    struct drawn *c = calloc(1, sizeof *c);
    attnkit_attention_args *a = &c->args;
    c->random = (uint64_t)number;
    a->size = sizeof *a;
    groups_init(&c->groups);
    a->k.type = number % TYPES;
    a->v.type =
        number / TYPES % (TYPES + 1) %
        TYPES; /* a third of the cases have V of type 0, binary32, which prefill need not convert */
    a->head_dim = draw_dim(c, a->k.type, &c->groups.storage.k_scale_group);
    a->value_dim = draw_dim(c, a->v.type, &c->groups.storage.v_scale_group);
    draw_lengths(c);
    draw_options(c);
    c->threads = 1 + (int)below(c, 5);
    c->spacing = (enum spacing)below(c, SPACINGS);
    if (below(c, 2))
        draw_pages(c);
    for (int t = 0; t < TENSORS; t++)
        place(c, (enum tensor_index)t);
    fill(c);
    c->result = result_new(a);
    a->q.data = draw_floats(c, a->batch * a->q_heads * a->q_len * a->head_dim, below(c, 5) == 0);
    a->v.data = c->tensors[V].memory.data;
    a->out.data = c->result.out;
    a->lse.data = c->result.lse;
    return c;
}

static void free_case(struct drawn *c)
{
    for (int t = 0; t < TENSORS; t++)
        memory_unguard(&c->tensors[t].memory);
    free((void *)(uintptr_t)c->args.q.data);
    result_free(&c->result);
    free(c);
}

/* --- Calls on the tensors of a case ----------------------------------------------------------- */

/* A call with its own groups of options. */
struct request {
    attnkit_attention_args args;
    struct groups groups;
};

static void set_dense_strides(attnkit_tensor *t, const attnkit_attention_args *a, int64_t bytes)
{
    t->layout = ATTNKIT_STRIDED;
    t->strides[2] = bytes;
    t->strides[1] = bytes * a->q_len;
    t->strides[0] = bytes * a->q_len * a->q_heads;
}

static void set_strides(attnkit_tensor *t, const struct placed *placed)
{
    t->layout |= ATTNKIT_STRIDED;
    memcpy(t->strides, placed->strides, sizeof t->strides);
}

/* Sets r to the case's call on tensor `k`, which stores K in rows or in tiles. */
static void call_on(const struct drawn *c, enum tensor_index k, struct request *r)
{
    const struct placed *t = c->tensors;
    const enum tensor_index scales = is_tiled(k) ? K_TILE_SCALES : K_ROW_SCALES;
    attnkit_attention_args *const a = &r->args;
    attnkit_kv_storage *const storage = &r->groups.storage;
    *a = c->args;
    r->groups = c->groups;
    groups_hang(a, &r->groups);
    a->k.data = t[k].memory.data;
    a->k.layout = is_tiled(k) ? ATTNKIT_TILED : 0;
    if (a->k.type == ATTNKIT_I8)
        storage->k_scales.data = t[scales].memory.data;
    if (a->v.type == ATTNKIT_I8)
        storage->v_scales.data = t[V_SCALES].memory.data;
    if (c->spacing == DENSE_WITHOUT_STRIDES)
        return;
    set_dense_strides(&a->q, a, 4 * a->head_dim);
    set_dense_strides(&a->out, a, 4 * a->value_dim);
    set_dense_strides(&a->lse, a, 4);
    set_strides(&a->k, &t[k]);
    set_strides(&a->v, &t[V]);
    set_strides(&storage->k_scales, &t[scales]);
    set_strides(&storage->v_scales, &t[V_SCALES]);
}

static void backwards(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    while (n-- > 0)
        task(arg, n);
}

static void attend(const attnkit_attention_args *args, const char *isa, int threads)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {
        .size = sizeof exec, .isa = isa, .threads = threads, .parallel_for = backwards};
    assert_int_equal(attnkit_attention_workspace(args, &exec, &exec.workspace_size, NULL),
                     ATTNKIT_OK);
    exec.workspace = malloc(exec.workspace_size + 1);
    if (attnkit_attention(args, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    free(exec.workspace);
}

static void skip_rows(attnkit_tensor *t, int64_t rows)
{
    if (t->data)
        t->data = (const char *)t->data + rows * t->strides[2];
}

/* Removes all keys before key `first` from a call. The call must have strides or pages. `first`
 * must be the first key of a chunk, and of a page if there are pages. */
static void skip_keys(const struct drawn *c, int64_t first, struct request *r,
                      int64_t kv_lens[MAX_BATCH])
{
    attnkit_attention_args *const a = &r->args;
    attnkit_pages *const pages = &r->groups.pages;
    r->groups.states.first_key = first;
    a->kv_len -= first;
    for (int64_t b = 0; b < a->batch; b++)
        kv_lens[b] = keys_of(c, b) > first ? keys_of(c, b) - first : 0;
    r->groups.visibility.kv_lens.data = kv_lens;
    if (pages->block_table) {
        pages->block_table += first / pages->page_size;
        return;
    }
    const int64_t step = first / (a->k.layout & ATTNKIT_TILED ? ATTNKIT_TILE_KEYS : 1);
    skip_rows(&a->k, step);
    skip_rows(&a->v, first);
    skip_rows(&r->groups.storage.k_scales, step);
    skip_rows(&r->groups.storage.v_scales, first);
}

static bool can_be_cut(const struct drawn *c, int64_t at)
{
    return c->spacing != DENSE_WITHOUT_STRIDES && c->args.kv_len >= at &&
           (!c->groups.pages.block_table || at % c->groups.pages.page_size == 0);
}

/* Makes a call over the first `at` keys that writes a state, and a call over the other keys that
 * continues from the state. */
static void attend_in_parts(const struct drawn *c, enum tensor_index k, const char *isa, int64_t at)
{
    const size_t rows = c->result.lse_count;
    const attnkit_state state = {malloc(rows * sizeof(float)), malloc(rows * sizeof(double)),
                                 malloc(rows * (size_t)c->args.value_dim * sizeof(double))};
    int64_t kv_lens[MAX_BATCH];
    struct request first, second;
    call_on(c, k, &first);
    call_on(c, k, &second);
    for (int64_t b = 0; b < c->args.batch; b++)
        kv_lens[b] = keys_of(c, b) < at ? keys_of(c, b) : at;
    first.args.kv_len = at;
    first.groups.visibility.kv_lens.data = kv_lens;
    first.args.out.data = NULL;
    first.args.lse.data = NULL;
    first.groups.states.state_out = state;
    attend(&first.args, isa, c->threads);
    skip_keys(c, at, &second, kv_lens);
    second.groups.states.state_in = state;
    attend(&second.args, isa, c->threads);
    free(state.max);
    free(state.sum);
    free(state.out);
}

/* --- Tests ------------------------------------------------------------------------------------ */

static bool same_results(const struct result *a, const struct result *b)
{
    return same_bits(a->out, b->out, a->out_count) && same_bits(a->lse, b->lse, a->lse_count);
}

static void forget(struct result *r)
{
    memset(r->out, NOT_WRITTEN, r->out_count * sizeof *r->out);
    memset(r->lse, NOT_WRITTEN, r->lse_count * sizeof *r->lse);
}

/* Compares the case's result with the expected result. Returns 1 if they differ, else 0. Overwrites
 * the case's result. */
static int compare(struct drawn *c, int number, const struct result *expected, const char *what,
                   const char *isa)
{
    const attnkit_attention_args *a = &c->args;
    const bool same = same_results(expected, &c->result);
    if (!same) {
        printf("# %s: %s differs: types %d %d, D %d/%d, groups %d %d, heads %d/%d, B %d, Lq %d, "
               "Lkv %d, pages of %d, spacing %d, threads %d; again: tiled %s %d\n",
               isa, what, (int)a->k.type, (int)a->v.type, (int)a->head_dim, (int)a->value_dim,
               (int)c->groups.storage.k_scale_group, (int)c->groups.storage.v_scale_group,
               (int)a->q_heads, (int)a->kv_heads, (int)a->batch, (int)a->q_len, (int)a->kv_len,
               (int)c->groups.pages.page_size, (int)c->spacing, c->threads, isa, number);
        result_print_difference(expected, &c->result);
    }
    forget(&c->result);
    return !same;
}

static int check_isa(struct drawn *c, int number, const struct result *expected, const char *isa)
{
    struct request rows, tiles;
    call_on(c, K_ROWS, &rows);
    call_on(c, K_TILES, &tiles);
    attend(&rows.args, isa, c->threads);
    int differing = compare(c, number, expected, "K in rows", isa);
    attend(&tiles.args, isa, c->threads);
    differing += compare(c, number, expected, "K in tiles", isa);
    const int64_t at = ATTNKIT_CHUNK_KEYS * (1 + number % 2);
    if (can_be_cut(c, at)) {
        attend_in_parts(c, K_TILES, isa, at);
        differing += compare(c, number, expected, "K in tiles, in two parts", isa);
    }
    return differing;
}

static int check_case(int number)
{
    struct drawn *c = new_case(number);
    struct request rows, tiles;
    call_on(c, K_ROWS, &rows);
    call_on(c, K_TILES, &tiles);
    struct result expected = result_new(&c->args);
    forget(&c->result);
    result_from_reference(&expected, &rows.args);
    result_from_reference(&c->result, &tiles.args);
    int differing = compare(c, number, &expected, "the reference on tiles", "scalar");
    for (int i = 0; i < options.isas; i++)
        differing += check_isa(c, number, &expected, options.isa[i]);
    result_free(&expected);
    free_case(c);
    return differing;
}

static void tiles_have_the_bits_of_rows(void **state)
{
    (void)state;
    const int count = is_long_run() ? 10 * CASES : CASES;
    int differing = 0;
    for (int i = 0; i < count; i++)
        if (options.only < 0 || options.only == i)
            differing += check_case(i);
    assert_int_equal(differing, 0);
}

/* The tiles have numbers that are easy to read: element d of key i is 100 i + d. */
static void a_tile_has_element_d_of_key_i_at_16_d_plus_i(void **state)
{
    (void)state;
    enum { KEYS = 20, DIM = 3 };
    float src[KEYS][DIM], tiles[2][DIM][ATTNKIT_TILE_KEYS];
    char workspace[256];
    for (int i = 0; i < KEYS; i++)
        for (int d = 0; d < DIM; d++)
            src[i][d] = (float)(100 * i + d);
    memset(tiles, 0, sizeof tiles);
    const attnkit_append_args args = {.size = sizeof args,
                                      .batch = 1,
                                      .heads = 1,
                                      .len = KEYS,
                                      .dim = DIM,
                                      .capacity = KEYS,
                                      .src = {.data = src},
                                      .dst = {.data = tiles, .layout = ATTNKIT_TILED}};
    const attnkit_exec exec = {
        .size = sizeof exec, .workspace = workspace, .workspace_size = sizeof workspace};
    assert_int_equal(attnkit_append(&args, &exec, NULL), ATTNKIT_OK);
    for (int i = 0; i < 2 * ATTNKIT_TILE_KEYS; i++)
        for (int d = 0; d < DIM; d++)
            assert_true(tiles[i / 16][d][i % 16] == (i < KEYS ? src[i][d] : 0.0f));
}

static void read_options(int argc, char **argv)
{
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count && options.isas < MAX_ISAS; i++)
        if (attnkit_isa_can_run(&isas[i]) && (argc < 2 || strcmp(argv[1], isas[i].name) == 0))
            options.isa[options.isas++] = isas[i].name;
    if (argc > 2)
        options.only = atoi(argv[2]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tile_has_element_d_of_key_i_at_16_d_plus_i),
        cmocka_unit_test(tiles_have_the_bits_of_rows),
    };
    expect_isa(argc, argv);
    read_options(argc, argv);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
