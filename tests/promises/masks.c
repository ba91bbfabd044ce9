/* SPDX-License-Identifier: Apache-2.0
 *
 * Masks and score functions in any combination: each instruction set against the scalar reference,
 * bit for bit, in out, lse and weights; all take a case in turn, because the reference takes
 * longest of all. A case is drawn from its number: which of all options a call has, and their
 * values; shapes, types, tiles, pages, packed sequences; threads. What no row of a KV head sees is
 * NaN in K and V, or in unmapped memory.
 *
 * With --bound, every fifth case of the scalar reference against the oracle: each element of out,
 * lse and weights is inside the bound that tests/oracle/oracle.c derives, and NaN or infinite where
 * it says so. Once is enough, because all have the same bits.
 *
 *   masks [--isa NAME | --bound] [--bochs] [--case NUMBER] [--cases N] [--from NUMBER] [--every N]
 *
 * --bochs leaves out results of f16, which that emulator rounds wrongly. N is 1,000, and ten times
 * as large with ATTNKIT_TEST_LONG in the environment.
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

#include "dispatch/attention/check.h"
#include "dispatch/cpu/isa.h"
#include "kernels/attention/mask.h"
#include "kernels/scalar/reference.h"
#include "kernels/scalar/scalar.h"
#include "attnkit.h"
#include "tests/oracle/oracle.h"
#include "tests/support/case.h"
#include "tests/support/memory.h"
#include "tests/support/random.h"
#include "tests/support/tally.h"

enum {
    CASES = 1000,
    LONGER = 10,
    BOUND_EVERY = 5,
    MAX_BATCH = 3,
    MAX_HEADS = 24,
    MAX_KV_LEN = 1400,
    MAX_PIECES = 20,
    REPORTED = 5,
};

static struct {
    const char *isa; /* NULL: all */
    bool bound;      /* instead of instruction sets */
    bool bochs;
    int only; /* a case, or -1 */
    int cases, from, every;
} options = {.only = -1, .cases = CASES, .every = 1};

static struct tallies tallies;

/* A case, and the memory it has. */
struct drawn {
    uint64_t random;
    attnkit_attention_args args;
    int64_t kv_lens[MAX_BATCH], q_offsets[MAX_BATCH];
    int64_t q_starts[MAX_BATCH + 1], kv_starts[MAX_BATCH + 1];
    uint64_t seeds[MAX_BATCH];
    float slopes[MAX_HEADS], sinks[MAX_HEADS];
    int threads;
    bool slots;  /* each row of K and V is a page of its own */
    bool tokens; /* K and V are [batch][key][head] */
    int pieces;
    struct guarded piece[MAX_PIECES];
    size_t out_bytes, lse_bytes, weights_bytes;
};

static int64_t below(struct drawn *c, int64_t n)
{
    return random_below(&c->random, n);
}

static bool one_in(struct drawn *c, int64_t n)
{
    return below(c, n) == 0;
}

/* Memory that ends at an unmapped page. */
static void *take(struct drawn *c, size_t size)
{
    struct guarded *const m = &c->piece[c->pieces++];
    assert_true(c->pieces <= MAX_PIECES);
    *m = memory_guarded(size, 0, true);
    return m->data;
}

/* --- Shapes ----------------------------------------------------------------------------------- */

static int64_t draw_dim(struct drawn *c, attnkit_type type, int64_t *group)
{
    static const int64_t dims[] = {1, 2, 3, 8, 15, 16, 17, 33, 40, 64, 65};
    if (type == ATTNKIT_Q8_0)
        return 32 * (1 + below(c, 2));
    if (type == ATTNKIT_I8 && one_in(c, 2)) {
        static const int64_t groups[] = {1, 3, 8, 16, 32};
        *group = groups[below(c, 5)];
        return *group * (1 + below(c, 64 / *group));
    }
    return dims[below(c, 11)];
}

static attnkit_type draw_type(struct drawn *c, int types)
{
    return one_in(c, 2) ? ATTNKIT_F32 : (attnkit_type)below(c, types);
}

static double cost(const attnkit_attention_args *a)
{
    const double entries = a->q_starts ? 1 : (double)a->batch;
    return entries * (double)(a->q_heads * a->q_len) * (double)a->kv_len *
           (double)(a->head_dim + a->value_dim + 24);
}

