/* SPDX-License-Identifier: Apache-2.0
 *
 * The KV cache of a server: a pool of pages of 16 keys for all sequences, in Q8_0 with K in tiles.
 * Each sequence has a row of the block table and a length. The table, the lengths and all counts
 * are int32, as in servers. Sequences of different lengths share a call. Each step makes three
 * calls: one appends new rows to K of each sequence, one appends new rows to V, and one attends
 * with the last row of each sequence. The first step appends the prompts. Later steps append one
 * row to each sequence. Before step CHANGE, a sequence ends, and its pages become free. A new
 * sequence takes its place, and the step appends the prompt of the new sequence.
 *
 * The result of a sequence has the same bits wherever its pages lie, and whatever other sequences
 * are in the call. To check these bits, each step compares each result with the result of the same
 * sequence alone in a dense cache.
 */
#include <attnkit.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 3, PAGE = 16, PAGES = 12, MAX_PAGES = 6, ROOM = MAX_PAGES * PAGE };
enum { Q_HEADS = 8, KV_HEADS = 2, DIM = 64 };
enum { KEY_BYTES = DIM / 32 * 34 }; /* bytes of a row of Q8_0, or of a key's part of a tile */
enum { STEPS = 30, CHANGE = 12 };   /* CHANGE: the step before which a sequence ends */

static void expect_ok(attnkit_status status, const char *message)
{
    if (status == ATTNKIT_OK)
        return;
    fprintf(stderr, "%s: %s\n", attnkit_status_string(status), message);
    exit(1);
}

/* --------------------------------------------------------------------------------- the cache */

/* K [PAGES][KV_HEADS][PAGE / 16][DIM][16] in tiles, V [PAGES][KV_HEADS][PAGE][DIM] in rows. */
struct cache {
    unsigned char k[PAGES * KV_HEADS * PAGE * KEY_BYTES], v[PAGES * KV_HEADS * PAGE * KEY_BYTES];
    int32_t block_table[SLOTS * MAX_PAGES];
    int32_t lens[SLOTS]; /* keys of each sequence */
    int32_t free[PAGES]; /* pages that no sequence has */
    int32_t free_count;
};

static attnkit_pages pages_of(const struct cache *cache)
{
    return (attnkit_pages){.size = sizeof(attnkit_pages),
                           .block_table = cache->block_table,
                           .block_table_stride = MAX_PAGES,
                           .page_size = PAGE,
                           .pages = PAGES};
}

static attnkit_ints int32s(const int32_t *numbers)
{
    return (attnkit_ints){.data = numbers, .type = ATTNKIT_INT32};
}

static int32_t pages_for(int32_t keys)
{
    return (keys + PAGE - 1) / PAGE;
}

/* Takes the free pages that a sequence needs for `more` further keys. */
static void grow(struct cache *cache, int slot, int32_t more)
{
    const int32_t len = cache->lens[slot];
    for (int32_t i = pages_for(len); i < pages_for(len + more); i++) {
        if (i == MAX_PAGES || cache->free_count == 0)
            exit(1); /* a server would have the sequence wait */
        cache->block_table[slot * MAX_PAGES + i] = cache->free[--cache->free_count];
    }
}

static void end_sequence(struct cache *cache, int slot)
{
    for (int32_t i = 0; i < pages_for(cache->lens[slot]); i++)
        cache->free[cache->free_count++] = cache->block_table[slot * MAX_PAGES + i];
    cache->lens[slot] = 0;
}

/* ---------------------------------------------------------------------------------- appending */

static void append(const attnkit_append_args *args)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec};
    expect_ok(attnkit_append_workspace(args, &exec, &exec.workspace_size, message), message);
    exec.workspace = malloc(exec.workspace_size + 1);
    expect_ok(attnkit_append(args, &exec, message), message);
    free(exec.workspace);
}

