/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on all types and on pages. For all types of q, k, v and out, and all layouts of their
 * rows, the result has the bits of the scalar reference on dense binary32 copies of the rows
 * (tests/support/formats.h). If out has 16 bits, the result of the reference is rounded once. A
 * case is drawn from its number. Each case runs on every instruction set, or on the instruction set
 * that the first argument names.
 *
 * Usage: types [ISA [CASE]]. With ATTNKIT_TEST_LONG in the environment, the test of drawn cases
 * runs ten times as many cases.
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

#include "dispatch/attention/attention.h"
#include "dispatch/cpu/isa.h"
#include "tests/cases/case.h"
#include "tests/support/blocks.h"
#include "tests/support/formats.h"
#include "tests/support/memory.h"
#include "tests/support/sample.h"
#include "tests/support/units.h"

enum {
    TYPES = TYPE_COUNT,
    ROUNDED_TYPES = 3, /* number of types that q and out can have */
    TURNS = 6,         /* how often the cases go through all pairs of types of K and V */
    CASES = TURNS * TYPES * TYPES,
    MAX_BATCH = 3,
    MAX_Q_LEN = 70,
    MAX_KV_LEN = 700,
    MAX_TABLE = MAX_BATCH * (MAX_KV_LEN + 2),
    MAX_PAGES = MAX_TABLE + 3,
    MOST_GUARDED = 6000, /* the most rows in slots; each slot takes two system calls */
    PATTERN = 0xa5,      /* a byte of memory that nobody has written to */
    MAX_ISAS = 8,
    REPORTED = 5, /* differences that are printed */
};

enum tensor_index { Q, K, V, OUT, LSE, K_SCALES, V_SCALES, TENSORS };

enum rows_layout {
    TIGHT, /* dense, without strides */
    TOKENS_OUTSIDE,
    GAPS, /* gaps after rows, and before the first row */
    BACKWARDS,
    REPEATED,   /* K and V: strides of 0 over heads and, without pages, over batch entries, so that
                   all of them have the same rows */
    GUARD_NEXT, /* each row ends at an unmapped page */
    GUARD_LAST, /* each row begins after an unmapped page */
    ROWS_LAYOUTS,
};

static const int64_t page_sizes[] = {0, 1, 3, 16, 128, 200}; /* 0: no pages */

enum { PAGE_SIZES = sizeof page_sizes / sizeof page_sizes[0] };

static struct {
    const char *isa[MAX_ISAS];
    int isas;
    int only; /* the only case, or -1 for all */
} options = {.only = -1};

/* State of the running test: how many comparisons have failed, and the number of the current
 * case. */
static int differing;
static int number_in_work = -1;

/* --- A case: shape, types, options and the stored rows ---------------------------------------- */

/* The kinds of numbers in the elements, or in the scales, of a tensor. */
enum data { PLAIN, TINY, SPECIAL, DATA };

struct sample {
    int number;
    uint64_t random;
    attnkit_attention_args args; /* tensors have types but no data */
    struct groups groups;
    int64_t kv_lens[MAX_BATCH], q_offsets[MAX_BATCH];
    int threads;
    bool shared; /* K and V are the same for all batch entries and heads */
    enum rows_layout layout;
    int64_t page_size;
    char *rows[TENSORS]; /* stored rows of the inputs, dense */
    struct result expected;
};

static bool is_kv(enum tensor_index t)
{
    return t == K || t == V || t == K_SCALES || t == V_SCALES;
}

static enum type type_of(const struct sample *s, enum tensor_index t)
{
    const attnkit_type types[TENSORS] = {s->args.q.type, s->args.k.type, s->args.v.type,
                                         s->args.out.type};
    return (enum type)types[t]; /* lse and scales are F32, which is 0 */
}

static int64_t group_of(const struct sample *s, enum tensor_index t)
{
    const attnkit_kv_storage *const storage = &s->groups.storage;
    if (t == K)
        return storage->k_scale_group ? storage->k_scale_group : s->args.head_dim;
    return storage->v_scale_group ? storage->v_scale_group : s->args.value_dim;
}

/* Returns the number of elements of a row of tensor t, or 0 if the case lacks the tensor. */
static int64_t dim_of(const struct sample *s, enum tensor_index t)
{
    switch (t) {
    case Q:
    case K:
        return s->args.head_dim;
    case V:
    case OUT:
        return s->args.value_dim;
    case LSE:
        return 1;
    default:
        return !has_scales(type_of(s, t == K_SCALES ? K : V)) ? 0
               : t == K_SCALES                                ? dim_of(s, K) / group_of(s, K)
                                                              : dim_of(s, V) / group_of(s, V);
    }
}

static int64_t row_bytes_of(const struct sample *s, enum tensor_index t)
{
    return bytes_of(type_of(s, t), dim_of(s, t));
}

static int64_t heads_of(const struct sample *s, enum tensor_index t)
{
    return is_kv(t) ? s->args.kv_heads : s->args.q_heads;
}

