/* SPDX-License-Identifier: Apache-2.0
 *
 * A call of several KV heads has the bits of calls of one KV head each, if blocks of its masks let
 * all keys through, or none, or some. prefill.c remembers from head to head which panels of query
 * rows see all keys of a block, or none (struct sights). A call of one KV head remembers nothing.
 * The tests run on every instruction set that can run here, or on the instruction set that the
 * first argument names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tests/support/call.h"
#include "tests/support/random.h"
#include "tests/support/sample.h"

enum { CASES = 40, MASKS = 4 };

/* What a mask does to some query rows and a block of keys. BIASED: all keys are seen, and their
 * bias is not 0. A mask without numbers takes BIASED as ALL. */
enum part { ALL, NONE, SOME, BIASED };

enum mask_type { BYTES, BITS, HALVES, FLOATS };

/* A mask or a bias. */
struct mask_of_call {
    enum mask_type type;
    bool batches_differ, heads_differ;
    int64_t rows;  /* query rows of a part */
    uint64_t seed; /* of the parts */
    char *data;
    int64_t strides[3]; /* bytes */
};

static int64_t row_bytes(const struct mask_of_call *m, int64_t keys)
{
    switch (m->type) {
    case BYTES:
        return keys;
    case BITS:
        return (keys + 7) / 8;
    case HALVES:
        return 2 * keys;
    default:
        return 4 * keys;
    }
}

/* Returns the part of the mask that has row at.i and key at.j. */
static enum part part_at(const struct mask_of_call *m, struct at at)
{
    uint64_t state = m->seed;
    state += (uint64_t)(m->batches_differ ? at.b : 0) * 1000003;
    state += (uint64_t)(m->heads_differ ? at.h : 0) * 10007;
    state += (uint64_t)(at.i / m->rows) * 101 + (uint64_t)(at.j / KEY_BLOCK);
    const int64_t drawn = random_below(&state, 10);
    return drawn < 4 ? ALL : drawn < 7 ? NONE : drawn < 9 ? SOME : BIASED;
}

static void set_element(const struct mask_of_call *m, char *row, int64_t key, bool seen,
                        bool biased)
{
    const uint16_t half = seen ? (biased ? 0x3800 : 0) : 0xfc00;
    const float number = seen ? (biased ? 0.5f : 0.0f) : -INFINITY;
    if (m->type == BYTES)
        row[key] = seen;
    else if (m->type == BITS)
        row[key / 8] |= (char)(seen << key % 8);
    else if (m->type == HALVES)
        memcpy(row + 2 * key, &half, sizeof half);
    else
        memcpy(row + 4 * key, &number, sizeof number);
}

static void fill(const struct mask_of_call *m, const attnkit_attention_args *a)
{
    uint64_t random = m->seed;
    struct at at = {0};
    for (at.b = 0; at.b < (m->batches_differ ? a->batch : 1); at.b++)
        for (at.h = 0; at.h < (m->heads_differ ? a->q_heads : 1); at.h++)
            for (at.i = 0; at.i < a->q_len; at.i++)
                for (at.j = 0; at.j < a->kv_len; at.j++) {
                    const enum part part = part_at(m, at);
                    const bool seen = part != NONE && (part != SOME || random_below(&random, 2));
                    set_element(m,
                                m->data + at.b * m->strides[0] + at.h * m->strides[1] +
                                    at.i * m->strides[2],
                                at.j, seen, part == BIASED);
                }
}

static attnkit_tensor tensor_of(const struct mask_of_call *m)
{
    static const attnkit_type types[] = {ATTNKIT_BOOL, ATTNKIT_BITS, ATTNKIT_F16, ATTNKIT_F32};
    return (attnkit_tensor){.data = m->data,
                            .strides = {m->strides[0], m->strides[1], m->strides[2]},
                            .type = types[m->type],
                            .layout = ATTNKIT_STRIDED};
}

static void give_mask(struct call *c, const struct mask_of_call *m)
{
    if (m->type == BYTES) {
        c->groups.visibility.mask = tensor_of(m);
        c->groups.visibility.mask_kind = ATTNKIT_MASK_ATTEND;
    } else if (m->type == BITS) {
        c->groups.visibility.mask_bits = tensor_of(m);
        c->groups.visibility.mask_bits_kind = ATTNKIT_MASK_ATTEND;
    } else {
        c->groups.scores.bias = tensor_of(m);
    }
}

static struct mask_of_call add_mask(struct call *c, enum mask_type type, uint64_t *random)
{
    const attnkit_attention_args *const a = &c->args;
    struct mask_of_call m = {.type = type,
                             .batches_differ = random_below(random, 2),
                             .heads_differ = random_below(random, 4) == 0,
                             .rows = 8 << random_below(random, 5),
                             .seed = random_bits(random)};
    const int64_t row = row_bytes(&m, a->kv_len);
    m.strides[2] = row;
    m.strides[1] = m.heads_differ ? a->q_len * row : 0;
    m.strides[0] = m.batches_differ ? (m.heads_differ ? a->q_heads : 1) * a->q_len * row : 0;
    m.data = call_memory(c, (size_t)(a->batch * a->q_heads * a->q_len * row));
    fill(&m, a);
    give_mask(c, &m);
    return m;
}

static void add_lengths(struct call *c, uint64_t *random)
{
    int64_t *const lengths = call_memory(c, (size_t)c->args.batch * sizeof *lengths);
    for (int64_t b = 0; b < c->args.batch; b++)
        lengths[b] = random_below(random, c->args.kv_len + 1);
    c->groups.visibility.kv_lens = (attnkit_ints){.data = lengths};
}

