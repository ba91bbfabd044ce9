/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests attnkit_append. After an append, all the memory of dst and of its scales must equal the
 * result of a plain loop. The tests cover every instruction set, every type, rotation and layout,
 * rows and tiles. The cos and sin of the rotation are compared with functions of long double. The
 * result must be the same however a call is split, threaded or laid out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fenv.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/cpu/isa.h"
#include "kernels/cache/rope.h"
#include "attnkit.h"
#include "tests/support/formats.h"
#include "tests/support/memory.h"
#include "tests/support/tensor.h"
#include "tests/support/units.h"

enum {
    MAX_ISAS = 8,
    MAX_BATCH = 4,
    MAX_TABLE = 64, /* entries of the block table */
    MAX_DIM = 256,
    DRAWS = 6,    /* cases of each struct kind */
    REPORTED = 5, /* after so many differences, no further kinds are checked */
    SRC_TYPES = 3,
    DST_TYPES = 7,
    ROPES = 3,
};

static const attnkit_type dst_types[DST_TYPES] = {
    ATTNKIT_F32, ATTNKIT_F16, ATTNKIT_BF16, ATTNKIT_I8, ATTNKIT_Q8_0, ATTNKIT_Q4_0, ATTNKIT_Q5_0};

static const struct kernels *scalar;

/* --- A call and the memory of its arguments ----------------------------------------------- */

/* The same integers as 64-bit and as 32-bit numbers. A call gets one of the two arrays. */
struct numbers {
    int64_t wide[MAX_BATCH];
    int32_t narrow[MAX_BATCH];
};

struct call {
    attnkit_append_args args;
    attnkit_rotation rotation;
    attnkit_pages pages;
    struct tensor src, dst, scales;
    struct numbers starts, lens, positions;
    int32_t block_table[MAX_TABLE];
    float *cos, *sin; /* tables; or NULL */
    uint64_t random;
};

/* The fixed part of a case; everything else is drawn. */
struct kind {
    attnkit_type src_type, dst_type;
    attnkit_rope rope;
    enum layout_kind layout;
    int page_size; /* 0: not paged */
    bool tiled;
};

static int64_t pick(struct call *c, const int64_t *values, int64_t count)
{
    return values[random_below(&c->random, count)];
}

static int64_t alignment_of(attnkit_type type)
{
    return type == ATTNKIT_F32 ? 4 : type == ATTNKIT_I8 ? 1 : 2;
}

static void draw_dims(struct call *c, const struct kind *k)
{
    static const int64_t even[] = {2, 6, 8, 16, 30, 34, 64, 66, 96, 128, 130, 160, 256};
    static const int64_t any[] = {1, 3, 7, 15, 17, 31, 33, 63, 65, 127, 129, 200};
    static const int64_t blocks[] = {32, 64, 96, 128, 160, 256};
    const int64_t most = k->tiled ? 64 : MAX_DIM; /* a tile must fit between unmapped pages */
    attnkit_append_args *a = &c->args;
    const bool has_blocks = block_elements((enum type)k->dst_type) > 1;
    if (k->tiled)
        a->dim = has_blocks ? pick(c, blocks, 2) : pick(c, even, 7);
    else if (has_blocks)
        a->dim = pick(c, blocks, 6);
    else
        a->dim = k->rope || random_below(&c->random, 2) ? pick(c, even, 13) : pick(c, any, 12);
    if (k->rope && random_below(&c->random, 2)) {
        a->dim += !has_blocks && a->dim < most; /* some dims are odd */
        c->rotation.dim = 2 * (1 + random_below(&c->random, a->dim / 2));
    }
    if (k->dst_type == ATTNKIT_I8) {
        const int64_t parts = 1 + random_below(&c->random, 4);
        a->scale_group = a->dim % parts == 0 ? a->dim / parts : 0;
    }
}

static void give(struct call *c, attnkit_ints *ints, const struct numbers *numbers)
{
    const bool narrow = random_below(&c->random, 2);
    ints->data = narrow ? (const void *)numbers->narrow : numbers->wide;
    ints->type = narrow ? ATTNKIT_INT32 : ATTNKIT_INT64;
}

/* Sets a number in both arrays. memcpy is needed because gcc 12 for 64-bit ARM otherwise vectorises
 * the code and loses the 32-bit integers. */
static void set_number(struct numbers *numbers, int b, int64_t value)
{
    const int32_t narrow = (int32_t)value;
    numbers->wide[b] = value;
    memcpy(&numbers->narrow[b], &narrow, sizeof narrow);
}