static int64_t rows_of(const struct sample *s, enum tensor_index t)
{
    return is_kv(t) ? s->args.kv_len : s->args.q_len;
}

static char *stored_row(const struct sample *s, enum tensor_index t, int64_t b, int64_t h,
                        int64_t i)
{
    const bool first = s->shared && is_kv(t);
    const int64_t head = first ? 0 : b * heads_of(s, t) + h;
    return s->rows[t] + (head * rows_of(s, t) + i) * row_bytes_of(s, t);
}

static int64_t kv_len_of(const struct sample *s, int64_t b)
{
    return s->groups.visibility.kv_lens.data ? s->kv_lens[b] : s->args.kv_len;
}

static int64_t q_offset_of(const struct sample *s, int64_t b)
{
    if (s->args.align == ATTNKIT_ALIGN_BOTTOM_RIGHT)
        return kv_len_of(s, b) - s->args.q_len;
    return s->args.align == ATTNKIT_ALIGN_OFFSETS ? s->q_offsets[b] : 0;
}

/* Returns the number of keys that row i of a batch entry sees. */
static int64_t keys_seen(const struct sample *s, int64_t b, int64_t i)
{
    const int64_t keys = kv_len_of(s, b), position = q_offset_of(s, b) + i;
    if (!(s->args.flags & ATTNKIT_CAUSAL))
        return keys;
    return position < 0 ? 0 : position < keys ? position + 1 : keys;
}

/* --- Drawing a shape -------------------------------------------------------------------------- */

static int64_t below(struct sample *s, int64_t n)
{
    return random_below(&s->random, n);
}

/* Draws a dim. Sets *group to the number of elements that share a scale. Leaves *group 0 if the
 * whole row shares a scale, or if the type has no separate scales. */
static int64_t draw_dim(struct sample *s, attnkit_type type, int64_t *group)
{
    static const int64_t groups[] = {1, 3, 8, 20, 32, 64, 100};
    static const int64_t dims[] = {1,  2,  3,  7,  8,  15, 16,  17,  20,  31,
                                   33, 63, 64, 65, 80, 96, 127, 128, 129, 192};
    const int64_t block = block_elements((enum type)type);
    if (block > 1)
        return block * (1 + below(s, 160 / block));
    if (has_scales((enum type)type) && below(s, 3) > 0) {
        *group = groups[below(s, 7)];
        return *group * (1 + below(s, 160 / *group));
    }
    return dims[below(s, 20)];
}

/* Returns the approximate cost of a call in multiply-adds of the reference. */
static double cost(const attnkit_attention_args *a)
{
    return (double)(a->batch * a->q_heads * a->q_len) * (double)a->kv_len *
           (double)(a->head_dim + a->value_dim + 16);
}

/* Draws lengths. Most are small, so that the test can run many cases. */
static void draw_lengths(struct sample *s)
{
    attnkit_attention_args *a = &s->args;
    const double most = below(s, 16) == 0 ? 8e6 : 1e6;
    do {
        a->batch = 1 + below(s, MAX_BATCH);
        a->kv_heads = 1 + below(s, 3);
        a->q_heads = a->kv_heads * (1 + below(s, 8));
        a->q_len = below(s, 3) == 0 ? 1 : 1 + below(s, MAX_Q_LEN);
        a->kv_len = below(s, below(s, 4) == 0 ? 14 : MAX_KV_LEN + 1);
    } while (cost(a) > most);
}

static void draw_options(struct sample *s)
{
    static const double scales[] = {0.0, 0.3, -0.07};
    attnkit_attention_args *a = &s->args;
    const int64_t scale = below(s, 3);
    a->scale = scales[scale];
    a->flags = (scale ? ATTNKIT_SCALE_GIVEN : 0) | (below(s, 3) ? ATTNKIT_CAUSAL : 0);
    a->align = 1 + (attnkit_align)below(s, 3);
    if (below(s, 2))
        s->groups.visibility.kv_lens.data = s->kv_lens;
    if (a->align == ATTNKIT_ALIGN_OFFSETS)
        a->q_offsets.data = s->q_offsets;
    for (int b = 0; b < MAX_BATCH; b++) {
        s->kv_lens[b] = below(s, a->kv_len + 1);
        s->q_offsets[b] = below(s, a->kv_len + a->q_len + 4) - a->q_len - 1;
    }
    s->threads = 1 + (int)below(s, 3);
}

/* --- Drawing rows ----------------------------------------------------------------------------- */

/* A source of random elements. If the data has special elements, one of `one_in` elements is
 * special. */
struct source {
    uint64_t *random;
    enum data data;
    int64_t one_in;
};

static struct source draw_source(struct sample *s)
{
    static const int64_t densities[] = {20, 300, 5000};
    return (struct source){&s->random, (enum data)below(s, DATA), densities[below(s, 3)]};
}

static bool is_special(struct source from)
{
    return from.data == SPECIAL && random_below(from.random, from.one_in) == 0;
}

