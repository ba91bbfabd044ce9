/* SPDX-License-Identifier: Apache-2.0
 *
 * Heads whose rows of 16-bit types lie side by side take turns at the blocks of long caches: all
 * heads work on a block before any head works on the next block. If the next block has as many keys
 * as this block, each head prefetches a part of the next block for all heads. Together these parts
 * cover the next block once, in the order of memory. The results have the bits of the same heads
 * computed one after the other. Before the multiplication, some instruction sets copy rows of
 * binary32 that do not lie together, and transpose rows of 16-bit types. Some instruction sets
 * compute a block of all heads in one call. Copying, transposing and computing in one call change
 * no bit.
 *
 * Usage: turns [ISA]
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
#include "kernels/attention/block.h"
#include "tests/support/memory.h"
#include "tests/support/random.h"
#include "tests/support/units.h"

enum {
    MAX_ISAS = 8,
    MAX_HEADS = 8,
};

/* --- Parts ------------------------------------------------------------------------------------ */

static void expect_part(const char *const *rows, int keys, const char *first, int64_t row_stride,
                        int64_t head_stride, int turn, int turns)
{
    for (int i = 0; i < keys; i++) {
        const int piece = turn * keys + i;
        const int64_t at = piece / turns * row_stride + piece % turns * head_stride;
        assert_ptr_equal(rows[i], first + at);
    }
}

enum {
    DIM = 24,
    BYTES = 2 * DIM,
    FIRST = 256
}; /* FIRST: index of the first key of the next block */

static char k[1], v[1]; /* only their addresses are used */

/* Makes the struct attention of a call of `turns` heads, with `gap` bytes after the rows of each
 * token. */
static struct attention heads_side_by_side(int turns, int gap)
{
    const struct strides strides = {.head = BYTES, .row = turns * BYTES + gap};
    return (struct attention){.k = {.type = TYPE_F16, .first = k, .stride = strides, .dim = DIM},
                              .v = {.type = TYPE_BF16, .first = v, .stride = strides, .dim = DIM}};
}

/* Returns the scalar kernels, which are the first in the list and run everywhere. */
static const struct kernels *plain_c(void)
{
    const struct isa *isas;
    attnkit_isas(&isas);
    return isas[0].kernels;
}

/* Makes the block of `keys` keys that head `turn` works on. The next block, of which the head
 * prefetches a part, has `next_keys` keys. */
static struct decode_block point(const struct attention *a, struct row_room *room, int turn,
                                 int keys, int next_keys)
{
    struct decode_block block = {.far = true, .large = true};
    const struct key_range now = {0, turn, FIRST - KEY_BLOCK, FIRST - KEY_BLOCK + keys};
    const struct key_range next = {0, 0, FIRST, FIRST + next_keys};
    room->turn = turn;
    attnkit_point_to_rows(a, plain_c(), now, key_set_of(0, keys), next, room, &block);
    assert_true(block.far);
    assert_int_equal(block.next_keys, next_keys);
    return block;
}

static void check_parts(int turns, int keys, int gap)
{
    static struct row_room room;
    const struct attention a = heads_side_by_side(turns, gap);
    const int64_t row = a.k.stride.row;
    attnkit_begin_rows(&a, NULL, &room);
    room.turns = turns;
    for (int turn = 0; turn < turns; turn++) {
        const struct decode_block block = point(&a, &room, turn, keys, keys);
        expect_part(block.next_k, keys, k + FIRST * row, row, BYTES, turn, turns);
        expect_part(block.with_k, keys, v + FIRST * row, row, BYTES, turn, turns);
    }
}

static void blocks_of_other_lengths_are_prefetched_head_by_head(void **state)
{
    (void)state;
    enum { TURNS = 4 };
    static struct row_room room;
    const struct attention a = heads_side_by_side(TURNS, 0);
    const int64_t row = a.k.stride.row;
    attnkit_begin_rows(&a, NULL, &room);
    room.turns = TURNS;
    for (int turn = 0; turn < TURNS; turn++) {
        const struct decode_block block = point(&a, &room, turn, KEY_BLOCK, 77);
        expect_part(block.next_k, 77, k + FIRST * row + turn * BYTES, row, 0, 0, 1);
        expect_part(block.with_k, KEY_BLOCK, v + (FIRST - KEY_BLOCK) * row + turn * BYTES, row, 0,
                    0, 1);
    }
}