static void draw_rows(struct call *c)
{
    attnkit_append_args *a = &c->args;
    a->batch = 1 + random_below(&c->random, MAX_BATCH);
    a->heads = 1 + random_below(&c->random, 3);
    a->len = 1 + random_below(&c->random, 5);
    a->capacity = a->len + random_below(&c->random, a->dst.layout & ATTNKIT_TILED ? 40 : 9);
    for (int b = 0; b < MAX_BATCH; b++) {
        set_number(&c->lens, b, random_below(&c->random, a->len + 1));
        set_number(&c->starts, b, random_below(&c->random, a->capacity - a->len + 1));
        set_number(&c->positions, b, random_below(&c->random, 3000));
    }
    if (random_below(&c->random, 2))
        give(c, &a->lens, &c->lens);
    if (random_below(&c->random, 3))
        give(c, &a->starts, &c->starts);
    if (c->rotation.kind && random_below(&c->random, 2))
        give(c, &c->rotation.positions, &c->positions);
}

static int64_t len_of(const struct call *c, int64_t b)
{
    return c->args.lens.data ? c->lens.wide[b] : c->args.len;
}

static int64_t start_of(const struct call *c, int64_t b)
{
    return c->args.starts.data ? c->starts.wide[b] : 0;
}

static int64_t position_of(const struct call *c, int64_t b)
{
    return c->rotation.positions.data ? c->positions.wide[b] : start_of(c, b);
}

/* Draws the block table. Each page occurs at most once in the table. Where no row needs a page, the
 * table holds -1 or INT32_MAX. */
static void draw_pages(struct call *c, int64_t page_size)
{
    attnkit_append_args *const a = &c->args;
    const int64_t pages_each = (a->capacity + page_size - 1) / page_size;
    const int64_t used = a->batch * pages_each;
    a->pages = &c->pages;
    c->pages = (attnkit_pages){.size = sizeof c->pages,
                               .block_table = c->block_table,
                               .block_table_stride = pages_each,
                               .page_size = page_size,
                               .pages = used + random_below(&c->random, 3)};
    assert_true(used <= MAX_TABLE);
    for (int64_t i = 0; i < used; i++)
        c->block_table[i] = (int32_t)i;
    for (int64_t i = used - 1; i > 0; i--) {
        const int64_t j = random_below(&c->random, i + 1);
        const int32_t page = c->block_table[i];
        c->block_table[i] = c->block_table[j];
        c->block_table[j] = page;
    }
    for (int64_t i = 0; i < used; i++) {
        const int64_t b = i / pages_each, first = i % pages_each * page_size;
        const int64_t start = start_of(c, b), end = start + len_of(c, b);
        if (len_of(c, b) == 0 || first >= end || first + page_size <= start)
            c->block_table[i] = random_below(&c->random, 2) ? -1 : INT32_MAX;
    }
}

static void fill_src(struct call *c)
{
    float x[MAX_DIM];
    for (int64_t b = 0; b < c->src.count[0]; b++)
        for (int64_t h = 0; h < c->src.count[1]; h++)
            for (int64_t i = 0; i < c->src.count[2]; i++) {
                const bool plain = random_below(&c->random, 2);
                for (int64_t d = 0; d < c->args.dim; d++)
                    x[d] = plain ? random_normal(&c->random) : random_number(&c->random);
                scalar->narrow((enum type)c->args.src.type, x, c->args.dim, 0,
                               tensor_row(&c->src, b, h, i), NULL);
            }
}

static int64_t rope_dim(const struct call *c)
{
    return c->rotation.dim ? c->rotation.dim : c->args.dim;
}

/* If the call has a rotation, draws the base of its angles, or tables of random cos and sin that
 * are just long enough for the positions. At positions that no row has, the tables hold NaN.
 */
static void draw_rope(struct call *c)
{
    static const double bases[] = {0.0, 10000.0, 500000.0, 1.0, 1e300};
    attnkit_rotation *const r = &c->rotation;
    const attnkit_append_args *a = &c->args;
    if (!r->kind)
        return;
    if (random_below(&c->random, 2)) {
        r->base = bases[random_below(&c->random, 5)];
        return;
    }
    for (int64_t b = 0; b < a->batch; b++) {
        const int64_t end = position_of(c, b) + len_of(c, b);
        r->table_positions = end > r->table_positions ? end : r->table_positions;
    }
    const int64_t pairs = rope_dim(c) / 2;
    const size_t bytes = (size_t)(r->table_positions * pairs) * sizeof *c->cos;
    c->cos = memset(malloc(bytes + 1), 0xff, bytes);
    c->sin = memset(malloc(bytes + 1), 0xff, bytes);
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t i = 0; i < len_of(c, b) * pairs; i++) {
            c->cos[position_of(c, b) * pairs + i] = random_number(&c->random);
            c->sin[position_of(c, b) * pairs + i] = random_number(&c->random);
        }
    r->cos = c->cos;
    r->sin = c->sin;
}