/* Draws a number of magnitude at most 2^-shift, or a special number. */
static float draw_float(struct source from, int shift)
{
    static const uint32_t specials[] = {0x7fc00000, 0xffa00001, 0x7f800000, 0xff800000,
                                        0x80000000, 0x7f61b1e6, 0x00000001};
    if (is_special(from)) {
        float x;
        memcpy(&x, &specials[random_below(from.random, 7)], sizeof x);
        return x;
    }
    return ldexpf(random_uniform(from.random), from.data == TINY ? -130 - shift : -shift);
}

static uint16_t draw_half(struct source from, const struct format *f, int shift)
{
    const uint16_t bits = (uint16_t)random_bits(from.random);
    const uint16_t sign = bits & 0x8000, fraction = bits & ((1 << f->fraction_bits) - 1);
    if (is_special(from)) {
        /* NaN, infinity, the largest or the smallest number above 0, with either sign; or -0 */
        const uint16_t specials[] = {f->infinity | fraction | 1, f->infinity, f->infinity - 1, 1,
                                     0x8000};
        return sign | specials[random_below(from.random, 5)];
    }
    const int one = f->infinity >> f->fraction_bits >> 1; /* the biased exponent of 1 */
    const int exponent = one - 1 - shift - (int)random_below(from.random, 7);
    return sign | fraction | (uint16_t)(from.data == TINY ? 0 : exponent << f->fraction_bits);
}

static void draw_bytes(struct source from, char *bytes, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        bytes[i] = (char)random_bits(from.random);
}

/* Draws bytes of 8-bit floating point. Only in SPECIAL data, a few may be NaN. */
static void draw_e4m3(struct source from, char *bytes, int64_t n)
{
    draw_bytes(from, bytes, n);
    for (int64_t i = 0; i < n; i++)
        if ((bytes[i] & 0x7f) == 0x7f && !is_special(from))
            bytes[i] = 0;
}

enum { SCALE_SHIFT = 6 }; /* a byte times a scale is about 1 */

static uint16_t draw_block_half(void *from)
{
    return draw_half(*(const struct source *)from, format_of(TYPE_F16), SCALE_SHIFT / 2);
}

static void draw_elements(struct source from, enum type type, int shift, int64_t n, char *row)
{
    for (int64_t i = 0; i < n && type == TYPE_F32; i++) {
        const float x = draw_float(from, shift);
        memcpy(row + 4 * i, &x, sizeof x);
    }
    for (int64_t i = 0; i < n && (type == TYPE_F16 || type == TYPE_BF16); i++) {
        const uint16_t x = draw_half(from, format_of(type), shift);
        memcpy(row + 2 * i, &x, sizeof x);
    }
    if (type == TYPE_F8_E4M3)
        draw_e4m3(from, row, n);
    else if (type == TYPE_I8 || is_only_widened(type))
        draw_bytes(from, row, bytes_of(type, n));
    block_put_halves(type, row, n, draw_block_half, &from);
    for (char *end = row + bytes_of(type, n); type == TYPE_Q8_0 && row < end;
         row += Q8_BLOCK_BYTES) {
        const uint16_t scale = draw_half(from, format_of(TYPE_F16), SCALE_SHIFT);
        memcpy(row, &scale, sizeof scale);
        draw_bytes(from, row + sizeof scale, Q8_BLOCK);
    }
}

static void draw_tensor(struct sample *s, enum tensor_index t)
{
    const int64_t rows = s->args.batch * heads_of(s, t) * rows_of(s, t);
    const int64_t row_bytes = row_bytes_of(s, t);
    const struct source from = draw_source(s);
    s->rows[t] = malloc((size_t)(rows * row_bytes) + 1);
    for (int64_t i = 0; i < rows; i++)
        draw_elements(from, type_of(s, t), is_kv(t) && t != K && t != V ? SCALE_SHIFT : 0,
                      dim_of(s, t), s->rows[t] + i * row_bytes);
}

/* --- What is expected ------------------------------------------------------------------------- */

/* Returns dense binary32 copies of a tensor's rows. */
static float *widened(const struct sample *s, enum tensor_index t)
{
    const int64_t dim = dim_of(s, t), heads = heads_of(s, t), rows = rows_of(s, t);
    const enum tensor_index scales = t == K ? K_SCALES : V_SCALES;
    float *copy = malloc((size_t)(s->args.batch * heads * rows * dim) * sizeof *copy + 1);
    float *to = copy;
    for (int64_t b = 0; b < s->args.batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < rows; i++, to += dim) {
                const bool scaled = has_scales(type_of(s, t));
                widen_row(type_of(s, t), stored_row(s, t, b, h, i),
                          scaled ? (const float *)stored_row(s, scales, b, h, i) : NULL,
                          group_of(s, t), dim, to);
            }
    return copy;
}