/* For each sequence b, takes the pages that it needs for counts[b] further keys, and appends
 * counts[b] rows of k and of v. k and v are [SLOTS][KV_HEADS][most][DIM]. A model with RoPE would
 * give a rotation to the first append, which appends k. */
static void append_rows(struct cache *cache, int32_t most, const int32_t counts[SLOTS],
                        const float *k, const float *v)
{
    const attnkit_pages pages = pages_of(cache);
    attnkit_append_args args = {.size = sizeof args,
                                .batch = SLOTS,
                                .heads = KV_HEADS,
                                .len = most,
                                .dim = DIM,
                                .capacity = ROOM,
                                .src = {.data = k},
                                .starts = int32s(cache->lens),
                                .lens = int32s(counts),
                                .pages = &pages};
    for (int slot = 0; slot < SLOTS; slot++)
        grow(cache, slot, counts[slot]);
    args.dst = (attnkit_tensor){.data = cache->k, .type = ATTNKIT_Q8_0, .layout = ATTNKIT_TILED};
    append(&args);
    args.src.data = v;
    args.dst = (attnkit_tensor){.data = cache->v, .type = ATTNKIT_Q8_0};
    append(&args);
    for (int slot = 0; slot < SLOTS; slot++)
        cache->lens[slot] += counts[slot];
}

/* ----------------------------------------------------------------------------------- attention */

static void attend(const attnkit_attention_args *args)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec};
    expect_ok(attnkit_attention_workspace(args, &exec, &exec.workspace_size, message), message);
    exec.workspace = malloc(exec.workspace_size + 1);
    expect_ok(attnkit_attention(args, &exec, message), message);
    free(exec.workspace);
}

/* Attends with one row of each sequence over all keys of the sequence. q and out are
 * [SLOTS][Q_HEADS][1][DIM]. */
static void decode(const struct cache *cache, const float *q, float *out)
{
    const attnkit_pages pages = pages_of(cache);
    const attnkit_kv_storage storage = {.size = sizeof storage, .pages = &pages};
    const attnkit_visibility visibility = {.size = sizeof visibility,
                                           .kv_lens = int32s(cache->lens)};
    const attnkit_attention_args args = {
        .size = sizeof args,
        .batch = SLOTS,
        .q_heads = Q_HEADS,
        .kv_heads = KV_HEADS,
        .q_len = 1,
        .kv_len = ROOM,
        .head_dim = DIM,
        .q = {.data = q},
        .k = {.data = cache->k, .type = ATTNKIT_Q8_0, .layout = ATTNKIT_TILED},
        .v = {.data = cache->v, .type = ATTNKIT_Q8_0},
        .out = {.data = out},
        .storage = &storage,
        .visibility = &visibility,
    };
    attend(&args);
}

/* ----------------------------------------------------------------------------------- the check */

/* Returns a hash in place of an element that a model would compute. The hash depends only on the
 * sequence, the tensor (`what`) and the place in the tensor. */
static float number(int sequence, int what, int head, int32_t row, int d)
{
    uint32_t x = (uint32_t)(((sequence * 3 + what) * 8 + head) * 128 + row) * DIM + (uint32_t)d;
    x = (x ^ x >> 15) * 0x2c1b3c6du;
    x = (x ^ x >> 12) * 0x297a2d39u;
    return (float)((x ^ x >> 15) >> 8) / (1 << 23) - 1;
}

enum { Q, K, V };

/* Writes rows first .. first + count - 1 of each head to `to`, which has room for `room` rows of
 * each head. */
static void make_rows(int sequence, int what, int32_t first, int32_t count, int32_t room, float *to)
{
    for (int head = 0; head < (what == Q ? Q_HEADS : KV_HEADS); head++)
        for (int32_t i = 0; i < count; i++)
            for (int d = 0; d < DIM; d++)
                to[(head * room + i) * DIM + d] = number(sequence, what, head, first + i, d);
}

/* Attends with q, the last row of a sequence, over a dense cache with the keys of this sequence
 * alone. */