static void parts_of_all_turns_are_the_next_block(void **state)
{
    (void)state;
    for (int turns = 2; turns <= MAX_HEADS; turns++)
        for (int gap = 0; gap <= 48; gap += 48) {
            check_parts(turns, KEY_BLOCK, gap);
            check_parts(turns, 1, gap);
            check_parts(turns, 77, gap);
        }
}

/* --- Together ---------------------------------------------------------------------------------
 *
 * decode_together of struct kernels has the bits of `decode`, which computes one head. */

enum {
    ROUNDS = 80,
    MAX_DIM = 256,
    SETS = 4096, /* bytes between cache lines of the same set of L1 */
};

/* The operands of decode_together. K and V lie between unmapped pages. */
struct heads {
    struct heads_block block;
    const struct kernels *kernels;
    struct guarded k, v, q, scratch;
    const float *q_rows[MAX_HEADS][TOGETHER_ROWS];
    const float *const *q_of[MAX_HEADS];
    const struct state *st_of[MAX_HEADS];
    struct state st[MAX_HEADS];
    struct guarded out[MAX_HEADS];
    float max[MAX_HEADS][MAX_DECODE_ROWS], sum[MAX_HEADS][MAX_DECODE_ROWS];
};

/* Draws the rows of all heads for all tokens, in *memory, which the caller frees. Tokens have up to
 * 80 bytes between them, or lie a multiple of 4 KiB apart. They may lie in reverse order. A few
 * scales of TYPE_Q8_0 are infinite. */
static struct side_rows draw_tokens(const struct heads *h, struct guarded *memory, uint64_t *random)
{
    const struct kernels *const plain = plain_c();
    const int64_t row = bytes_of(h->block.type, h->block.dim), token = h->block.heads * row;
    ptrdiff_t stride = token + 16 * random_below(random, 6);
    if (random_below(random, 4) == 0)
        stride = (stride + SETS - 1) / SETS * SETS;
    const size_t bytes = (size_t)((KEY_BLOCK - 1) * stride + token);
    *memory = memory_guarded(bytes, 0, random_below(random, 2));
    float numbers[MAX_DIM];
    const uint16_t infinity = 0x7c00; /* binary16 */
    for (int key = 0; key < KEY_BLOCK; key++)
        for (int head = 0; head < h->block.heads; head++) {
            for (int64_t d = 0; d < h->block.dim; d++)
                numbers[d] =
                    random_below(random, 20) ? random_uniform(random) : random_number(random);
            char *const to = memory->data + key * stride + head * row;
            plain->narrow(h->block.type, numbers, h->block.dim, 0, to, NULL);
            if (h->block.type == TYPE_Q8_0 && random_below(random, 1000) == 0)
                memcpy(to, &infinity, sizeof infinity);
        }
    if (random_below(random, 4) == 0)
        return (struct side_rows){memory->data + (KEY_BLOCK - 1) * stride, -stride};
    return (struct side_rows){memory->data, stride};
}

static void draw_states(struct heads *h, uint64_t *random)
{
    for (int head = 0; head < h->block.heads; head++) {
        const int64_t count = h->block.rows * h->block.dim;
        h->out[head] = memory_guarded((size_t)count * sizeof(float), 0, true);
        float *const out = (float *)(void *)h->out[head].data;
        for (int r = 0; r < MAX_DECODE_ROWS; r++) {
            h->max[head][r] = (float)(random_below(random, 20) - 10);
            h->sum[head][r] = 1.0f + (float)random_below(random, 100);
        }
        for (int64_t i = 0; i < count; i++)
            out[i] = random_uniform(random);
        h->st[head] = (struct state){h->max[head], h->sum[head], out};
        h->st_of[head] = &h->st[head];
    }
}

static void draw_queries(struct heads *h, uint64_t *random)
{
    const int64_t dim = h->block.dim, count = h->block.heads * h->block.rows * dim;
    h->q = memory_guarded((size_t)count * sizeof(float), 0, random_below(random, 2));
    float *const q = (float *)(void *)h->q.data;
    for (int64_t i = 0; i < count; i++)
        q[i] = random_uniform(random);
    for (int head = 0; head < h->block.heads; head++) {
        for (int r = 0; r < h->block.rows; r++)
            h->q_rows[head][r] = q + (head * h->block.rows + r) * dim;
        h->q_of[head] = h->q_rows[head];
    }
}

/* Draws a type, a number of elements, a number of heads and a number of rows that decode_together
 * takes. */