static void expect_reference(struct sample *s)
{
    float *q = widened(s, Q), *k = widened(s, K), *v = widened(s, V);
    attnkit_attention_args plain = s->args;
    struct groups groups = s->groups;
    s->expected = result_new(&plain);
    groups_hang(&plain, &groups);
    groups.storage.k_scale_group = groups.storage.v_scale_group = 0;
    plain.q = (attnkit_tensor){.data = q};
    plain.k = (attnkit_tensor){.data = k};
    plain.v = (attnkit_tensor){.data = v};
    plain.out = (attnkit_tensor){.data = s->expected.out};
    plain.lse = (attnkit_tensor){.data = s->expected.lse};
    struct attention problem;
    assert_int_equal(attnkit_attention_problem(&plain, &problem, NULL), ATTNKIT_OK);
    result_from_reference(&s->expected, &plain);
    free(q);
    free(k);
    free(v);
}

/* Makes a case from its number. Successive numbers go through all types of K and V. The types of q
 * and out, the layouts and the page sizes go round in periods of their own. */
static struct sample *new_sample(int number, bool shared)
{
    struct sample *s = calloc(1, sizeof *s);
    s->number = number;
    s->random = (uint64_t)number;
    s->layout = (enum rows_layout)(number % ROWS_LAYOUTS);
    s->page_size = page_sizes[number % PAGE_SIZES];
    s->shared = shared || s->layout == REPEATED;
    attnkit_attention_args *a = &s->args;
    a->size = sizeof *a;
    groups_init(&s->groups);
    a->k.type = number % TYPES;
    a->v.type = number / TYPES % TYPES;
    const int turn = number / (TYPES * TYPES);
    a->q.type = (number + turn) % ROUNDED_TYPES;
    a->out.type = (number / ROUNDED_TYPES + turn) % ROUNDED_TYPES;
    a->head_dim = draw_dim(s, a->k.type, &s->groups.storage.k_scale_group);
    a->value_dim = draw_dim(s, a->v.type, &s->groups.storage.v_scale_group);
    draw_lengths(s);
    draw_options(s);
    for (int t = 0; t < TENSORS; t++)
        if (t != OUT && t != LSE && dim_of(s, t) > 0)
            draw_tensor(s, (enum tensor_index)t);
    expect_reference(s);
    number_in_work = number;
    return s;
}

static void free_sample(struct sample *s)
{
    for (int t = 0; t < TENSORS; t++)
        free(s->rows[t]);
    result_free(&s->expected);
    free(s);
    number_in_work = -1;
}

/* --- The rows in memory ----------------------------------------------------------------------- */

struct tensor {
    char *memory;
    size_t size; /* bytes of memory; 0 in slots */
    int slot;    /* the tensor's first slot */
    char *first; /* row 0 of head 0 of batch entry 0 or page 0 */
    int64_t count[3], strides[3], row_bytes;
};

/* A case laid out in memory. Only one such case exists at a time. */
struct call {
    const struct sample *s;
    attnkit_attention_args args;
    struct groups groups;
    struct tensor tensors[TENSORS];
    int32_t block_table[MAX_TABLE];
};

static struct call call;

static int64_t rows_in(const struct tensor *t)
{
    return t->count[0] * t->count[1] * t->count[2];
}

static char *row_at(const struct tensor *t, int64_t outer, int64_t head, int64_t row)
{
    return t->first + outer * t->strides[0] + head * t->strides[1] + row * t->strides[2];
}

/* Returns a row of a tensor of the call. The rows of K and V may lie in pages. */
static char *row_in(const struct call *c, enum tensor_index t, int64_t b, int64_t h, int64_t i)
{
    const attnkit_pages *const p = &c->groups.pages;
    if (!p->block_table || !is_kv(t))
        return row_at(&c->tensors[t], b, h, i);
    const int32_t page = c->block_table[b * p->block_table_stride + i / p->page_size];
    return row_at(&c->tensors[t], page, h, i % p->page_size);
}

/* Draws the block table. A page occurs at most once in the table, or at most once for each batch
 * entry if the batch entries share K and V. Batch entries without keys have no page. */
static void draw_pages(struct call *c, int64_t page_size)
{
    const attnkit_attention_args *const a = &c->args;
    attnkit_pages *const p = &c->groups.pages;
    uint64_t random = c->s->random;
    int32_t numbers[MAX_PAGES];
    const int64_t each = (a->kv_len + page_size - 1) / page_size;
    p->block_table = c->block_table;
    p->page_size = page_size;
    p->block_table_stride = each * (a->batch > 1) + random_below(&random, 3);
    p->pages = (c->s->shared ? each : each * a->batch) + random_below(&random, 4);
    assert_true(p->block_table_stride * (a->batch - 1) + each <= MAX_TABLE &&
                p->pages <= MAX_PAGES);
    for (int32_t i = 0; i < p->pages; i++) {
        const int64_t j = random_below(&random, i + 1);
        numbers[i] = numbers[j];
        numbers[j] = i;
    }
    for (int64_t i = 0; i < MAX_TABLE; i++)
        c->block_table[i] = i % 2 ? -1 : INT32_MAX;
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t i = 0; i * page_size < kv_len_of(c->s, b); i++)
            c->block_table[b * p->block_table_stride + i] =
                numbers[c->s->shared ? i : b * each + i];
}