static void set_strided(attnkit_tensor *t, const int64_t strides[3])
{
    t->layout |= ATTNKIT_STRIDED;
    memcpy(t->strides, strides, sizeof t->strides);
}

static void place_tensors(struct call *c, const struct kind *k)
{
    attnkit_append_args *a = &c->args;
    const int64_t outer = a->pages ? c->pages.pages : a->batch;
    const int64_t rows = a->pages ? c->pages.page_size : a->capacity;
    const int64_t group = a->scale_group ? a->scale_group : a->dim;
    c->src = (struct tensor){.count = {a->batch, a->heads, a->len},
                             .row_bytes = bytes_of((enum type)a->src.type, a->dim)};
    /* In tiles, each "row" of dst and of scales is a whole tile. */
    const int64_t together = a->dst.layout & ATTNKIT_TILED ? ATTNKIT_TILE_KEYS : 1;
    const int64_t lines = (rows + together - 1) / together;
    c->dst = (struct tensor){.count = {outer, a->heads, lines},
                             .row_bytes = together * bytes_of((enum type)a->dst.type, a->dim)};
    c->scales = (struct tensor){.count = {outer, a->heads, lines},
                                .row_bytes = together * 4 * (a->dim / group)};
    const int first_dst = (int)tensor_rows(&c->src) + 1;
    tensor_place(&c->src, k->layout, 0, 0, alignment_of(a->src.type));
    tensor_place(&c->dst, k->layout, 1, first_dst, alignment_of(a->dst.type));
    tensor_place(&c->scales, k->layout, 2, first_dst + (int)tensor_rows(&c->dst) + 1, 4);
    a->src.data = c->src.first;
    a->dst.data = c->dst.first;
    if (a->dst.type == ATTNKIT_I8)
        a->dst_scales.data = c->scales.first;
    if (k->layout == DENSE)
        return;
    set_strided(&a->src, c->src.strides);
    set_strided(&a->dst, c->dst.strides);
    set_strided(&a->dst_scales, c->scales.strides);
}

/* Makes a new call. Its tensors take over the memory of the tensors of the previous call. */
static struct call *make_call(const struct kind *k, uint64_t seed)
{
    struct call *c = calloc(1, sizeof *c);
    c->random = seed;
    c->args = (attnkit_append_args){
        .size = sizeof c->args,
        .src.type = k->src_type,
        .dst = {.type = k->dst_type, .layout = k->tiled ? ATTNKIT_TILED : 0},
    };
    c->rotation = (attnkit_rotation){.size = sizeof c->rotation, .kind = k->rope};
    if (k->rope || random_below(&c->random, 2)) /* a rotation without a kind does nothing */
        c->args.rotation = &c->rotation;
    draw_dims(c, k);
    draw_rows(c);
    draw_rope(c);
    if (k->page_size)
        draw_pages(c, k->page_size);
    place_tensors(c, k);
    fill_src(c);
    return c;
}

static void free_call(struct call *c)
{
    free(c->cos);
    free(c->sin);
    free(c);
}

/* --- Running a call ----------------------------------------------------------------------- */

/* A parallel-for that runs the last task first, because the library may not rely on any order. */
static void run_backwards(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    while (n-- > 0)
        task(arg, n);
}

static void expect_ok(const attnkit_append_args *args, const attnkit_exec *exec)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    const attnkit_status status = attnkit_append(args, exec, message);
    if (status != ATTNKIT_OK || message[0] != '\0')
        fail_msg("%s: %s", attnkit_status_string(status), message);
}

/* Runs the call on `threads` threads. Two threads run in a parallel-for. For any other number of
 * threads, the test makes one call for each thread, one after the other. workspace_size is exactly
 * the number of bytes that the workspace query returns. */