static void draw_shape(struct heads_block *block, const struct kernels *kernels, uint64_t *random)
{
    static const enum type types[] = {TYPE_F16, TYPE_BF16, TYPE_F32, TYPE_Q8_0};
    static const int dims[] = {64, 128, 256, 80, 96, 32};
    int most;
    bool is_whole;
    do {
        block->type = types[random_below(random, 4)];
        block->dim = random_below(random, 2) ? dims[random_below(random, 6)]
                                             : 1 + random_below(random, MAX_DIM);
        block->heads = 2 + (int)random_below(random, MAX_HEADS - 1);
        most = kernels->together_rows(block->type, block->dim, block->heads, false);
        is_whole = block->type != TYPE_Q8_0 || block->dim % Q8_BLOCK == 0;
    } while (most == 0 || !is_whole);
    block->rows = 1 + (int)random_below(random, most);
}

/* Draws the operands of decode_together. The same number gives the same operands. */
static void draw_heads(struct heads *h, const struct kernels *kernels, int number)
{
    uint64_t random = (uint64_t)number;
    h->kernels = kernels;
    h->block = (struct heads_block){.q = h->q_of, .st = h->st_of};
    draw_shape(&h->block, kernels, &random);
    h->block.k = draw_tokens(h, &h->k, &random);
    h->block.v = draw_tokens(h, &h->v, &random);
    h->block.next_k = h->block.k; /* any address may be prefetched */
    h->block.next_keys = (int)random_below(&random, KEY_BLOCK + 1);
    draw_queries(h, &random);
    draw_states(h, &random);
    const size_t floats = (size_t)(h->block.heads * together_floats(h->block.rows, h->block.dim));
    h->scratch = memory_guarded(floats * sizeof(float), 0, true);
    h->block.scratch = (float *)(void *)h->scratch.data;
}

static void free_heads(struct heads *h)
{
    struct guarded *const memory[] = {&h->k, &h->v, &h->q, &h->scratch};
    for (int i = 0; i < 4; i++)
        memory_unguard(memory[i]);
    for (int head = 0; head < h->block.heads; head++)
        memory_unguard(&h->out[head]);
}

/* Computes the block of each head by `decode`. */
static void decode_each(const struct heads *h, float scale_log2)
{
    int32_t visible[TOGETHER_ROWS];
    for (int r = 0; r < TOGETHER_ROWS; r++)
        visible[r] = KEY_BLOCK;
    const struct heads_block *const b = &h->block;
    const int64_t row = bytes_of(b->type, b->dim);
    for (int head = 0; head < b->heads; head++) {
        const char *k_rows[KEY_BLOCK], *v_rows[KEY_BLOCK];
        for (int key = 0; key < KEY_BLOCK; key++) {
            k_rows[key] = b->k.first + key * b->k.stride + head * row;
            v_rows[key] = b->v.first + key * b->v.stride + head * row;
        }
        const struct decode_block block = {
            .q = b->q[head],
            .visible = visible,
            .st = b->st[head],
            .k = {.type = b->type, .dim = b->dim, .row = k_rows},
            .v = {.type = b->type, .dim = b->dim, .row = v_rows},
        };
        h->kernels->decode(&block, b->rows, scale_log2);
    }
}

static void expect_same(const float *got, const float *wanted, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        assert_true(memcmp(&got[i], &wanted[i], sizeof *got) == 0 ||
                    (isnan(got[i]) && isnan(wanted[i])));
}

static void together_has_the_bits_of_each_head(void **state)
{
    const struct kernels *const kernels = *state;
    static struct heads got, wanted;
    for (int number = 0; number < ROUNDS; number++) {
        draw_heads(&got, kernels, number);
        draw_heads(&wanted, kernels, number);
        kernels->decode_together(&got.block, 0.18f);
        decode_each(&wanted, 0.18f);
        for (int head = 0; head < got.block.heads; head++) {
            const struct state *const g = &got.st[head], *const w = &wanted.st[head];
            expect_same(g->row_max, w->row_max, got.block.rows);
            expect_same(g->row_sum, w->row_sum, got.block.rows);
            expect_same(g->out, w->out, got.block.rows * got.block.dim);
        }
        free_heads(&got);
        free_heads(&wanted);
    }
}

/* --- Bits ------------------------------------------------------------------------------------- */

/* A call with two copies of K and V: [keys][heads][dim] with a gap after each token, and
 * [heads][keys][dim] without gaps. */