static void place_in_slots(struct tensor *t, bool at_end, int *slot)
{
    t->slot = *slot;
    t->memory = memory_slots(*slot, 0);
    memory_hide_slots(*slot, (int)rows_in(t) + 1);
    t->first = t->memory + (at_end ? SLOT_BYTES - t->row_bytes : 0);
    t->strides[2] = SLOT_STRIDE;
    t->strides[1] = t->count[2] * t->strides[2];
    t->strides[0] = t->count[1] * t->strides[1];
    *slot += (int)rows_in(t) + 1;
}

static void place_in_arena(struct tensor *t, enum tensor_index index, enum rows_layout layout,
                           int64_t alignment)
{
    const bool tight = layout == TIGHT || layout == TOKENS_OUTSIDE;
    const int64_t gap = tight ? 0 : 3 * alignment;
    const int inner = layout == TOKENS_OUTSIDE ? 1 : 2, outer = 3 - inner;
    t->strides[inner] = t->row_bytes + gap;
    t->strides[outer] = t->strides[inner] * t->count[inner] + gap;
    t->strides[0] = t->strides[outer] * t->count[outer] + gap;
    t->size = (size_t)(t->strides[0] * t->count[0] + t->row_bytes + 64) / 4 * 4;
    /* Arena 5 is the workspace. */
    t->memory = memory_arena(index < 5 ? (int)index : (int)index + 1, t->size);
    t->first = t->memory + gap;
    for (int i = 0; layout == BACKWARDS && i < 3; i++) {
        t->first += t->count[i] > 0 ? (t->count[i] - 1) * t->strides[i] : 0;
        t->strides[i] = -t->strides[i];
    }
}

static int64_t alignment_of(enum type type)
{
    return type == TYPE_F32 ? 4 : has_scales(type) ? 1 : 2;
}

static void place_tensor(struct call *c, enum tensor_index index, enum rows_layout layout,
                         int *slot)
{
    const struct sample *s = c->s;
    struct tensor *t = &c->tensors[index];
    const attnkit_pages *const pages = &c->groups.pages;
    const bool paged = pages->block_table && is_kv(index);
    const bool repeated = layout == REPEATED && is_kv(index);
    const int64_t count[3] = {paged ? pages->pages : s->args.batch, heads_of(s, index),
                              paged ? pages->page_size : rows_of(s, index)};
    *t = (struct tensor){.row_bytes = row_bytes_of(s, index)};
    memcpy(t->count, count, sizeof count);
    if (repeated) {
        t->count[0] = paged ? count[0] : 1;
        t->count[1] = 1;
    }
    if (layout == GUARD_NEXT || layout == GUARD_LAST)
        place_in_slots(t, layout == GUARD_NEXT, slot);
    else
        place_in_arena(t, index, layout, alignment_of(type_of(s, index)));
    if (repeated) {
        t->strides[0] = paged ? t->strides[0] : 0;
        t->strides[1] = 0;
    }
}

/* --- Filling the rows ------------------------------------------------------------------------- */

/* Returns 16 bits. In memory that is full of these 16 bits, each element or its scale is a NaN: a
 * signalling NaN, except in TYPE_F8_E4M3. TYPE_I8, whose scales lie in a tensor of TYPE_F32, is an
 * exception: each element is -128. */
static uint16_t poison_of(enum type type)
{
    if (type == TYPE_F8_E4M3)
        return 0x7fff;
    return type == TYPE_F32 || type == TYPE_BF16 ? 0x7fa0 : type == TYPE_I8 ? 0x8080 : 0x7d01;
}

static void fill_halves(char *memory, size_t bytes, uint16_t half)
{
    for (size_t i = 0; i + sizeof half <= bytes; i += sizeof half)
        memcpy(memory + i, &half, sizeof half);
}

static char *slot_of(const struct tensor *t, const char *row)
{
    return t->memory + (row - t->memory) / SLOT_STRIDE * SLOT_STRIDE;
}

/* Maps the slot of a row, if the tensor is in slots, so that the row can be written. */
static void unhide(const struct tensor *t, const char *row)
{
    if (t->size == 0)
        memory_slots(t->slot + (int)((row - t->memory) / SLOT_STRIDE), 1);
}

/* Fills the rows that the call may read. All other rows are poison, or unmapped. */
static void fill_input(const struct call *c, enum tensor_index index)
{
    const struct sample *s = c->s;
    const struct tensor *t = &c->tensors[index];
    fill_halves(t->memory, t->size, poison_of(type_of(s, index)));
    for (int64_t b = 0; b < s->args.batch; b++) {
        const int64_t rows = is_kv(index) ? keys_seen(s, b, s->args.q_len - 1) : s->args.q_len;
        for (int64_t h = 0; h < heads_of(s, index); h++)
            for (int64_t i = 0; i < rows; i++) {
                char *row = row_in(c, index, b, h, i);
                unhide(t, row);
                memcpy(row, stored_row(s, index, b, h, i), (size_t)t->row_bytes);
            }
    }
}