static void run(const attnkit_append_args *args, const char *isa, int64_t threads)
{
    attnkit_exec exec = {.size = sizeof exec, .isa = isa, .threads = threads};
    assert_int_equal(attnkit_append_workspace(args, &exec, &exec.workspace_size, NULL), ATTNKIT_OK);
    exec.workspace = malloc(exec.workspace_size + 1);
    if (threads == 2)
        exec.parallel_for = run_backwards;
    for (int64_t i = 0; i < (threads == 2 ? 1 : threads); i++) {
        exec.thread = i;
        expect_ok(args, &exec);
    }
    free(exec.workspace);
}

/* --- The plain loop ----------------------------------------------------------------------- */

/* Writes the expected row of dst, and its scales. convert.c and blocks.c check the conversions that
 * this function uses. */
static void expected_row(const struct call *c, const char *src, int64_t position, char *dst,
                         float *scales)
{
    const attnkit_append_args *a = &c->args;
    if (!c->rotation.kind && a->src.type == a->dst.type) {
        memcpy(dst, src, (size_t)c->src.row_bytes);
        return;
    }
    float x[MAX_DIM + 1], cos[MAX_DIM], sin[MAX_DIM];
    double frequency[MAX_DIM];
    const int64_t pairs = c->rotation.kind ? rope_dim(c) / 2 : 0;
    scalar->widen((enum type)a->src.type, src, NULL, 0, a->dim, x);
    if (c->rotation.kind && !c->cos) {
        attnkit_rope_frequencies(c->rotation.base == 0 ? 10000 : c->rotation.base, pairs,
                                 frequency);
        attnkit_rope_cos_sin(position, frequency, pairs, cos, sin);
    }
    for (int64_t i = 0; i < pairs; i++) {
        const bool interleaved = c->rotation.kind == ATTNKIT_ROPE_INTERLEAVED;
        const int64_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : pairs + i;
        const float co = c->cos ? c->cos[position * pairs + i] : cos[i];
        const float si = c->sin ? c->sin[position * pairs + i] : sin[i];
        const float y[2] = {fmaf(x[first], co, -(x[second] * si)),
                            fmaf(x[second], co, x[first] * si)};
        const uint32_t nan_bits = 0x7fc00000;
        memcpy(&x[first], isnan(y[0]) ? (const void *)&nan_bits : &y[0], sizeof y[0]);
        memcpy(&x[second], isnan(y[1]) ? (const void *)&nan_bits : &y[1], sizeof y[1]);
    }
    scalar->narrow((enum type)a->dst.type, x, a->dim, a->scale_group ? a->scale_group : a->dim, dst,
                   scales);
}

/* Writes the expected row of a key into a tile, and the scales of the row into the scales of the
 * tile. */
static void expected_in_tile(const struct call *c, const char *src, int64_t position, int64_t key,
                             char *tile, char *scales)
{
    _Alignas(4) char row[4 * MAX_DIM], row_scales[4 * MAX_DIM];
    const attnkit_type type = c->args.dst.type;
    expected_row(c, src, position, row, (float *)row_scales);
    for (int64_t n = 0; n < c->dst.row_bytes / 16; n++)
        tile[byte_in_tile((enum type)type, n, key)] = row[n];
    for (int64_t n = 0; n < c->scales.row_bytes / 16 && type == ATTNKIT_I8; n++)
        scales[byte_in_tile(TYPE_F32, n, key)] = row_scales[n];
}

/* Writes all expected rows into copies of the memory of dst and of the scales. */
static void expected_memory(const struct call *c, char *dst, char *scales)
{
    const attnkit_append_args *a = &c->args;
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t i = 0; i < len_of(c, b); i++)
            for (int64_t h = 0; h < a->heads; h++) {
                int64_t outer = b, row = start_of(c, b) + i;
                if (a->pages) {
                    const attnkit_pages *const p = &c->pages;
                    outer = p->block_table[b * p->block_table_stride + row / p->page_size];
                    row %= p->page_size;
                }
                const int64_t line = a->dst.layout & ATTNKIT_TILED ? row / 16 : row;
                const char *from = tensor_row(&c->src, b, h, i);
                char *to = tensor_in_copy(&c->dst, dst, tensor_row(&c->dst, outer, h, line));
                char *its_scales =
                    tensor_in_copy(&c->scales, scales, tensor_row(&c->scales, outer, h, line));
                if (a->dst.layout & ATTNKIT_TILED)
                    expected_in_tile(c, from, position_of(c, b) + i, row % 16, to, its_scales);
                else
                    expected_row(c, from, position_of(c, b) + i, to, (float *)its_scales);
            }
}