struct call {
    attnkit_attention_args args;
    char *tokens[2], *heads[2];
    int64_t row; /* bytes from a token to the next token in `tokens` */
};

static void *must_have(size_t bytes)
{
    void *const memory = malloc(bytes);
    assert_non_null(memory);
    return memory;
}

/* Returns the number of bytes of `dim` elements. */
static int64_t row_bytes(attnkit_type type, int64_t dim)
{
    return type == ATTNKIT_Q8_0 ? dim / 32 * 34 : type == ATTNKIT_F32 ? 4 * dim : 2 * dim;
}

/* Draws the bits of a binary16 or bfloat16 number whose magnitude is in [2^-7, 2). */
static uint16_t draw_half(uint64_t *random, attnkit_type type)
{
    const uint16_t sign = (uint16_t)(random_below(random, 2) << 15);
    const int64_t bits = type == ATTNKIT_F16 ? random_below(random, 0x4000 - 0x2000) + 0x2000
                                             : random_below(random, 0x4000 - 0x3c00) + 0x3c00;
    return (uint16_t)(sign | bits);
}

/* Draws a row of `dim` elements. */
static void draw_row(uint64_t *random, attnkit_type type, int64_t dim, char *to)
{
    for (int64_t d = 0; d < dim; d++) {
        const float number = random_uniform(random);
        const uint16_t half = draw_half(random, type == ATTNKIT_BF16 ? type : ATTNKIT_F16);
        if (type == ATTNKIT_F32) {
            memcpy(to + d * 4, &number, sizeof number);
        } else if (type == ATTNKIT_Q8_0) {
            char *const block = to + d / 32 * 34;
            block[2 + d % 32] = (char)random_below(random, 256);
            memcpy(block, &half, sizeof half);
        } else {
            memcpy(to + d * 2, &half, sizeof half);
        }
    }
}

static void fill_cache(struct call *c, int which, attnkit_type type, uint64_t *random)
{
    const attnkit_attention_args *const args = &c->args;
    const size_t bytes = (size_t)row_bytes(type, args->head_dim);
    c->tokens[which] = must_have((size_t)(args->kv_len * c->row));
    c->heads[which] = must_have((size_t)(args->kv_len * args->kv_heads) * bytes);
    for (int64_t key = 0; key < args->kv_len; key++)
        for (int64_t h = 0; h < args->kv_heads; h++) {
            char *const to = c->tokens[which] + key * c->row + h * (int64_t)bytes;
            draw_row(random, type, args->head_dim, to);
            memcpy(c->heads[which] + (h * args->kv_len + key) * (int64_t)bytes, to, bytes);
        }
}

static void lay(struct call *c, bool by_tokens, attnkit_type type)
{
    attnkit_attention_args *const args = &c->args;
    const int64_t bytes = row_bytes(type, args->head_dim);
    attnkit_tensor *const tensors[2] = {&args->k, &args->v};
    for (int i = 0; i < 2; i++) {
        *tensors[i] = (attnkit_tensor){.data = by_tokens ? c->tokens[i] : c->heads[i],
                                       .type = type,
                                       .layout = ATTNKIT_STRIDED};
        tensors[i]->strides[1] = by_tokens ? bytes : args->kv_len * bytes;
        tensors[i]->strides[2] = by_tokens ? c->row : bytes;
    }
}

/* Runs the tasks of a call, one after the other. */
static void run_tasks(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    for (int64_t i = 0; i < n; i++)
        task(arg, i);
}

/* Makes the call. The workspace is as large as attnkit_attention_workspace says, and lies between
 * unmapped pages. */
static void run(const struct call *c, const char *isa, int64_t threads, float *out)
{
    attnkit_attention_args args = c->args;
    attnkit_exec exec = {
        .size = sizeof exec, .isa = isa, .threads = threads, .parallel_for = run_tasks};
    args.out = (attnkit_tensor){.data = out};
    assert_int_equal(attnkit_attention_workspace(&args, &exec, &exec.workspace_size, NULL),
                     ATTNKIT_OK);
    struct guarded workspace = memory_guarded(exec.workspace_size, 0, true);
    exec.workspace = workspace.data;
    assert_int_equal(attnkit_attention(&args, &exec, NULL), ATTNKIT_OK);
    memory_unguard(&workspace);
}