static void fill_output(const struct tensor *t)
{
    for (int64_t i = 0; t->size == 0 && i < rows_in(t); i++)
        memset(memory_slots(t->slot + (int)i, 1), PATTERN, SLOT_BYTES);
    memset(t->memory, PATTERN, t->size);
}

static void set_tensors(struct call *c, enum rows_layout layout)
{
    attnkit_attention_args *a = &c->args;
    attnkit_tensor *const tensors[TENSORS] = {&a->q,
                                              &a->k,
                                              &a->v,
                                              &a->out,
                                              &a->lse,
                                              &c->groups.storage.k_scales,
                                              &c->groups.storage.v_scales};
    for (int t = 0; t < TENSORS; t++) {
        tensors[t]->data = c->tensors[t].first;
        if (layout == TIGHT)
            continue;
        tensors[t]->layout = ATTNKIT_STRIDED;
        memcpy(tensors[t]->strides, c->tensors[t].strides, sizeof tensors[t]->strides);
    }
}

/* Returns whether all rows fit in about MOST_GUARDED slots. */
static bool fits_slots(const struct sample *s, int64_t page_size)
{
    const attnkit_attention_args *a = &s->args;
    const int64_t kv_rows = a->batch * a->kv_heads * (a->kv_len + page_size) + 3 * page_size;
    return 3 * a->batch * a->q_heads * a->q_len + 4 * kv_rows <= MOST_GUARDED;
}

/* Lays the case out in the given layout, or in layout GAPS if the case does not allow the given
 * layout. A page_size of 0 means no pages. */
static struct call *lay_out(const struct sample *s, enum rows_layout layout, int64_t page_size)
{
    struct call *c = &call;
    int slot = 0;
    if (layout >= GUARD_NEXT && !fits_slots(s, page_size))
        layout = GAPS;
    if (layout == REPEATED && !s->shared)
        layout = GAPS;
    memset(c, 0, sizeof *c);
    c->s = s;
    c->args = s->args;
    c->groups = s->groups;
    groups_hang(&c->args, &c->groups);
    if (page_size > 0)
        draw_pages(c, page_size);
    for (int t = 0; t < TENSORS; t++) {
        if (dim_of(s, (enum tensor_index)t) == 0)
            continue;
        place_tensor(c, (enum tensor_index)t, layout, &slot);
        if (t == OUT || t == LSE)
            fill_output(&c->tensors[t]);
        else
            fill_input(c, (enum tensor_index)t);
    }
    set_tensors(c, layout);
    return c;
}

/* --- Running and comparing -------------------------------------------------------------------- */

/* A range of rows in every batch entry and head. In batch entry b, only rows before compared[b] are
 * compared. */
struct row_run {
    int64_t first, count;
    int64_t compared[MAX_BATCH];
};

static struct row_run all_of(int64_t first, int64_t count)
{
    const int64_t end = first + count;
    return (struct row_run){first, count, {end, end, end}};
}

/* Runs a call that computes only `rows`. */
static void run_rows(const struct call *c, const struct row_run *rows, const char *isa, int threads)
{
    attnkit_attention_args part = c->args;
    int64_t offsets[MAX_BATCH];
    if (rows->count < part.q_len) {
        part.q_len = rows->count;
        part.q.data = row_in(c, Q, 0, 0, rows->first);
        part.out.data = row_in(c, OUT, 0, 0, rows->first);
        part.lse.data = row_in(c, LSE, 0, 0, rows->first);
        for (int64_t b = 0; b < part.batch; b++)
            offsets[b] = q_offset_of(c->s, b) + rows->first;
        part.align = ATTNKIT_ALIGN_OFFSETS;
        part.q_offsets.data = offsets;
    }
    run_attention(&part, (struct runner){.isa = isa, .threads = threads});
}

static bool is_pattern(const char *memory, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)memory[i] != PATTERN)
            return false;
    return true;
}

/* Overwrites the rows with the pattern. Returns whether the whole tensor then has the pattern. If
 * the tensor is in slots, only the slots of these rows are checked. */
static bool wipe(const struct call *c, enum tensor_index index, const struct row_run *rows)
{
    const struct tensor *t = &c->tensors[index];
    bool untouched = true;
    for (int64_t b = 0; b < t->count[0]; b++)
        for (int64_t h = 0; h < t->count[1]; h++)
            for (int64_t i = rows->first; i < rows->first + rows->count; i++) {
                char *row = row_at(t, b, h, i);
                memset(row, PATTERN, (size_t)t->row_bytes);
                untouched &= t->size > 0 || is_pattern(slot_of(t, row), SLOT_BYTES);
            }
    return untouched && is_pattern(t->memory, t->size);
}