static const char *check_call(const struct call *c, const char *isa, int64_t threads)
{
    char *src = tensor_copy(&c->src), *dst = tensor_copy(&c->dst),
         *scales = tensor_copy(&c->scales);
    expected_memory(c, dst, scales);
    run(&c->args, isa, threads);
    const char *wrong = !tensor_is_as_in(&c->dst, dst)         ? "dst differs"
                        : !tensor_is_as_in(&c->scales, scales) ? "dst_scales differs"
                        : !tensor_is_as_in(&c->src, src)       ? "src has changed"
                                                               : NULL;
    free(src);
    free(dst);
    free(scales);
    return wrong;
}

/* Returns the seed of a draw. Each kind has seeds of its own. */
static uint64_t seed_of(const struct kind *k, uint64_t draw)
{
    const int fields[] = {(int)k->src_type, (int)k->dst_type, (int)k->rope,
                          (int)k->layout,   k->page_size,     k->tiled};
    uint64_t seed = draw;
    for (int i = 0; i < 6; i++)
        seed = seed * 31 + (uint64_t)fields[i];
    return seed;
}

/* Returns the number of draws whose result differs from the expected result. */
static int check_kind(const struct kind *k, const char *isa)
{
    int differ = 0;
    if (k->tiled && is_only_widened((enum type)k->dst_type))
        return 0;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        struct call *c = make_call(k, seed_of(k, draw));
        const char *wrong = check_call(c, isa, 1 + (int64_t)draw % 5);
        if (wrong && differ++ == 0)
            printf("# %s: %s: src %d dst %d rope %d layout %d page_size %d tiled %d dim %lld "
                   "rope_dim %lld draw %d\n",
                   isa, wrong, (int)k->src_type, (int)k->dst_type, (int)k->rope, (int)k->layout,
                   k->page_size, k->tiled, (long long)c->args.dim, (long long)c->rotation.dim,
                   (int)draw);
        free_call(c);
    }
    return differ;
}

static int check_kinds(const char *isa, const int page_sizes[4], bool tiled)
{
    int differ = 0;
    for (int src = 0; src < SRC_TYPES; src++)
        for (int dst = 0; dst < DST_TYPES; dst++)
            for (int rope = 0; rope < ROPES; rope++)
                for (int layout = 0; layout < TENSOR_LAYOUTS; layout++)
                    for (int p = 0; p < 4 && differ < REPORTED; p++)
                        differ +=
                            check_kind(&(struct kind){src, dst_types[dst], rope,
                                                      tensor_layouts[layout], page_sizes[p], tiled},
                                       isa);
    return differ;
}

static void isa_has_the_bits_of_a_plain_loop(void **state)
{
    const struct isa *isa = *state;
    assert_int_equal(check_kinds(isa->name, (const int[4]){0, 1, 3, 16}, false), 0);
}

static void isa_writes_tiles_as_a_plain_loop_does(void **state)
{
    const struct isa *isa = *state;
    assert_int_equal(check_kinds(isa->name, (const int[4]){0, 16, 32, 48}, true), 0);
}

/* --- Rotation ----------------------------------------------------------------------------- */

/* Returns an array that ends at an unmapped page. */
static float *guarded(int slot, int64_t count)
{
    return (float *)(memory_slots(slot, 1) + SLOT_BYTES) - count;
}

static void rotate_keeps_within_its_arrays(const struct kernels *kernels, int64_t pairs,
                                           bool interleaved)
{
    uint64_t random = (uint64_t)pairs;
    float expected[2 * MAX_DIM];
    float *x = guarded(0, 2 * pairs), *cos = guarded(2, pairs), *sin = guarded(4, pairs);
    for (int64_t i = 0; i < 2 * pairs; i++)
        expected[i] = x[i] = random_number(&random);
    for (int64_t i = 0; i < pairs; i++) {
        cos[i] = random_number(&random);
        sin[i] = random_number(&random);
    }
    scalar->rotate(expected, cos, sin, pairs, interleaved);
    kernels->rotate(x, cos, sin, pairs, interleaved);
    assert_memory_equal(x, expected, 2 * (size_t)pairs * sizeof *x);
}

static void isa_rotates_every_number_of_pairs(void **state)
{
    const struct isa *isa = *state;
    for (int64_t pairs = 1; pairs <= MAX_DIM; pairs++) {
        rotate_keeps_within_its_arrays(isa->kernels, pairs, true);
        rotate_keeps_within_its_arrays(isa->kernels, pairs, false);
    }
}

enum { ROWS = 7, DIM = 64, HEADS = 2, BATCH = 2, COUNT = BATCH * HEADS * ROWS * DIM };

