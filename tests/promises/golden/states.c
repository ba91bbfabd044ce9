/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden cases of states: attention over the first chunks of the keys as a state, and the result of
 * a call that continues from this state over the other keys.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tests/promises/golden/call.h"
#include "tests/promises/golden/hash.h"
#include "tests/promises/golden/kind.h"

static const uint64_t SEED = 10;

enum { CHUNK = ATTNKIT_CHUNK_KEYS };

/* A case, and the number of keys that its state covers. */
struct cut {
    struct golden_attention what;
    int64_t keys;
};

static void draw_dims(struct golden_attention *w, uint64_t *random)
{
    static const int64_t dims[] = {1, 3, 8, 16, 17, 32, 40};
    const bool in_blocks = w->k == ATTNKIT_Q8_0 || w->v == ATTNKIT_Q8_0;
    w->head_dim = in_blocks ? 32 : dims[random_below(random, 7)];
    w->value_dim = in_blocks ? 64 : dims[random_below(random, 7)];
}

static void draw_cut(struct cut *c, int number)
{
    uint64_t random = golden_random(SEED, number);
    struct golden_attention *const w = &c->what;
    *w = (struct golden_attention){.seed = random_bits(&random)};
    if (number % 2) {
        w->q = (attnkit_type)random_below(&random, 3);
        w->k = (attnkit_type)random_below(&random, 5);
        w->v = (attnkit_type)random_below(&random, 5);
        w->out = (attnkit_type)random_below(&random, 3);
    }
    draw_dims(w, &random);
    w->batch = 1 + random_below(&random, 2);
    w->kv_heads = 1 + random_below(&random, 2);
    w->group = 1 + random_below(&random, 3);
    w->q_len = golden_one_in(&random, 2) ? 1 : 1 + random_below(&random, 20);
    w->kv_len = 1 + random_below(&random, 3 * CHUNK);
    w->numbers = golden_one_in(&random, 4) ? PEAKED : golden_one_in(&random, 6) ? SPECIAL : USUAL;
    w->tiled = golden_one_in(&random, 4);
    w->page_size = golden_one_in(&random, 4) ? 64 : 0;
    w->has_lens = golden_one_in(&random, 3);
    w->align = (attnkit_align)(golden_one_in(&random, 2) ? ATTNKIT_ALIGN_UPPER_LEFT
                                                         : ATTNKIT_ALIGN_OFFSETS);
    w->is_causal = golden_one_in(&random, 2);
    w->has_window = golden_one_in(&random, 4);
    w->left = random_below(&random, 700);
    w->right = -1;
    w->softcap = golden_one_in(&random, 4) ? 20.0 : 0.0;
    w->has_slopes = golden_one_in(&random, 4);
    w->dropout = golden_one_in(&random, 4) ? 0.25 : 0.0;
    w->has_sinks = golden_one_in(&random, 4);
    c->keys = CHUNK * random_below(&random, w->kv_len / CHUNK + 1);
}

/* --- Parts ------------------------------------------------------------------------------------ */

/* Sets dense strides for heads of `keys` keys, in rows or in tiles. */
static void set_strides(attnkit_tensor *t, bool tiled, int64_t row_bytes, int64_t keys,
                        int64_t heads)
{
    const int64_t together = tiled ? ATTNKIT_TILE_KEYS : 1;
    t->layout |= ATTNKIT_STRIDED;
    t->strides[2] = row_bytes * together;
    t->strides[1] = t->strides[2] * ((keys + together - 1) / together);
    t->strides[0] = t->strides[1] * heads;
}

/* A call over a range of the keys. */
struct part {
    attnkit_attention_args args;
    struct groups groups;
    int64_t lens[GOLDEN_BATCH];
};

/* Moves the tensors of K, V and their scales to the part's first key. Each tensor keeps the strides
 * of the tensor of all keys. */