static void draw_shape(struct drawn *c)
{
    static const int64_t q_lens[] = {1, 1, 1, 2, 3, 5, 8, 16, 17, 33, 65, 129, 300};
    static const int64_t kv_lens[] = {0,   1,   5,   15,  16,  17,  33,  64,  100, 127,  128,
                                      129, 130, 200, 256, 300, 400, 511, 513, 700, 1100, 1400};
    attnkit_attention_args *const a = &c->args;
    a->size = sizeof *a;
    a->q_type = draw_type(c, 3);
    a->k_type = draw_type(c, 5);
    a->v_type = draw_type(c, 5);
    a->out_type = draw_type(c, 3);
    a->head_dim = draw_dim(c, a->k_type, &a->k_scale_group);
    a->value_dim = draw_dim(c, a->v_type, &a->v_scale_group);
    do {
        a->batch = 1 + below(c, MAX_BATCH);
        a->kv_heads = 1 + below(c, 3);
        a->q_heads = a->kv_heads * (1 + below(c, one_in(c, 3) ? 8 : 3));
        a->q_len = q_lens[below(c, 13)];
        a->kv_len = kv_lens[below(c, 22)];
    } while (cost(a) > 2e6);
}

/* Where sequences begin in `total` rows. */
static void draw_starts(struct drawn *c, int64_t total, int64_t *starts)
{
    for (int64_t b = 1; b <= c->args.batch; b++)
        starts[b] =
            b == c->args.batch ? total : starts[b - 1] + below(c, total - starts[b - 1] + 1);
}

static void draw_pages(struct drawn *c)
{
    static const int64_t sizes[] = {1, 5, 16, 48, 128, 256};
    attnkit_attention_args *const a = &c->args;
    do
        a->page_size = sizes[below(c, 6)];
    while ((a->flags & ATTNKIT_TILED) && a->page_size % ATTNKIT_TILE_KEYS != 0);
    a->page_table_stride = (a->kv_len + a->page_size - 1) / a->page_size;
    a->pages = a->batch * a->page_table_stride;
    int32_t *const table = take(c, (size_t)a->pages * sizeof *table);
    a->page_table = table;
    for (int64_t i = 0; i < a->pages; i++) {
        const int64_t b = i / a->page_table_stride, first = i % a->page_table_stride * a->page_size;
        table[i] =
            first < (a->kv_lens ? c->kv_lens[b] : a->kv_len) ? (int32_t)(a->pages - 1 - i) : -1;
    }
}

static void draw_storage(struct drawn *c)
{
    attnkit_attention_args *const a = &c->args;
    if (one_in(c, 4)) {
        draw_starts(c, a->q_len, c->q_starts);
        a->q_starts = c->q_starts;
    }
    if (one_in(c, 8)) {
        draw_starts(c, a->kv_len, c->kv_starts);
        a->kv_starts = c->kv_starts;
        return;
    }
    for (int64_t b = 0; b < a->batch; b++)
        c->kv_lens[b] = below(c, a->kv_len + 1);
    if (one_in(c, 3))
        a->kv_lens = c->kv_lens;
    if (one_in(c, 4))
        a->flags |= ATTNKIT_TILED;
    if (one_in(c, 4))
        draw_pages(c);
    else if (a->k_type <= ATTNKIT_BF16 && a->v_type <= ATTNKIT_BF16 && !(a->flags & ATTNKIT_TILED))
        *(one_in(c, 2) ? &c->slots : &c->tokens) = one_in(c, 3);
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
        a->q_offsets = c->q_offsets;
    if (!one_in(c, 3))
        a->flags |= ATTNKIT_CAUSAL;
    if (one_in(c, 3)) {
        a->flags |= ATTNKIT_WINDOW;
        a->window_left = one_in(c, 4) ? -1 : below(c, one_in(c, 2) ? 4 : 300);
        a->window_right = one_in(c, 3) ? -1 : below(c, one_in(c, 2) ? 4 : 300);
        a->window_left = one_in(c, 20) ? INT64_MAX - 1 : a->window_left;
        a->keep_first = one_in(c, 2) ? below(c, 200) : 0;
    }
}