static bool row_is_right(const struct call *c, int64_t b, int64_t h, int64_t i)
{
    const struct sample *s = c->s;
    const int64_t dim = s->args.value_dim;
    const int64_t row = (b * s->args.q_heads + h) * s->args.q_len + i;
    return is_narrowed_row(type_of(s, OUT), s->expected.out + row * dim, row_in(c, OUT, b, h, i),
                           dim) &&
           same_bits(s->expected.lse + row, (const float *)row_in(c, LSE, b, h, i), 1);
}

/* Runs and compares the rows, and overwrites the outputs with the pattern. Returns NULL, or a
 * message that describes the fault. */
static const char *check_rows(const struct call *c, const struct row_run *rows, const char *isa,
                              int threads)
{
    run_rows(c, rows, isa, threads);
    bool right = true;
    for (int64_t b = 0; b < c->args.batch; b++)
        for (int64_t h = 0; h < c->args.q_heads; h++)
            for (int64_t i = rows->first; i < rows->first + rows->count; i++)
                right &= i >= rows->compared[b] || row_is_right(c, b, h, i);
    const bool out_is_clean = wipe(c, OUT, rows), lse_is_clean = wipe(c, LSE, rows);
    if (!right)
        return "differs from the reference";
    return out_is_clean && lse_is_clean ? NULL : "bytes outside the rows were written";
}

static void report(const struct call *c, const char *what, const char *isa, const char *wrong)
{
    const attnkit_attention_args *a = &c->args;
    if (!wrong || differing++ >= REPORTED)
        return;
    printf("# %s, types %d %d %d %d, D %d/%d, heads %d/%d, B %d, Lq %d, Lkv %d, layout %s, pages "
           "of %d: %s %s; again: types %s %d\n",
           isa, (int)a->q.type, (int)a->k.type, (int)a->v.type, (int)a->out.type, (int)a->head_dim,
           (int)a->value_dim, (int)a->q_heads, (int)a->kv_heads, (int)a->batch, (int)a->q_len,
           (int)a->kv_len, a->q.layout & ATTNKIT_STRIDED ? "strided" : "dense",
           (int)c->groups.pages.page_size, what, wrong, isa, c->s->number);
}

/* Runs and checks the whole case on every instruction set. */
static void check_whole(const struct call *c)
{
    const struct row_run all = all_of(0, c->args.q_len);
    for (int i = 0; i < options.isas; i++)
        report(c, "the call", options.isa[i], check_rows(c, &all, options.isa[i], c->s->threads));
}

/* Runs and checks parts of the case: one row of each head, as in a decoding step, and some rows, as
 * in a chunk of a prefill. Without strides, the function checks nothing. */
static void check_parts(const struct call *c)
{
    uint64_t random = c->s->random;
    if (!(c->args.q.layout & ATTNKIT_STRIDED))
        return;
    const int64_t first = random_below(&random, c->args.q_len);
    const struct row_run one = all_of(first, 1);
    const struct row_run chunk = all_of(first, 1 + random_below(&random, c->args.q_len - first));
    for (int i = 0; i < options.isas; i++) {
        report(c, "a row by itself", options.isa[i], check_rows(c, &one, options.isa[i], 1));
        report(c, "a chunk", options.isa[i], check_rows(c, &chunk, options.isa[i], 1));
    }
}

/* --- Tests ------------------------------------------------------------------------------------ */

/* The numbers of a test's cases, `step` apart. If the user requested a case, the only number is the
 * number of this case. */
struct numbers {
    int first, end, step;
};

static struct numbers numbers_from(int first, int count, int step)
{
    if (options.only >= 0)
        return (struct numbers){options.only, options.only + 1, 1};
    return (struct numbers){first, first + count * step, step};
}

static int begin_cases(void **state)
{
    (void)state;
    differing = 0;
    return 0;
}

/* Prints the number of the current case if a fault has ended the test in the middle of the case. */
static int name_unfinished_case(void **state)
{
    (void)state;
    if (number_in_work >= 0)
        printf("# ended in case %d; again: types %s %d\n", number_in_work, options.isa[0],
               number_in_work);
    number_in_work = -1;
    return 0;
}

static void drawn_cases_have_the_bits_of_the_reference(void **state)
{
    (void)state;
    /* A sampled run goes through all types at least once. */
    const int count = is_long_run() ? 10 * CASES : sampled(CASES, TURNS);
    const struct numbers n = numbers_from(0, count, 1);
    for (int number = n.first; number < n.end; number += n.step) {
        struct sample *s = new_sample(number, false);
        check_whole(lay_out(s, TIGHT, 0));
        const struct call *c = lay_out(s, s->layout, s->page_size);
        check_whole(c);
        check_parts(c);
        free_sample(s);
    }
    printf("# %d cases, %d differ\n", n.end - n.first, differing);
    assert_int_equal(differing, 0);
}