/* Returns a call with a mask of `type`. Every third call has a second mask, of bytes or numbers,
 * which differs from the first mask. Some calls are causal, some have lengths or slopes. */
static struct call *draw(int number, enum mask_type type, uint64_t *random)
{
    struct call *const c = call_new((struct shape){.batch = 1 + random_below(random, 3),
                                                   .kv_heads = 2 + random_below(random, 3),
                                                   .group = 1 + random_below(random, 3),
                                                   .q_len = 20 + random_below(random, 300),
                                                   .kv_len = 100 + random_below(random, 400),
                                                   .head_dim = 8,
                                                   .value_dim = 8});
    add_mask(c, type, random);
    if (number % 3 == 0)
        add_mask(c, type == BYTES ? HALVES : BYTES, random);
    if (number % 4 == 0)
        add_lengths(c, random);
    if (number % 5 == 0) {
        c->args.flags = ATTNKIT_CAUSAL;
        c->args.align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
    }
    if (number % 7 == 0) {
        float *const slopes = call_memory(c, (size_t)c->args.q_heads * sizeof *slopes);
        for (int64_t h = 0; h < c->args.q_heads; h++)
            slopes[h] = 0.25f / (float)(h + 1);
        c->groups.scores.alibi_slopes = slopes;
        c->args.align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
    }
    c->threads = 1 + number % 3;
    return c;
}

static const void *head_of(const attnkit_tensor *t, int64_t head)
{
    return t->data ? (const char *)t->data + head * t->strides[1] : NULL;
}

/* Makes a call of one KV head of c. */
static struct call *one_head(const struct call *c, int64_t kv_head)
{
    struct call *const one = call_like(c);
    const int64_t group = c->args.q_heads / c->args.kv_heads, head = kv_head * group;
    one->args.kv_heads = 1;
    one->args.q_heads = group;
    one->args.q.data = head_of(&c->args.q, head);
    one->args.k.data = head_of(&c->args.k, kv_head);
    one->args.v.data = head_of(&c->args.v, kv_head);
    one->args.out.strides[0] = group * one->args.out.strides[1];
    one->args.lse.strides[0] = group * one->args.lse.strides[1];
    one->groups.visibility.mask.data = head_of(&c->groups.visibility.mask, head);
    one->groups.visibility.mask_bits.data = head_of(&c->groups.visibility.mask_bits, head);
    one->groups.scores.bias.data = head_of(&c->groups.scores.bias, head);
    if (c->groups.scores.alibi_slopes)
        one->groups.scores.alibi_slopes = c->groups.scores.alibi_slopes + head;
    one->threads = 1;
    return one;
}

static void check_heads(const struct call *c, const char *isa)
{
    const int64_t group = c->args.q_heads / c->args.kv_heads;
    for (int64_t kv_head = 0; kv_head < c->args.kv_heads; kv_head++) {
        struct call *const one = one_head(c, kv_head);
        call_run(one, isa);
        for (struct at at = {0}; call_has(one, at); at = call_next(one, at)) {
            struct at in_all = at;
            in_all.h += kv_head * group;
            if (!call_same_row(c, in_all, one, at))
                fail_msg("entry %lld, KV head %lld, row %lld differs", (long long)at.b,
                         (long long)kv_head, (long long)at.i);
        }
        call_free(one);
    }
}

static void check_type(const char *isa, enum mask_type type)
{
    for (int number = 0; number < sampled(CASES, 4); number++) {
        uint64_t random = (uint64_t)(number * MASKS + (int)type);
        struct call *const c = draw(number, type, &random);
        call_run(c, isa);
        check_heads(c, isa);
        call_free(c);
    }
}

static void heads_with_a_mask_of_bytes_have_the_bits_of_heads_alone(void **state)
{
    check_type(*state, BYTES);
}

static void heads_with_a_mask_of_bits_have_the_bits_of_heads_alone(void **state)
{
    check_type(*state, BITS);
}

static void heads_with_a_bias_in_f16_have_the_bits_of_heads_alone(void **state)
{
    check_type(*state, HALVES);
}

static void heads_with_a_bias_in_f32_have_the_bits_of_heads_alone(void **state)
{
    check_type(*state, FLOATS);
}

/* With so many keys, struct sights has bits for two panels, and later panels have none. */
static void heads_of_many_keys_have_the_bits_of_heads_alone(void **state)
{
    uint64_t random = 3;
    if (is_sampled_run())
        skip();
    struct call *const c = call_new((struct shape){
        .kv_heads = 2, .q_len = 400, .kv_len = 1367 * KEY_BLOCK, .head_dim = 4, .value_dim = 4});
    assert_false(add_mask(c, BYTES, &random).heads_differ);
    call_run(c, *state);
    check_heads(c, *state);
    call_free(c);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest promises[] = {
        cmocka_unit_test(heads_with_a_mask_of_bytes_have_the_bits_of_heads_alone),
        cmocka_unit_test(heads_with_a_mask_of_bits_have_the_bits_of_heads_alone),
        cmocka_unit_test(heads_with_a_bias_in_f16_have_the_bits_of_heads_alone),
        cmocka_unit_test(heads_with_a_bias_in_f32_have_the_bits_of_heads_alone),
        cmocka_unit_test(heads_of_many_keys_have_the_bits_of_heads_alone),
    };
    return promises_main("sights", promises, sizeof promises / sizeof promises[0], argc, argv);
}