static int32_t *draw_docs(struct drawn *c, int64_t count)
{
    int32_t *const docs = take(c, (size_t)count * sizeof *docs);
    const bool random = one_in(c, 3);
    for (int64_t i = 0; i < count; i++)
        docs[i] = (int32_t)(random ? below(c, 2) : i / 70 % 5);
    return docs;
}

/* The strides and bytes of a mask with rows of so many bytes, repeated along some dimensions. */
static size_t draw_mask_strides(struct drawn *c, int64_t row_bytes, int64_t alignment,
                                int64_t strides[3])
{
    const attnkit_attention_args *const a = &c->args;
    const int64_t count[3] = {a->q_starts ? 1 : a->batch, a->q_heads, a->q_len};
    int64_t bytes = row_bytes;
    for (int i = 2; i >= 0; i--) {
        strides[i] = 0;
        if (one_in(c, 3) || count[i] == 0)
            continue;
        const int64_t gap = one_in(c, 4) ? alignment * below(c, 5) : 0;
        strides[i] = bytes + gap;
        bytes += strides[i] * (count[i] - 1);
        bytes = (bytes + alignment - 1) / alignment * alignment;
    }
    return (size_t)bytes;
}

static int64_t draw_columns(struct drawn *c)
{
    const int64_t kv_len = c->args.kv_len;
    return one_in(c, 4) && kv_len > 1 ? 1 + below(c, kv_len - 1) : kv_len;
}

/* Bytes, of which some regions are all true, all false, or anything. */
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
    attnkit_attention_args *const a = &c->args;
    a->bias_type = (attnkit_type)below(c, 3);
    a->bias_columns = draw_columns(c);
    const int64_t element = bytes_of((enum type)a->bias_type, 1);
    const size_t bytes = draw_mask_strides(c, a->bias_columns * element, element, a->bias_strides);
    const int64_t count = (int64_t)bytes / element;
    char *const bias = take(c, bytes);
    const bool special = one_in(c, 10);
    for (int64_t i = 0; i < count;) {
        const int64_t kind = below(c, 40) == 0 && special ? 2
                             : below(c, 3) % 3 == 2       ? 3
                                                          : below(c, 2);
        for (int64_t end = i + 1 + below(c, 90); i < end && i < count; i++) {
            const float x = draw_bias(c, kind);
            attnkit_scalar_narrow((enum type)a->bias_type, &x, 1, 1, bias + i * element, NULL);
        }
    }
    a->bias = bias;
}

static void draw_masks(struct drawn *c)
{
    attnkit_attention_args *const a = &c->args;
    const int64_t rows = a->q_starts ? a->q_len : a->batch * a->q_len;
    a->flags |= ATTNKIT_MASK_STRIDED;
    if (one_in(c, 5)) {
        a->q_docs = draw_docs(c, rows);
        a->kv_docs = draw_docs(c, a->kv_starts ? a->kv_len : a->batch * a->kv_len);
    }
    if (a->kv_len == 0)
        return;
    if (one_in(c, 3)) {
        a->mask_kind = (attnkit_mask)(1 + below(c, 2));
        a->mask_columns = draw_columns(c);
        a->mask = draw_bytes(c, draw_mask_strides(c, a->mask_columns, 1, a->mask_strides));
    }
    if (one_in(c, 4)) {
        a->mask_bits_kind = (attnkit_mask)(1 + below(c, 2));
        a->mask_bits_columns = draw_columns(c);
        a->mask_bits = draw_bytes(
            c, draw_mask_strides(c, (a->mask_bits_columns + 7) / 8, 1, a->mask_bits_strides));
    }
    if (one_in(c, 3))
        draw_bias_tensor(c);
}

static void draw_functions(struct drawn *c)
{
    attnkit_attention_args *const a = &c->args;
    for (int h = 0; h < MAX_HEADS; h++) {
        c->slopes[h] = random_uniform(&c->random);
        c->sinks[h] = one_in(c, 20) ? -INFINITY : 4.0f * random_uniform(&c->random);
    }
    if (one_in(c, 60))
        c->sinks[below(c, MAX_HEADS)] = one_in(c, 2) ? NAN : INFINITY;
    if (one_in(c, 4))
        a->softcap = one_in(c, 3) ? 0.5 : 30.0;
    if (one_in(c, 5) && a->align)
        a->alibi_slopes = c->slopes;
    if (one_in(c, 4))
        a->sinks = c->sinks;
    if (one_in(c, 6) && a->align) {
        a->dropout = one_in(c, 3) ? 0.9 : 0.1;
        a->dropout_seeds = c->seeds;
        for (int b = 0; b < MAX_BATCH; b++)
            c->seeds[b] = random_bits(&c->random);
    }
    if (one_in(c, 4)) {
        a->flags |= ATTNKIT_SCALE_GIVEN;
        a->scale = one_in(c, 4) ? 0.0 : random_uniform(&c->random);
    }
}