/* Compares the results of both copies. K and V of a head have more than `least` bytes. */
static void check_bytes(const char *isa, int group, int heads, int dim, int64_t q_len, int gap,
                        attnkit_type type, int64_t least)
{
    uint64_t random = (uint64_t)(heads * 1000 + dim + gap);
    const int64_t row = row_bytes(type, dim);
    const int64_t keys = least / (2 * row) + 1 + random_below(&random, 300);
    const int64_t rows = q_len * heads * group;
    struct call c = {.row = heads * row + gap,
                     .args = {.size = sizeof c.args,
                              .flags = q_len > 1 ? ATTNKIT_CAUSAL : 0,
                              .align = ATTNKIT_ALIGN_BOTTOM_RIGHT,
                              .batch = 1,
                              .q_heads = heads * group,
                              .kv_heads = heads,
                              .q_len = q_len,
                              .kv_len = keys,
                              .head_dim = dim}};
    const size_t bytes = (size_t)(rows * dim) * sizeof(float);
    float *const q = must_have(bytes), *const got = must_have(bytes),
                 *const wanted = must_have(bytes);
    for (int64_t i = 0; i < rows * dim; i++)
        q[i] = random_uniform(&random);
    c.args.q = (attnkit_tensor){.data = q};
    fill_cache(&c, 0, type, &random);
    fill_cache(&c, 1, type, &random);
    lay(&c, true, type);
    run(&c, isa, 1, got);
    lay(&c, false, type);
    run(&c, isa, 1, wanted);
    assert_memory_equal(got, wanted, bytes);
    lay(&c, true, type);
    run(&c, isa, 3, got);
    assert_memory_equal(got, wanted, bytes);
    for (int i = 0; i < 2; i++) {
        free(c.tokens[i]);
        free(c.heads[i]);
    }
    free(q);
    free(got);
    free(wanted);
}

/* The library expects K and V of a head to be outside L2. */
static void check_group(const char *isa, int group, int heads, int dim, int64_t q_len, int gap,
                        attnkit_type type)
{
    check_bytes(isa, group, heads, dim, q_len, gap, type, 1 << 19);
}

/* Checks bits with two query heads for each KV head. */
static void check_bits(const char *isa, int heads, int dim, int64_t q_len, int gap,
                       attnkit_type type)
{
    check_group(isa, 2, heads, dim, q_len, gap, type);
}

static void turns_have_the_bits_of_heads_one_by_one(void **state)
{
    const char *const isa = *state;
    check_bits(isa, 8, 128, 1, 0, ATTNKIT_F16);
    check_bits(isa, 8, 128, 1, 64, ATTNKIT_BF16);
    check_bits(isa, 3, 256, 2, 0, ATTNKIT_BF16);
    check_bits(isa, 5, 200, 1, 2, ATTNKIT_F16);
    check_bits(isa, 2, 256, 2, 512, ATTNKIT_F16);
}

/* In all calls but the fourth, rows lie a multiple of 2048 bytes apart, so they share sets of L1.
 * Some instruction sets do not copy the rows of the fifth call or of the sixth call. The query rows
 * of the last three calls go through prefill, in several panels. */
static void copied_rows_have_the_bits_of_rows_in_place(void **state)
{
    const char *const isa = *state;
    check_bits(isa, 8, 128, 1, 0, ATTNKIT_F32);
    check_bits(isa, 8, 64, 2, 0, ATTNKIT_F32);
    check_bits(isa, 4, 112, 1, 256, ATTNKIT_F32);
    check_bits(isa, 5, 128, 1, 64, ATTNKIT_F32);
    check_bits(isa, 4, 72, 1, 896, ATTNKIT_F32);
    check_bits(isa, 2, 256, 1, 0, ATTNKIT_F32);
    check_bits(isa, 8, 128, 40, 0, ATTNKIT_F32);
    check_bits(isa, 4, 72, 29, 896, ATTNKIT_F32);
    check_bits(isa, 1, 128, 40, 3584, ATTNKIT_F32);
}

/* Rows lie a multiple of 2048 bytes apart, so they share sets of L1. In the fifth call, a row is as
 * long as one cache line. In the sixth call, a row is no whole number of cache lines. In the last
 * four calls, rows lie 4096 bytes apart. */