static attnkit_rotation small_rotation(attnkit_rope kind)
{
    return (attnkit_rotation){.size = sizeof(attnkit_rotation), .kind = kind};
}

/* Returns the arguments of a small dense append of floats. */
static attnkit_append_args small_args(const attnkit_rotation *rotation, const void *src,
                                      const void *dst)
{
    return (attnkit_append_args){.size = sizeof(attnkit_append_args),
                                 .rotation = rotation,
                                 .batch = BATCH,
                                 .heads = HEADS,
                                 .len = ROWS,
                                 .dim = DIM,
                                 .capacity = ROWS,
                                 .src = {.data = src},
                                 .dst = {.data = dst}};
}

static void fill(float *x, int64_t count, uint64_t seed)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = random_normal(&seed);
}

/* Takes the index j of an element in an interleaved row. Returns the index of this element in a row
 * that is rotated in halves. */
static int order(int j)
{
    return j % 2 == 0 ? j / 2 : DIM / 2 + j / 2;
}

static void interleaved_and_half_differ_by_the_order_of_elements(void **state)
{
    const struct isa *isa = *state;
    static float src[COUNT], permuted[COUNT], half[COUNT], interleaved[COUNT];
    fill(src, COUNT, 1);
    for (int i = 0; i < COUNT; i++)
        permuted[i] = src[i / DIM * DIM + order(i % DIM)];
    const attnkit_rotation in_halves = small_rotation(ATTNKIT_ROPE_HALF);
    attnkit_append_args args = small_args(&in_halves, src, half);
    run(&args, isa->name, 1);
    const attnkit_rotation in_pairs = small_rotation(ATTNKIT_ROPE_INTERLEAVED);
    args = small_args(&in_pairs, permuted, interleaved);
    run(&args, isa->name, 1);
    for (int i = 0; i < COUNT; i++)
        assert_memory_equal(&interleaved[i], &half[i / DIM * DIM + order(i % DIM)], sizeof(float));
}

/* A rotation keeps the length of each pair (x, y), sqrt(x^2 + y^2), at any position. */
static void rotation_keeps_lengths(void **state)
{
    const struct isa *isa = *state;
    static float src[COUNT], dst[COUNT];
    static const int64_t positions[BATCH] = {0, 100000};
    fill(src, COUNT, 2);
    attnkit_rotation rotation = small_rotation(ATTNKIT_ROPE_HALF);
    rotation.positions.data = positions;
    const attnkit_append_args args = small_args(&rotation, src, dst);
    run(&args, isa->name, 1);
    for (int row = 0; row < COUNT / DIM; row++)
        for (int i = row * DIM; i < row * DIM + DIM / 2; i++) {
            const double before = hypot(src[i], src[i + DIM / 2]);
            const double after = hypot(dst[i], dst[i + DIM / 2]);
            assert_true(fabs(after - before) <= 0x1p-22 * before);
        }
    assert_memory_equal(src, dst,
                        DIM * sizeof(float)); /* at position 0, the rotation changes nothing */
    assert_memory_not_equal(src + DIM, dst + DIM, DIM * sizeof(float));
}

/* --- cos and sin -------------------------------------------------------------------------- */

/* Returns whether a cos or sin is within its bound: half an ulp of binary32 plus the error of the
 * angle. Let u = 2^-53. The exponent -i / pairs * log2(base) is off by 8 u: two roundings, and the
 * 6 u of log2. This error times ln 2 is a relative error of the power. exp2 adds 3 u. The
 * conversion of the position adds u, and the product of position and power adds another u. cos and
 * sin have an error of 5 u, which the code rounds up to 8 u. */
static bool is_near(float got, long double truth, double angle, double log2_base)
{
    const double exponent_off = log2_base * 0x1p-50;
    const double angle_off = angle * (0.6932 * exponent_off + 5 * 0x1p-53);
    return fabsl(got - truth) <= (0x1p-24L + 0x1p-50L) * fabsl(truth) + angle_off;
}

static void expect_angles(double base, int64_t pairs, int64_t position)
{
    double frequency[MAX_DIM / 2];
    float cos[MAX_DIM / 2], sin[MAX_DIM / 2];
    attnkit_rope_frequencies(base, pairs, frequency);
    attnkit_rope_cos_sin(position, frequency, pairs, cos, sin);
    for (int64_t i = 0; i < pairs; i++) {
        const long double angle =
            (long double)position * powl(base, -(long double)i / (long double)pairs);
        assert_true(is_near(cos[i], cosl(angle), (double)angle, log2(base)));
        assert_true(is_near(sin[i], sinl(angle), (double)angle, log2(base)));
    }
}