/* --- Tensors ---------------------------------------------------------------------------------- */

static void draw_queries(struct drawn *c)
{
    attnkit_attention_args *const a = &c->args;
    const int64_t count = (a->q_starts ? 1 : a->batch) * a->q_heads * a->q_len * a->head_dim;
    const int64_t element = bytes_of((enum type)a->q_type, 1);
    char *const q = take(c, (size_t)(count * element));
    for (int64_t i = 0; i < count; i++) {
        const float x = 3.0f * random_uniform(&c->random);
        attnkit_scalar_narrow((enum type)a->q_type, &x, 1, 1, q + i * element, NULL);
    }
    a->q = q;
}

static void take_outputs(struct drawn *c)
{
    attnkit_attention_args *const a = &c->args;
    const int64_t rows = (a->q_starts ? 1 : a->batch) * a->q_heads * a->q_len;
    c->out_bytes = (size_t)(rows * bytes_of((enum type)a->out_type, a->value_dim));
    c->lse_bytes = (size_t)rows * sizeof(float);
    a->out = take(c, c->out_bytes);
    a->lse = take(c, c->lse_bytes);
    if (!one_in(c, 3))
        return;
    a->weights_kind = (attnkit_weights)(1 + below(c, 4));
    c->weights_bytes = (size_t)(rows * a->kv_len) * sizeof(float);
    a->weights = take(c, c->weights_bytes);
}

/* K or V as the append writes it. */
struct store {
    attnkit_append_args append;
    void **data;
    float **scales;
    int64_t *strides;
};

static struct store store_of(struct drawn *c, bool is_k)
{
    attnkit_attention_args *const a = &c->args;
    const int64_t dim = is_k ? a->head_dim : a->value_dim;
    const int64_t group = is_k ? a->k_scale_group : a->v_scale_group;
    return (struct store){
        .append = {.size = sizeof(attnkit_append_args),
                   .flags = is_k ? a->flags & ATTNKIT_TILED : 0,
                   .batch = a->kv_starts ? 1 : a->batch,
                   .heads = a->kv_heads,
                   .len = a->kv_len,
                   .lens = a->kv_lens,
                   .dim = dim,
                   .capacity = a->kv_len,
                   .dst_type = is_k ? a->k_type : a->v_type,
                   .scale_group = group,
                   .page_table = a->page_table,
                   .page_table_stride = a->page_table_stride,
                   .page_size = a->page_size,
                   .pages = a->pages},
        .data = (void **)(is_k ? &a->k : &a->v),
        .scales = (float **)(is_k ? &a->k_scales : &a->v_scales),
        .strides = is_k ? a->k_strides : a->v_strides,
    };
}

static int64_t rows_of(const attnkit_append_args *p)
{
    int64_t rows = p->page_table ? p->page_size : p->capacity;
    if (p->flags & ATTNKIT_TILED)
        rows = (rows + ATTNKIT_TILE_KEYS - 1) / ATTNKIT_TILE_KEYS * ATTNKIT_TILE_KEYS;
    return (p->page_table ? p->pages : p->batch) * p->heads * rows;
}

static void take_store(struct drawn *c, struct store *s, int *slot)
{
    attnkit_append_args *const p = &s->append;
    const int64_t rows = rows_of(p);
    const int64_t bytes = bytes_of((enum type)p->dst_type, p->dim);
    const int64_t group = p->scale_group ? p->scale_group : p->dim;
    if (c->slots) {
        *s->data = memory_slots(*slot, (int)rows + 1) + SLOT_BYTES - bytes;
        *slot += (int)rows + 1;
        s->strides[2] = SLOT_STRIDE;
        s->strides[1] = s->strides[2] * p->len;
        s->strides[0] = s->strides[1] * p->heads;
    } else {
        s->strides[1] = bytes; /* of tokens; the others are dense */
        s->strides[2] = s->strides[1] * p->heads;
        s->strides[0] = s->strides[2] * p->len;
        *s->data = take(c, (size_t)(rows * bytes));
        memset(*s->data, 0xff, (size_t)(rows * bytes));
    }
    if (p->dst_type == ATTNKIT_I8) {
        *s->scales = take(c, (size_t)(rows * (p->dim / group)) * sizeof(float));
        memset(*s->scales, 0xff, (size_t)(rows * (p->dim / group)) * sizeof(float));
    }
}