static void transposed_rows_have_the_bits_of_other_rows(void **state)
{
    const char *const isa = *state;
    check_bits(isa, 8, 128, 2, 0, ATTNKIT_F16);
    check_bits(isa, 8, 128, 2, 0, ATTNKIT_BF16);
    check_bits(isa, 4, 128, 3, 1024, ATTNKIT_F16);
    check_bits(isa, 4, 256, 1, 0, ATTNKIT_BF16);
    check_bits(isa, 8, 32, 2, 1536, ATTNKIT_BF16);
    check_bits(isa, 8, 112, 2, 256, ATTNKIT_F16);
    check_bits(isa, 8, 256, 1, 0, ATTNKIT_F16);
    check_bits(isa, 4, 512, 2, 0, ATTNKIT_BF16);
    check_bits(isa, 5, 304, 2, 1056, ATTNKIT_F16);
    check_bits(isa, 4, 264, 2, 1984, ATTNKIT_BF16);
}

/* In most calls, an instruction set that has decode_together may compute by it the blocks in which
 * each query row of a KV head sees all 128 keys. In the third call, the rows are no whole number of
 * vectors, which only some instruction sets take. Only some instruction sets take rows of Q8_0, or
 * more than 4 query rows of a KV head, as in the last four calls. The last call has 16 rows, which
 * are too many for all of them. */
static void heads_together_have_the_bits_of_heads_one_by_one(void **state)
{
    const char *const isa = *state;
    check_group(isa, 1, 12, 128, 1, 0, ATTNKIT_F16);
    check_group(isa, 4, 8, 128, 1, 0, ATTNKIT_BF16);
    check_group(isa, 3, 5, 100, 1, 40, ATTNKIT_F32);
    check_group(isa, 4, 9, 80, 1, 0, ATTNKIT_F32);
    check_group(isa, 1, 5, 80, 3, 32, ATTNKIT_F16);
    check_group(isa, 2, 4, 96, 2, 0, ATTNKIT_F32);
    check_group(isa, 4, 8, 64, 1, 0, ATTNKIT_F32);
    check_group(isa, 2, 2, 128, 1, 0, ATTNKIT_F16);
    check_group(isa, 4, 7, 128, 1, 0, ATTNKIT_Q8_0);
    check_group(isa, 1, 10, 96, 2, 34, ATTNKIT_Q8_0);
    check_group(isa, 5, 4, 96, 1, 0, ATTNKIT_F32);
    check_group(isa, 4, 8, 128, 2, 0, ATTNKIT_F16);
    check_group(isa, 6, 3, 64, 2, 24, ATTNKIT_BF16);
    check_group(isa, 8, 4, 128, 2, 0, ATTNKIT_BF16);
}

/* K and V have so many bytes that the library expects them to be outside L3. Units of an
 * instruction set may compute heads together only then. With 3 threads, a thread has fewer heads.
 */
static void many_bytes_have_the_bits_of_heads_one_by_one(void **state)
{
    check_bytes(*state, 2, 8, 128, 1, 0, ATTNKIT_F32, (1 << 24) / 8);
    check_bytes(*state, 1, 7, 100, 1, 0, ATTNKIT_F32, (1 << 24) / 7 + 1);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[6 * MAX_ISAS + 2] = {
        cmocka_unit_test(parts_of_all_turns_are_the_next_block),
        cmocka_unit_test(blocks_of_other_lengths_are_prefetched_head_by_head)};
    size_t count = 2;
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    expect_isa(argc, argv);
    for (int i = 0; i < isa_count && i < MAX_ISAS; i++)
        if ((argc < 2 || strcmp(argv[1], isas[i].name) == 0) && attnkit_isa_can_run(&isas[i])) {
            void *const name = (void *)(uintptr_t)isas[i].name;
            tests[count++] = (struct CMUnitTest){
                isas[i].name, turns_have_the_bits_of_heads_one_by_one, NULL, NULL, name};
            tests[count++] = (struct CMUnitTest){
                isas[i].name, copied_rows_have_the_bits_of_rows_in_place, NULL, NULL, name};
            tests[count++] = (struct CMUnitTest){
                isas[i].name, transposed_rows_have_the_bits_of_other_rows, NULL, NULL, name};
            tests[count++] = (struct CMUnitTest){
                isas[i].name, heads_together_have_the_bits_of_heads_one_by_one, NULL, NULL, name};
            tests[count++] = (struct CMUnitTest){
                isas[i].name, many_bytes_have_the_bits_of_heads_one_by_one, NULL, NULL, name};
            if (isas[i].kernels->decode_together)
                tests[count++] =
                    (struct CMUnitTest){isas[i].name, together_has_the_bits_of_each_head, NULL,
                                        NULL, (void *)(uintptr_t)isas[i].kernels};
        }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("turns", tests, count, NULL, NULL);
}