static void cos_and_sin_are_right(void **state)
{
    (void)state;
    static const double bases[] = {10000.0, 1.0, 500000.0, 1000000.0, 10000.5};
    static const int64_t pairs[] = {1, 3, 32, 40, 64, 128};
    uint64_t random = 3;
    for (int b = 0; b < 5; b++)
        for (int p = 0; p < 6; p++) {
            for (int64_t position = 0; position < 64; position++)
                expect_angles(bases[b], pairs[p], position);
            for (int i = 0; i < 200; i++)
                expect_angles(bases[b], pairs[p], random_below(&random, 131072));
            expect_angles(bases[b], pairs[p], 131071);
            expect_angles(bases[b], pairs[p], 131072);
        }
}

/* Tests the largest position with the largest base. */
static void angles_of_far_positions_are_finite(void **state)
{
    (void)state;
    double frequency[4];
    float cos[4], sin[4];
    attnkit_rope_frequencies(DBL_MAX, 4, frequency);
    attnkit_rope_cos_sin(INT64_MAX, frequency, 4, cos, sin);
    for (int i = 0; i < 4; i++)
        assert_true(fabsf(cos[i]) <= 1.0f && fabsf(sin[i]) <= 1.0f);
}

/* --- One result, however a call is made --------------------------------------------------- */

static void rotation_in_place_has_the_same_result(void **state)
{
    const struct isa *isa = *state;
    static float x[COUNT], src[COUNT], dst[COUNT];
    static const int64_t lens[BATCH] = {ROWS, 3}, positions[BATCH] = {5, 0};
    for (int type = 0; type < SRC_TYPES; type++)
        for (int64_t threads = 1; threads <= 5; threads++) {
            fill(x, COUNT, 4);
            scalar->narrow((enum type)type, x, COUNT, 0, src, NULL);
            memcpy(dst, src, sizeof dst);
            attnkit_rotation rotation = small_rotation(ATTNKIT_ROPE_HALF);
            rotation.positions.data = positions;
            attnkit_append_args args = small_args(&rotation, src, dst);
            args.src.type = args.dst.type = type;
            args.lens.data = lens;
            run(&args, isa->name, threads);
            args.dst.data = src;
            run(&args, isa->name, threads);
            assert_memory_equal(src, dst, sizeof dst);
        }
}

/* The rows are strided like Q in a token-major tensor that has Q, K and V side by side. */
static void rotation_in_place_may_be_strided(void **state)
{
    const struct isa *isa = *state;
    static float x[3 * COUNT], expected[3 * COUNT];
    fill(x, 3 * COUNT, 5);
    memcpy(expected, x, sizeof x);
    const int64_t strides[3] = {3 * HEADS * ROWS * DIM * 4, DIM * 4, 3 * HEADS * DIM * 4};
    static float dense[COUNT];
    const attnkit_rotation rotation = small_rotation(ATTNKIT_ROPE_HALF);
    attnkit_append_args args = small_args(&rotation, x, dense);
    set_strided(&args.src, strides);
    run(&args, isa->name, 1);
    for (int b = 0; b < BATCH; b++)
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < ROWS; i++)
                memcpy((char *)expected + b * strides[0] + h * strides[1] + i * strides[2],
                       dense + ((b * HEADS + h) * ROWS + i) * DIM, DIM * sizeof(float));
    args.dst = args.src;
    run(&args, isa->name, 2);
    assert_memory_equal(x, expected, sizeof x);
}

/* Appends row i of every batch entry that has this row, in one call. */
static void append_one_row(const struct call *whole, int64_t i, const char *isa)
{
    int64_t starts[MAX_BATCH], lens[MAX_BATCH], positions[MAX_BATCH];
    attnkit_append_args args = whole->args;
    attnkit_rotation rotation = whole->rotation;
    args.len = 1;
    args.src.data = tensor_row(&whole->src, 0, 0, i);
    set_strided(&args.src, whole->src.strides);
    set_strided(&args.dst, whole->dst.strides);
    set_strided(&args.dst_scales, whole->scales.strides);
    args.rotation = &rotation;
    for (int64_t b = 0; b < args.batch; b++) {
        lens[b] = i < len_of(whole, b);
        starts[b] = start_of(whole, b) + (lens[b] ? i : 0);
        positions[b] = position_of(whole, b) + i;
    }
    args.starts = (attnkit_ints){.data = starts};
    args.lens = (attnkit_ints){.data = lens};
    rotation.positions = (attnkit_ints){.data = rotation.kind ? positions : NULL};
    run(&args, isa, 1);
}