static void check_every_layout(int number, bool shared)
{
    struct sample *s = new_sample(number, shared);
    for (int layout = 0; layout < ROWS_LAYOUTS; layout++)
        for (int p = 0; p < PAGE_SIZES; p++)
            check_whole(lay_out(s, (enum rows_layout)layout, page_sizes[p]));
    free_sample(s);
}

/* Each number makes two cases. In the second case, batch entries and heads share K and V. A sampled
 * run takes one of the two cases. The types of K and V change from number to number. */
static void every_layout_and_page_size_gives_the_same_bits(void **state)
{
    (void)state;
    const struct numbers n = numbers_from(1000, 2 * TYPES, TYPES + 1);
    for (int number = n.first; number < n.end; number += n.step) {
        const bool is_odd = (number - n.first) / n.step % 2 != 0;
        for (int shared = 0; shared < 2; shared++)
            if (!is_sampled_run() || shared == is_odd)
                check_every_layout(number, shared);
    }
    assert_int_equal(differing, 0);
}

/* Fills rows of K, V or their scales with the 16 bits `half`: the rows of keys that only query rows
 * after `last` see. */
static void poison_unseen(const struct call *c, enum tensor_index t, int64_t last, uint16_t half)
{
    const attnkit_attention_args *a = &c->args;
    for (int64_t b = 0; b < a->batch && dim_of(c->s, t) > 0; b++)
        for (int64_t h = 0; h < a->kv_heads; h++)
            for (int64_t key = keys_seen(c->s, b, last); key < keys_seen(c->s, b, a->q_len - 1);
                 key++)
                fill_halves(row_in(c, t, b, h, key), (size_t)c->tensors[t].row_bytes, half);
}

/* Returns whether the call's final row sees keys that are masked for row `last`. Returns false if
 * batch entries or heads share K and V, because a key that is masked in one entry may then be
 * visible in a different entry. */
static bool has_masked_keys(const struct sample *s, int64_t last)
{
    bool any = false;
    for (int64_t b = 0; b < s->args.batch; b++)
        any |= keys_seen(s, b, last) < keys_seen(s, b, s->args.q_len - 1);
    return any && !s->shared;
}

static void check_poisoned(const struct sample *s, int64_t last, const uint16_t poison[TENSORS])
{
    const struct call *c = lay_out(s, GAPS, s->page_size);
    for (int t = K; t < TENSORS; t++)
        if (is_kv((enum tensor_index)t))
            poison_unseen(c, (enum tensor_index)t, last, poison[t]);
    struct row_run all = all_of(0, c->args.q_len), few = all_of(last, 1);
    few.count = c->args.q_len - last < 3 ? c->args.q_len - last : 3;
    for (int b = 0; b < MAX_BATCH; b++)
        all.compared[b] = few.compared[b] = last + 1;
    for (int i = 0; i < options.isas; i++) {
        report(c, "with poison, the call", options.isa[i], check_rows(c, &all, options.isa[i], 1));
        report(c, "with poison, few rows", options.isa[i], check_rows(c, &few, options.isa[i], 1));
    }
}

/* Rows up to row `last`, the middle row, keep their bits if the keys that none of them sees have
 * NaN, infinities or the largest numbers as elements and scales. */
static void what_masked_keys_hold_changes_no_bit(void **state)
{
    (void)state;
    static const uint16_t others[] = {0xffff, 0x7c00, 0xff80, 0x7bff};
    const struct numbers n = numbers_from(5000, sampled(CASES, 2), 1);
    int checked = 0;
    for (int number = n.first; number < n.end; number += n.step) {
        struct sample *s = new_sample(number, false);
        const int64_t last = s->args.q_len / 2;
        uint16_t poison[TENSORS];
        for (int t = 0; t < TENSORS; t++)
            poison[t] =
                number % 2 ? poison_of(type_of(s, (enum tensor_index)t)) : others[number / 2 % 4];
        if (has_masked_keys(s, last)) {
            check_poisoned(s, last, poison);
            checked++;
        }
        free_sample(s);
    }
    printf("# %d cases with poison, %d differ\n", checked, differing);
    assert_true(checked > 10 || options.only >= 0);
    assert_int_equal(differing, 0);
}

static void read_options(int argc, char **argv)
{
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        if (attnkit_isa_can_run(&isas[i]) && (argc < 2 || strcmp(argv[1], isas[i].name) == 0))
            options.isa[options.isas++] = isas[i].name;
    if (argc > 2)
        options.only = atoi(argv[2]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(drawn_cases_have_the_bits_of_the_reference, begin_cases,
                                        name_unfinished_case),
        cmocka_unit_test_setup_teardown(every_layout_and_page_size_gives_the_same_bits, begin_cases,
                                        name_unfinished_case),
        cmocka_unit_test_setup_teardown(what_masked_keys_hold_changes_no_bit, begin_cases,
                                        name_unfinished_case),
    };
    expect_isa(argc, argv);
    read_options(argc, argv);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    memory_end();
    return failed;
}