static void clear_strides(attnkit_attention_args *a)
{
    memset(a->k_strides, 0, sizeof a->k_strides);
    memset(a->v_strides, 0, sizeof a->v_strides);
}

static void set_strides(struct drawn *c)
{
    attnkit_attention_args *const a = &c->args;
    const int64_t bytes[4] = {bytes_of((enum type)a->q_type, a->head_dim),
                              bytes_of((enum type)a->out_type, a->value_dim), 4, 4 * a->kv_len};
    int64_t *const strides[4] = {a->q_strides, a->out_strides, a->lse_strides, a->weights_strides};
    a->flags |= ATTNKIT_STRIDED;
    for (int i = 0; i < 4; i++) {
        strides[i][2] = bytes[i];
        strides[i][1] = bytes[i] * a->q_len;
        strides[i][0] = bytes[i] * a->q_len * a->q_heads;
    }
}

/* Whether a row of the KV head sees each key, by entry, head and key. */
static bool *seen_keys(const struct attention *a, const attnkit_attention_args *args)
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
                            const int64_t key = (a->kv_starts ? a->kv_starts[b] : 0) + block + i;
                            seen[((a->kv_starts ? 0 : b) * heads + h) * keys + key] = true;
                        }
                }
    return seen;
}

/* Weights out may be asked for of keys that no row sees. */
static bool reads_all_keys(const attnkit_attention_args *args)
{
    return args->weights_kind == ATTNKIT_WEIGHTS_CAPPED ||
           args->weights_kind == ATTNKIT_WEIGHTS_SCALED;
}

static bool *all_keys(const attnkit_attention_args *args)
{
    const size_t count = (size_t)(args->batch * args->kv_heads * args->kv_len);
    bool *const all = malloc(count + 1);
    memset(all, true, count);
    return all;
}