static void move_tensors(struct part *p, const struct golden_attention *w, int64_t first)
{
    attnkit_tensor *const tensors[4] = {&p->args.k, &p->args.v, &p->groups.storage.k_scales,
                                        &p->groups.storage.v_scales};
    const int64_t row_bytes[4] = {bytes_of((enum type)w->k, w->head_dim),
                                  bytes_of((enum type)w->v, w->value_dim), sizeof(float),
                                  sizeof(float)};
    for (int i = 0; i < 4; i++) {
        if (!tensors[i]->data)
            continue;
        set_strides(tensors[i], i % 2 == 0 && w->tiled, row_bytes[i], w->kv_len, w->kv_heads);
        tensors[i]->data = (const char *)tensors[i]->data + first * row_bytes[i];
    }
}

/* Makes the call over keys first .. end - 1 of c. */
static void make_part(struct part *p, const struct golden_call *c, int64_t first, int64_t end)
{
    const struct golden_attention *const w = &c->what;
    *p = (struct part){.args = c->args, .groups = c->groups};
    groups_hang(&p->args, &p->groups);
    p->groups.states.first_key = first;
    p->args.kv_len = end - first;
    if (w->page_size)
        p->groups.pages.block_table += first / w->page_size;
    else
        move_tensors(p, w, first);
    for (int64_t b = 0; b < w->batch; b++) {
        const attnkit_ints lens = c->groups.visibility.kv_lens;
        const int64_t all = lens.data ? ints_at(lens, b) : w->kv_len;
        p->lens[b] = all < first ? 0 : all > end ? end - first : all - first;
    }
    p->groups.visibility.kv_lens.data = p->lens;
}

/* --- Hashes ----------------------------------------------------------------------------------- */

static uint64_t hash_state(const struct golden_call *c, attnkit_state s)
{
    uint64_t hash = hash_floats(HASH_BEGIN, s.max, (size_t)c->rows);
    hash = hash_bytes(hash, s.sum, (size_t)c->rows * sizeof *s.sum);
    return hash_bytes(hash, s.out, (size_t)(c->rows * c->what.value_dim) * sizeof *s.out);
}

static attnkit_state take_state(struct golden_call *c)
{
    const int64_t bytes = c->rows * (int64_t)sizeof(double);
    return (attnkit_state){golden_take(c, c->rows * (int64_t)sizeof(float)), golden_take(c, bytes),
                           golden_take(c, bytes * c->what.value_dim)};
}

static uint64_t hash_of(const struct golden_kind *kind, int number, int way, const char *isa)
{
    (void)kind;
    (void)way;
    struct cut cut;
    struct part p;
    draw_cut(&cut, number);
    struct golden_call *const c = golden_call_new(&cut.what);
    const attnkit_state state = take_state(c);
    make_part(&p, c, 0, cut.keys);
    p.args.out.data = p.args.lse.data = NULL;
    p.groups.scores.sinks = NULL;
    p.groups.states.state_out = state;
    golden_attend(&p.args, isa ? isa : "scalar");
    uint64_t hash = hash_state(c, state);
    make_part(&p, c, cut.keys, cut.what.kv_len);
    p.groups.states.state_in = state;
    golden_attend(&p.args, isa ? isa : "scalar");
    hash = hash_elements(hash, cut.what.out, c->out, (size_t)(c->rows * cut.what.value_dim));
    hash = hash_floats(hash, c->lse, (size_t)c->rows);
    golden_call_free(c);
    return hash;
}

static void print(const struct golden_kind *kind, int number)
{
    (void)kind;
    struct cut c;
    draw_cut(&c, number);
    printf("# state over %d keys\n", (int)c.keys);
    golden_attention_print(&c.what);
}

static const struct golden_kind kinds[] = {
    {"states", 240, 1, hash_of, print, NULL},
};

const struct golden_kinds golden_states = {kinds, sizeof kinds / sizeof kinds[0]};