static void check_row_at_a_time(const struct kind *k, const char *isa)
{
    for (uint64_t draw = 100; draw < 110; draw++) {
        struct call *c = make_call(k, seed_of(k, draw));
        char *expected = tensor_copy(&c->dst), *scales = tensor_copy(&c->scales);
        expected_memory(c, expected, scales);
        for (int64_t i = 0; i < c->args.len; i++)
            append_one_row(c, i, isa);
        assert_true(tensor_is_as_in(&c->dst, expected) && tensor_is_as_in(&c->scales, scales));
        free(expected);
        free(scales);
        free_call(c);
    }
}

/* Rows of different calls may lie in the same tile. */
static void a_row_at_a_time_gives_the_bits_of_one_call(void **state)
{
    const struct isa *isa = *state;
    for (int dst = 0; dst < DST_TYPES; dst++)
        for (int rope = 0; rope < ROPES; rope++)
            for (int page_size = 0; page_size < 4; page_size++)
                for (int tiled = 0; tiled < (is_only_widened((enum type)dst_types[dst]) ? 1 : 2);
                     tiled++)
                    check_row_at_a_time(&(struct kind){ATTNKIT_F32, dst_types[dst], rope, DENSE,
                                                       page_size * (tiled ? 16 : 1), tiled},
                                        isa->name);
}

/* The caller's rounding mode changes no bit, and is restored. */
static void rounding_modes_do_not_matter(void **state)
{
    const struct isa *isa = *state;
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    static float src[COUNT], expected[COUNT], dst[COUNT];
    fill(src, COUNT, 6);
    const attnkit_rotation rotation = small_rotation(ATTNKIT_ROPE_HALF);
    attnkit_append_args args = small_args(&rotation, src, expected);
    run(&args, isa->name, 1);
    args.dst.data = dst;
    for (int i = 0; i < 3; i++) {
        memset(dst, PATTERN, sizeof dst);
        fesetround(modes[i]);
        run(&args, isa->name, 2);
        const int after = fegetround();
        fesetround(FE_TONEAREST);
        assert_int_equal(after, modes[i]);
        assert_memory_equal(dst, expected, sizeof dst);
    }
}

/* --- All tests ---------------------------------------------------------------------------- */

static size_t add_isa_tests(struct CMUnitTest *tests, const struct isa *isa)
{
    static const struct {
        const char *name;
        CMUnitTestFunction test;
    } all[] = {
        {"has the bits of a plain loop", isa_has_the_bits_of_a_plain_loop},
        {"writes tiles as a plain loop does", isa_writes_tiles_as_a_plain_loop_does},
        {"rotates every number of pairs", isa_rotates_every_number_of_pairs},
        {"interleaved and half differ by the order of elements",
         interleaved_and_half_differ_by_the_order_of_elements},
        {"rotation keeps lengths", rotation_keeps_lengths},
        {"rotation in place has the same result", rotation_in_place_has_the_same_result},
        {"rotation in place may be strided", rotation_in_place_may_be_strided},
        {"a row at a time gives the bits of one call", a_row_at_a_time_gives_the_bits_of_one_call},
        {"rounding modes do not matter", rounding_modes_do_not_matter},
    };
    enum { TESTS = sizeof all / sizeof all[0] };
    static char names[MAX_ISAS][TESTS][100];
    static int isas;
    for (size_t i = 0; i < TESTS; i++) {
        char *name = names[isas][i];
        snprintf(name, sizeof names[0][0], "%s %s", isa->name, all[i].name);
        tests[i] = (struct CMUnitTest){name, all[i].test, NULL, NULL, (void *)(uintptr_t)isa};
    }
    isas++;
    return TESTS;
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[2 + 9 * MAX_ISAS] = {
        cmocka_unit_test(cos_and_sin_are_right),
        cmocka_unit_test(angles_of_far_positions_are_finite),
    };
    size_t count = 2;
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    expect_isa(argc, argv);
    scalar = isas[0].kernels;
    for (int i = 0; i < isa_count; i++)
        if (attnkit_isa_can_run(&isas[i]) && (argc < 2 || strcmp(argv[1], isas[i].name) == 0))
            count += add_isa_tests(tests + count, &isas[i]);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = _cmocka_run_group_tests("append", tests, count, NULL, NULL);
    memory_end();
    return failed;
}