static void fill_store(struct drawn *c, const struct store *s, const bool *seen, bool special)
{
    static const float specials[] = {NAN, INFINITY, -INFINITY, -0.0f, 1e30f, 1e-40f};
    attnkit_append_args append = s->append;
    const int64_t rows = append.batch * append.heads * append.len;
    float *const src = malloc((size_t)(rows * append.dim + 1) * sizeof *src);
    char workspace[20 * 256 + 128], message[ATTNKIT_MESSAGE_SIZE];
    for (int64_t i = 0; i < rows * append.dim; i++) {
        src[i] = random_uniform(&c->random);
        if (special && one_in(c, 300))
            src[i] = specials[below(c, 6)];
        if (!seen[i / append.dim])
            src[i] = NAN;
    }
    append.src = src;
    append.dst = *s->data;
    append.dst_scales = *s->scales;
    if (c->slots || c->tokens) {
        append.flags |= ATTNKIT_STRIDED;
        append.src_strides[2] = 4 * append.dim;
        append.src_strides[1] = append.src_strides[2] * append.len;
        append.src_strides[0] = append.src_strides[1] * append.heads;
        memcpy(append.dst_strides, s->strides, sizeof append.dst_strides);
    }
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
    struct problem p;
    struct store k = store_of(c, true), v = store_of(c, false);
    char message[ATTNKIT_MESSAGE_SIZE];
    int slot = 0;
    take_store(c, &k, &slot);
    const int v_slot = slot;
    take_store(c, &v, &slot);
    if (c->slots || c->tokens)
        set_strides(c);
    else /* the strides are not to be looked at */
        clear_strides(&c->args);
    if (attnkit_check(&c->args, &p, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    bool *const seen = p.empty ? calloc(1, 1) : seen_keys(&p.a, &c->args);
    bool *const seen_k = reads_all_keys(&c->args) ? all_keys(&c->args) : seen;
    const bool special = one_in(c, 6);
    if (!p.empty) {
        fill_store(c, &k, seen_k, special);
        fill_store(c, &v, seen, special);
    }
    if (c->slots && !p.empty) {
        hide_slots(&k, seen_k, 0);
        hide_slots(&v, seen, v_slot);
    }
    if (seen_k != seen)
        free(seen_k);
    free(seen);
}

static struct drawn *new_case(int number)
{
    struct drawn *const c = calloc(1, sizeof *c);
    c->random = (uint64_t)number * 7919;
    draw_shape(c);
    draw_storage(c);
    if (!one_in(c, 4))
        draw_positions(c);
    draw_masks(c);
    draw_functions(c);
    draw_queries(c);
    take_outputs(c);
    draw_keys(c);
    c->threads = 1 + (int)below(c, 4);
    return c;
}

static void free_case(struct drawn *c)
{
    for (int i = 0; i < c->pieces; i++)
        memory_unguard(&c->piece[i]);
    free(c);
}

/* --- Running and comparing -------------------------------------------------------------------- */

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
    if (attnkit_attention_workspace(args, &exec, &exec.workspace_size, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    struct guarded workspace = memory_guarded(exec.workspace_size, 0, true);
    exec.workspace = workspace.data;
    if (attnkit_attention(args, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    memory_unguard(&workspace);
}

struct outputs {
    char *out;
    float *lse, *weights;
};

static struct outputs expected_outputs(const struct drawn *c)
{
    struct problem p;
    struct outputs o = {malloc(c->out_bytes + 1), malloc(c->lse_bytes + 1),
                        malloc(c->weights_bytes + 1)};
    assert_int_equal(attnkit_check(&c->args, &p, NULL), ATTNKIT_OK);
    p.a.out = o.out;
    p.a.lse = (char *)o.lse;
    if (p.a.extras.weights)
        p.a.extras.weights = (char *)o.weights;
    if (!p.empty)
        attnkit_reference(&p.a);
    return o;
}

static void free_outputs(const struct outputs *o)
{
    free(o->out);
    free(o->lse);
    free(o->weights);
}

static bool same_out(const struct drawn *c, const char *expected)
{
    const enum type type = (enum type)c->args.out_type;
    const int64_t count = (int64_t)c->out_bytes / bytes_of(type, 1);
    float *const x = malloc((size_t)count * 2 * sizeof *x + 1), *const y = x + count;
    attnkit_scalar_widen(type, expected, NULL, 0, count, x);
    attnkit_scalar_widen(type, c->args.out, NULL, 0, count, y);
    const bool same = same_bits(x, y, (size_t)count);
    free(x);
    return same;
}

static const char *compare(const struct drawn *c, const struct outputs *expected)
{
    if (!same_bits(expected->lse, c->args.lse, c->lse_bytes / sizeof(float)))
        return "lse differs";
    if (!same_out(c, expected->out))
        return "out differs";
    if (c->args.weights &&
        !same_bits(expected->weights, c->args.weights, c->weights_bytes / sizeof(float)))
        return "weights differ";
    return NULL;
}

static void clear_outputs(const struct drawn *c)
{
    memset(c->args.out, 0xa5, c->out_bytes);
    memset(c->args.lse, 0xa5, c->lse_bytes);
    if (c->args.weights)
        memset(c->args.weights, 0xa5, c->weights_bytes);
}

static const char *check_isa(const struct drawn *c, const char *isa, const struct outputs *expected)
{
    clear_outputs(c);
    attend(&c->args, isa, 1);
    const char *wrong = compare(c, expected);
    if (!wrong && c->threads > 1) {
        clear_outputs(c);
        attend(&c->args, isa, c->threads);
        wrong = compare(c, expected);
    }
    return wrong;
}

static void print_case(int number)
{
    struct drawn *const c = new_case(number);
    const attnkit_attention_args *const a = &c->args;
    printf("# B%lld H%lld/%lld %lld x %lld D%lld/%lld types %d %d %d %d flags %x align "
           "%d%s%s%s%s%s%s%s"
           "%s%s%s%s%s%s%s%s threads %d\n",
           (long long)a->batch, (long long)a->q_heads, (long long)a->kv_heads, (long long)a->q_len,
           (long long)a->kv_len, (long long)a->head_dim, (long long)a->value_dim, a->q_type,
           a->k_type, a->v_type, a->out_type, a->flags, a->align, a->q_starts ? " q_starts" : "",
           a->kv_starts ? " kv_starts" : "", a->kv_lens ? " kv_lens" : "",
           a->page_table ? " pages" : "", c->slots ? " slots" : "", c->tokens ? " tokens" : "",
           a->q_docs ? " docs" : "", a->mask ? " mask" : "", a->mask_bits ? " bits" : "",
           a->bias ? " bias" : "", a->softcap > 0 ? " softcap" : "",
           a->alibi_slopes ? " alibi" : "", a->sinks ? " sinks" : "",
           a->dropout > 0 ? " dropout" : "", a->weights ? " weights" : "", c->threads);
    free_case(c);
}

static void check_case(int number)
{
    struct drawn *const c = new_case(number);
    const bool left_out = options.bochs && c->args.out_type == ATTNKIT_F16;
    const struct outputs expected = expected_outputs(c);
    for (int i = 0; i < tallies.count; i++) {
        struct tally *const t = &tallies.of[i];
        const char *const wrong = left_out ? NULL : check_isa(c, t->isa, &expected);
        t->checked++;
        if (wrong && t->differ++ < REPORTED) {
            print_case(number);
            printf("# %s: case %d: %s; again: masks --isa %s --case %d\n", t->isa, number, wrong,
                   t->isa, number);
        }
    }
    free_outputs(&expected);
    free_case(c);
}

static void every_case_runs(void **state)
{
    (void)state;
    const int first = options.only >= 0 ? options.only : options.from;
    const int end = options.only >= 0 ? options.only + 1 : options.cases;
    int checked = 0;
    for (int i = first; i < end; i += options.every, checked++) {
        if (options.only >= 0)
            print_case(i);
        check_case(i);
    }
    for (int i = 0; i < tallies.count; i++)
        assert_int_equal(tallies.of[i].checked, checked);
}

static void isa_has_the_bits_of_the_reference(void **state)
{
    assert_none_differs(*state);
}

/* --- The bound -------------------------------------------------------------------------------- */

/* What the bound is for. A result of 16 bits uses up nearly all of it: its last rounding is by far
 * the largest. */
enum bounded { OUT, OUT_OF_16_BITS, LSE, WEIGHTS, BOUNDED };

/* Results against the oracle: how much of the bound they use, and what there is none for. */
struct judged {
    double worst[BOUNDED];
    long long elements, unbounded, not_finite;
};

static void judge(struct judged *j, enum bounded what, const struct oracle_element *truth,
                  attnkit_type type, float result)
{
    j->elements++;
    j->not_finite += !isfinite(truth->value);
    j->unbounded += isfinite(truth->value) && isinf(truth->bound);
    j->worst[what] = fmax(j->worst[what], oracle_judge(truth, type, (double)result));
}

static void add_judged(struct judged *all, const struct judged *j)
{
    for (int i = 0; i < BOUNDED; i++)
        all->worst[i] = fmax(all->worst[i], j->worst[i]);
    all->elements += j->elements;
    all->unbounded += j->unbounded;
    all->not_finite += j->not_finite;
}

static double worst_of(const struct judged *j)
{
    double worst = 0.0;
    for (int i = 0; i < BOUNDED; i++)
        worst = fmax(worst, j->worst[i]);
    return worst;
}

static void judge_row(const struct drawn *c, const struct outputs *expected, int64_t batch,
                      int64_t head, int64_t row, struct judged *j)
{
    const attnkit_attention_args *const a = &c->args;
    struct oracle_element *const out = malloc((size_t)a->value_dim * sizeof *out);
    struct oracle_element *const weights = malloc((size_t)(a->kv_len + 1) * sizeof *weights);
    const struct oracle_row truth =
        oracle_row(a, batch, head, row, out, a->weights ? weights : NULL);
    const int64_t outer = a->q_starts ? 0 : batch;
    const int64_t line =
        (outer * a->q_heads + head) * a->q_len + row + (a->q_starts ? a->q_starts[batch] : 0);
    const struct oracle_element lse = {.value = truth.lse, .bound = truth.lse_bound};
    const enum type type = (enum type)a->out_type;
    float *const got = malloc((size_t)a->value_dim * sizeof *got);
    attnkit_scalar_widen(type, expected->out + bytes_of(type, line * a->value_dim), NULL, 0,
                         a->value_dim, got);
    for (int64_t i = 0; i < a->value_dim; i++)
        judge(j, type == TYPE_F32 ? OUT : OUT_OF_16_BITS, &out[i], a->out_type, got[i]);
    judge(j, LSE, &lse, ATTNKIT_F32, expected->lse[line]);
    for (int64_t key = 0; key < a->kv_len && a->weights; key++)
        judge(j, WEIGHTS, &weights[key], ATTNKIT_F32, expected->weights[line * a->kv_len + key]);
    free(got);
    free(out);
    free(weights);
}

static void print_judged(const struct judged *j)
{
    printf("# worst error / bound: %.2f of out, %.2f of out in 16 bits, %.2f of lse, %.2f of "
           "weights; %lld elements, of which %lld are NaN or infinite, %lld have no bound\n",
           j->worst[OUT], j->worst[OUT_OF_16_BITS], j->worst[LSE], j->worst[WEIGHTS], j->elements,
           j->not_finite, j->unbounded);
}

static struct judged judge_case(int number)
{
    struct drawn *const c = new_case(number);
    const attnkit_attention_args *const a = &c->args;
    const struct outputs expected = expected_outputs(c);
    struct judged j = {0};
    for (int64_t b = 0; b < a->batch; b++) {
        const int64_t rows = a->q_starts ? a->q_starts[b + 1] - a->q_starts[b] : a->q_len;
        for (int64_t h = 0; h < a->q_heads; h++)
            for (int64_t i = 0; i < rows; i++)
                judge_row(c, &expected, b, h, i, &j);
    }
    free_outputs(&expected);
    free_case(c);
    return j;
}

static void reference_is_inside_the_bound(void **state)
{
    (void)state;
    const int first = options.only >= 0 ? options.only : 0;
    const int end = options.only >= 0 ? options.only + 1 : options.cases;
    struct judged all = {0};
    int outside = 0;
    for (int i = first; i < end; i += BOUND_EVERY) {
        const struct judged j = judge_case(i);
        const bool is_outside = worst_of(&j) > 1.0;
        if (options.only >= 0 || (is_outside && outside < REPORTED)) {
            print_case(i);
            print_judged(&j);
            printf("# again: masks --bound --case %d\n", i);
        }
        outside += is_outside;
        add_judged(&all, &j);
    }
    print_judged(&all);
    assert_int_equal(outside, 0);
    if (options.only < 0) /* a bound that is everywhere infinite would hold */
        assert_true(all.elements > 0 && all.unbounded <= all.elements / 100);
}

static void read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *const value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--bound") == 0)
            options.bound = true;
        else if (strcmp(argv[i], "--bochs") == 0)
            options.bochs = true;
        else if (strcmp(argv[i], "--isa") == 0)
            options.isa = value;
        else if (strcmp(argv[i], "--case") == 0)
            options.only = atoi(value);
        else if (strcmp(argv[i], "--cases") == 0)
            options.cases = atoi(value);
        else if (strcmp(argv[i], "--from") == 0)
            options.from = atoi(value);
        else if (strcmp(argv[i], "--every") == 0)
            options.every = atoi(value);
    }
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    if (getenv("ATTNKIT_TEST_LONG"))
        options.cases *= LONGER;
    struct CMUnitTest tests[MAX_ISAS + 1];
    size_t count = 0;
    tests[count++] = options.bound
                         ? (struct CMUnitTest)cmocka_unit_test(reference_is_inside_the_bound)
                         : (struct CMUnitTest)cmocka_unit_test(every_case_runs);
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    bool known = options.bound;
    for (int i = 0; i < isa_count && !options.bound; i++) {
        if (options.isa && strcmp(options.isa, isas[i].name) != 0)
            continue;
        known = true;
        if (attnkit_isa_can_run(&isas[i]))
            tests[count++] = tally_test(&tallies, isas[i].name, isa_has_the_bits_of_the_reference);
    }
    if (!options.bound && tallies.count == 0) {
        printf(known ? "1..0 # SKIP %s cannot run here\n" : "Bail out! There is no %s\n",
               options.isa);
        return known ? 0 : 2;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = _cmocka_run_group_tests("masks", tests, count, NULL, NULL);
    memory_end();
    return failed;
}
