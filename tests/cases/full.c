/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cases/full.h"

#include <string.h>

#include "tests/cases/kinds.h"
#include "tests/support/random.h"

static struct call *new_call(int64_t rows)
{
    return call_new((struct shape){.batch = 2,
                                   .kv_heads = 2,
                                   .group = 2,
                                   .q_len = rows,
                                   .kv_len = FULL_KEYS,
                                   .head_dim = FULL_DIM,
                                   .value_dim = FULL_DIM});
}

static bool is_in_full_call(const struct kind *kind)
{
    static const char *const names[] = {"causal",   "window with first keys", "lengths",
                                        "segments", "bytes to ignore",        "bits to ignore",
                                        "f16 bias"};
    for (int i = 0; i < 7; i++)
        if (strcmp(kind->name, names[i]) == 0)
            return true;
    return false;
}

/* Sets *t, which is K or V, to a tensor of random bytes, and *scales to a scale for each row. */
static void make_bytes(struct call *c, attnkit_tensor *t, attnkit_tensor *scales, int64_t rows)
{
    uint64_t random = 3;
    signed char *const bytes = call_memory(c, (size_t)(rows * FULL_DIM));
    float *const x = call_memory(c, (size_t)rows * sizeof *x);
    for (int64_t i = 0; i < rows * FULL_DIM; i++)
        bytes[i] = (signed char)random_bits(&random);
    for (int64_t i = 0; i < rows; i++)
        x[i] = 0.01f + 0.01f * random_uniform(&random);
    *t = (attnkit_tensor){.data = bytes, .type = ATTNKIT_I8, .layout = t->layout & ATTNKIT_TILED};
    *scales = (attnkit_tensor){.data = x};
}

struct call *full_call_new(int64_t rows)
{
    static const float slopes[FULL_HEADS] = {0.01f, -0.02f, 0.05f, 0.001f};
    static const float sinks[FULL_HEADS] = {1, -2, 0.5f, 3};
    static const float bias_scales[FULL_HEADS] = {0.7f, 1, -0.3f, 2};
    static const uint64_t seeds[2] = {7, UINT64_C(0x123456789abcdef0)};
    enum { PAGE = 48, PAGES = 2 * ((FULL_KEYS + PAGE - 1) / PAGE) };
    struct call *const c = new_call(rows);
    attnkit_kv_storage *const storage = &c->groups.storage;
    attnkit_score_mods *const scores = &c->groups.scores;
    for (int i = 0; i < KINDS; i++)
        if (is_in_full_call(&kinds[i]))
            kinds[i].set(c);
    call_store(c, true, PAGE);
    make_bytes(c, &c->args.k, &storage->k_scales, PAGES * 2 * PAGE);
    make_bytes(c, &c->args.v, &storage->v_scales, PAGES * 2 * PAGE);
    int64_t *const starts = call_memory(c, 3 * sizeof *starts);
    starts[1] = rows / 3;
    starts[2] = rows;
    storage->cu_seqlens_q = (attnkit_ints){.data = starts};
    scores->softcap = 20.0;
    scores->alibi_slopes = slopes;
    scores->sinks = sinks;
    scores->bias_scales = bias_scales;
    scores->dropout = 0.25;
    scores->dropout_seeds = seeds;
    call_set_weights(c, ATTNKIT_WEIGHTS_SOFTMAX);
    return c;
}

static attnkit_state new_state(struct call *c)
{
    const size_t rows = (size_t)(2 * FULL_HEADS * c->args.q_len);
    return (attnkit_state){call_memory(c, rows * sizeof(float)),
                           call_memory(c, rows * sizeof(double)),
                           call_memory(c, rows * FULL_DIM * sizeof(double))};
}

/* Makes a call that has packed keys, reads a state and writes a state. */
static struct call *new_call_of_states(int64_t rows)
{
    struct call *const c = new_call(rows);
    int64_t *const starts = call_memory(c, 3 * sizeof *starts);
    starts[1] = 40;
    starts[2] = FULL_KEYS;
    c->groups.storage.cu_seqlens_kv = (attnkit_ints){.data = starts};
    c->groups.states.first_key = ATTNKIT_CHUNK_KEYS;
    c->groups.states.state_in = new_state(c);
    c->groups.states.state_out = new_state(c);
    c->args.out = c->args.lse = (attnkit_tensor){.data = NULL};
    return c;
}

/* Makes a call that has only q, k, v and out. */
static struct call *new_bare_call(int64_t rows)
{
    struct call *const c = new_call(rows);
    c->args.lse.data = NULL;
    return c;
}

/* Makes a call with keys in cells. The order of the keys differs from batch entry to batch entry.
 * Each key has exactly one cell, because the prime 7 does not divide FULL_KEYS. */
static struct call *new_call_of_cells(int64_t rows)
{
    struct call *const c = new_call(rows);
    int32_t *const index = call_memory(c, 2 * FULL_KEYS * sizeof *index);
    for (int i = 0; i < 2 * FULL_KEYS; i++)
        index[i] = (i * 7 + i / FULL_KEYS) % FULL_KEYS;
    c->groups.storage.key_index = (attnkit_ints){.data = index, .type = ATTNKIT_INT32};
    c->groups.storage.key_index_stride = FULL_KEYS;
    return c;
}

struct call *(*const full_calls[FULL_CALLS])(int64_t rows) = {full_call_new, new_call_of_states,
                                                              new_bare_call, new_call_of_cells};

/* Returns the size in bytes of an array of one binary32 number for each query row of each head and
 * batch entry. Packed rows fill half of the array. Each sum of a state is binary64 and takes twice
 * as many bytes as a binary32 number. */
static size_t rows_bytes(const struct call *c)
{
    return (size_t)(2 * FULL_HEADS * c->args.q_len) * sizeof(float);
}

void full_clear(const struct call *c)
{
    const attnkit_state *const state = &c->groups.states.state_out;
    memset(c->out, 0x5a, rows_bytes(c) * FULL_DIM);
    memset(c->lse, 0x5a, rows_bytes(c));
    if (c->weights)
        memset(c->weights, 0x5a, rows_bytes(c) * FULL_KEYS);
    if (!state->max)
        return;
    memset(state->max, 0x5a, rows_bytes(c));
    memset(state->sum, 0x5a, 2 * rows_bytes(c));
    memset(state->out, 0x5a, 2 * rows_bytes(c) * FULL_DIM);
}

bool full_same(const struct call *c, const struct call *d)
{
    const attnkit_state *const a = &c->groups.states.state_out, *const b =
                                                                    &d->groups.states.state_out;
    const size_t rows = rows_bytes(c);
    return memcmp(c->out, d->out, rows * FULL_DIM) == 0 && memcmp(c->lse, d->lse, rows) == 0 &&
           (!c->weights || memcmp(c->weights, d->weights, rows * FULL_KEYS) == 0) &&
           (!a->max ||
            (memcmp(a->max, b->max, rows) == 0 && memcmp(a->sum, b->sum, 2 * rows) == 0 &&
             memcmp(a->out, b->out, 2 * rows * FULL_DIM) == 0));
}

struct call *full_beside(const struct call *c)
{
    struct call *const d = call_like(c);
    if (c->groups.states.state_out.max)
        d->groups.states.state_out = new_state(d);
    d->args.out.data = c->args.out.data ? d->out : NULL;
    d->args.lse.data = c->args.lse.data ? d->lse : NULL;
    return d;
}