static void decode_alone(int sequence, int32_t keys, const float *q, float *out)
{
    static float rows[KV_HEADS * ROOM * DIM];
    static unsigned char k[KV_HEADS * ROOM * KEY_BYTES], v[KV_HEADS * ROOM * KEY_BYTES];
    attnkit_append_args one = {.size = sizeof one,
                               .batch = 1,
                               .heads = KV_HEADS,
                               .len = keys,
                               .dim = DIM,
                               .capacity = keys,
                               .src = {.data = rows},
                               .dst = {.data = k, .type = ATTNKIT_Q8_0}};
    make_rows(sequence, K, 0, keys, keys, rows);
    append(&one);
    make_rows(sequence, V, 0, keys, keys, rows);
    one.dst.data = v;
    append(&one);
    const attnkit_attention_args args = {.size = sizeof args,
                                         .batch = 1,
                                         .q_heads = Q_HEADS,
                                         .kv_heads = KV_HEADS,
                                         .q_len = 1,
                                         .kv_len = keys,
                                         .head_dim = DIM,
                                         .q = {.data = q},
                                         .k = {.data = k, .type = ATTNKIT_Q8_0},
                                         .v = {.data = v, .type = ATTNKIT_Q8_0},
                                         .out = {.data = out}};
    attend(&args);
}

/* Makes a step of the server: appends counts[b] new rows to each sequence b, then attends with the
 * last row of each sequence. Returns whether each result has the same bits as the result of the
 * sequence alone. */
static bool step(struct cache *cache, const int sequences[SLOTS], int32_t most,
                 const int32_t counts[SLOTS])
{
    static float k[SLOTS * KV_HEADS * ROOM * DIM], v[SLOTS * KV_HEADS * ROOM * DIM];
    float q[SLOTS * Q_HEADS * DIM], out[SLOTS * Q_HEADS * DIM], alone[Q_HEADS * DIM];
    for (int slot = 0; slot < SLOTS; slot++) {
        const int32_t first = cache->lens[slot], count = counts[slot];
        make_rows(sequences[slot], K, first, count, most, k + slot * KV_HEADS * most * DIM);
        make_rows(sequences[slot], V, first, count, most, v + slot * KV_HEADS * most * DIM);
        make_rows(sequences[slot], Q, first + count - 1, 1, 1, q + slot * Q_HEADS * DIM);
    }
    append_rows(cache, most, counts, k, v);
    decode(cache, q, out);
    bool same = true;
    for (int slot = 0; slot < SLOTS; slot++) {
        const float *const row = q + slot * Q_HEADS * DIM;
        decode_alone(sequences[slot], cache->lens[slot], row, alone);
        same = same && !memcmp(alone, out + slot * Q_HEADS * DIM, sizeof alone);
    }
    return same;
}

int main(void)
{
    static struct cache cache;
    int sequences[SLOTS] = {0, 1, 2};
    const int32_t prompts[SLOTS] = {21, 5, 40}, one_each[SLOTS] = {1, 1, 1};
    for (int i = 0; i < PAGES; i++)
        cache.free[cache.free_count++] = i * 7 % PAGES;
    bool ok = step(&cache, sequences, 40, prompts);
    for (int i = 1; i < STEPS; i++) {
        const int32_t new_prompt[SLOTS] = {1, 1, 33};
        if (i == CHANGE) {
            end_sequence(&cache, 2);
            sequences[2] = 3;
        }
        ok = (i == CHANGE ? step(&cache, sequences, 33, new_prompt)
                          : step(&cache, sequences, 1, one_each)) &&
             ok;
    }
    printf(
        "%d steps, sequences of %d, %d and %d keys in %d pages: %s bits as each sequence alone\n",
        STEPS, (int)cache.lens[0], (int)cache.lens[1], (int)cache.lens[2],
        PAGES - (int)cache.free_count, ok ? "the same" : "OTHER");
    return ok ? 0 : 1;
}
