/* SPDX-License-Identifier: Apache-2.0
 *
 * Planned layers: a run has the bits of a single call. The tests cover calls with options drawn at
 * random, caches of every storage, packed sequences, and packed weights of every type. Runs have at
 * most as many entries, rows, keys and threads as planned. Some runs use a copy of the plan, or new
 * weights of the planned shape. Several threads also run one plan at the same time. The tests run
 * on every instruction set, or on the instruction set that the first argument names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/call.h"
#include "tests/support/layer/drawn.h"
#include "tests/support/layer/run.h"
#include "tests/support/layer/sequences.h"
#include "tests/support/random.h"
#include "tests/support/sample.h"

enum {
    CASES = 60,
    FLOAT = sizeof(float), /* bytes */
};

static void run_call(const attnkit_layer_args *args, const char *isa)
{
    layer_call_run(args, (struct layer_way){.isa = isa});
}

/* Plans the call and runs the plan. The results go to the tensors of the call. */
static void run_plan(const attnkit_layer_args *args, const char *isa, struct layer_way way)
{
    struct layer_planned plan = layer_plan_new(args, isa, LAYER_THREADS);
    struct layer_brought brought;
    layer_bring(args, &brought);
    layer_plan_run(&plan, &brought.data, way);
    layer_plan_free(&plan);
}

/* --- Drawn calls ------------------------------------------------------------------------------ */

static void check_case(int number, const char *isa)
{
    struct layer_call c;
    struct layer_brought brought;
    layer_call_draw(&c, number);
    layer_call_clear(&c);
    run_call(&c.args, isa);
    struct layer_results want = layer_results_copy(&c);
    struct layer_planned plan = layer_plan_new(&c.args, isa, LAYER_THREADS);
    struct layer_planned copy = layer_plan_copy(&plan);
    layer_bring(&c.args, &brought);
    for (int64_t threads = 1; threads <= LAYER_THREADS; threads++)
        for (int own = 0; own < 2; own++) {
            const struct layer_way way = {.threads = threads, .own_threads = own};
            layer_call_clear(&c);
            layer_plan_run(threads % 2 ? &plan : &copy, &brought.data, way);
            layer_call_expect(&c, &want);
        }
    layer_plan_free(&plan);
    layer_plan_free(&copy);
    layer_results_free(&want);
    layer_call_free(&c);
}

static void runs_have_the_bits_of_the_call(void **state)
{
    for (int number = 0; number < sampled(CASES, 4); number++)
        check_case(number, *state);
}

/* --- Fewer entries, rows and keys ------------------------------------------------------------- */

/* Makes the strides of a dense tensor explicit, so that a shorter tensor can have the same
 * strides. */
static void say_strides(attnkit_tensor *t, int64_t heads, int64_t rows, int64_t row_bytes)
{
    if (!t->data)
        return;
    t->layout |= ATTNKIT_STRIDED;
    t->strides[2] = row_bytes;
    t->strides[1] = rows * row_bytes;
    t->strides[0] = heads * rows * row_bytes;
}

static void say_all_strides(struct layer_call *c)
{
    attnkit_layer_args *const a = &c->args;
    const int64_t heads = c->layer.w.q_heads, rows = a->q_len, keys = c->keys;
    say_strides(&a->x, 1, rows, c->layer.w.d_model * FLOAT);
    say_strides(&a->out, 1, rows, c->layer.d_out * FLOAT);
    say_strides(&a->key, 1, keys, c->layer.d_key * FLOAT);
    say_strides(&a->value, 1, keys, c->layer.d_value * FLOAT);
    say_strides(&c->attention.lse, heads, rows, FLOAT);
    say_strides(&c->groups.weights.weights, heads, rows, keys * FLOAT);
    say_strides(&c->groups.visibility.mask, heads, rows, keys);
    say_strides(&c->groups.scores.bias, heads, rows, keys * FLOAT);
}

/* Copies the mean weights of a shorter call, which has `keys` keys, to the places where a plan for
 * `rows` rows writes them. */
static void place_means(const struct layer_call *c, int64_t keys, int64_t rows, float *to)
{
    const float *mean = c->results.mean;
    memset(to, 0xa5, c->mean_bytes);
    for (int64_t b = 0; b < c->args.batch; b++)
        for (int64_t i = 0; i < c->args.q_len; i++, mean += keys)
            memcpy(to + (b * rows + i) * c->keys, mean, (size_t)keys * FLOAT);
}

/* Draws new numbers of batch entries, rows and keys for the call, none larger than before. Returns
 * the new number of keys. */
static int64_t shorten(struct layer_call *c, uint64_t *random)
{
    attnkit_layer_args *const a = &c->args;
    a->batch = 1 + random_below(random, a->batch);
    a->q_len = random_below(random, a->q_len + 1);
    if (a->key.data)
        a->kv_len = random_below(random, a->kv_len + 1);
    const int64_t keys = a->key.data ? a->kv_len : a->q_len;
    for (int64_t b = 0; b < a->batch; b++)
        if (c->kv_lens[b] > keys)
            c->kv_lens[b] = keys;
    return keys;
}

static void check_shorter_runs(int number, const char *isa)
{
    struct layer_call c;
    uint64_t random = (uint64_t)number;
    layer_call_draw(&c, number);
    say_all_strides(&c);
    const int64_t rows = c.args.q_len;
    struct layer_planned plan = layer_plan_new(&c.args, isa, LAYER_THREADS);
    for (int i = 0; i < 3; i++) {
        struct layer_brought brought;
        const int64_t keys = shorten(&c, &random);
        layer_bring(&c.args, &brought);
        layer_call_clear(&c);
        run_call(&c.args, isa);
        struct layer_results want = layer_results_copy(&c);
        place_means(&c, keys, rows, want.mean);
        layer_call_clear(&c);
        layer_plan_run(&plan, &brought.data,
                       (struct layer_way){.threads = 1 + i, .own_threads = number % 2});
        layer_call_expect(&c, &want);
        layer_results_free(&want);
    }
    layer_plan_free(&plan);
    layer_call_free(&c);
}

static void shorter_runs_have_the_bits_of_shorter_calls(void **state)
{
    for (int number = 0; number < sampled(CASES, 4); number++)
        check_shorter_runs(number, *state);
}

/* --- Packed weights --------------------------------------------------------------------------- */

static const attnkit_type packed_types[] = {ATTNKIT_F32, ATTNKIT_F16, ATTNKIT_BF16, ATTNKIT_Q8_0};

/* Self-attention of 4 query heads and 2 KV heads, without options. */
struct plain {
    struct layer layer;
    attnkit_layer_args args;
    float x[2 * 9 * 64], out[2 * 9 * 64];
};

static void plain_begin(struct plain *p, attnkit_type packed_type)
{
    uint64_t random = 31;
    const attnkit_layer_weights shape = {
        .d_model = 64, .q_heads = 4, .kv_heads = 2, .packed_type = packed_type};
    layer_draw_shape(&p->layer, &shape, true, &random);
    layer_pack(&p->layer);
    for (int i = 0; i < 2 * 9 * 64; i++)
        p->x[i] = random_uniform(&random);
    p->args = (attnkit_layer_args){.size = sizeof p->args,
                                   .packed = p->layer.packed,
                                   .packed_size = p->layer.size,
                                   .batch = 2,
                                   .q_len = 9,
                                   .x.data = p->x,
                                   .out.data = p->out};
}

static void weights_may_be_of_any_type(void **state)
{
    for (int i = 0; i < 4; i++) {
        struct plain p;
        float want[sizeof p.out / FLOAT];
        plain_begin(&p, packed_types[i]);
        run_call(&p.args, *state);
        memcpy(want, p.out, sizeof want);
        for (int64_t threads = 1; threads <= LAYER_THREADS; threads++) {
            memset(p.out, 0xa5, sizeof p.out);
            run_plan(&p.args, *state, (struct layer_way){.threads = threads});
            assert_memory_equal(p.out, want, sizeof want);
        }
        layer_free(&p.layer);
    }
}

static void one_plan_serves_layers_of_one_shape(void **state)
{
    for (int i = 0; i < 4; i++) {
        uint64_t random = 37;
        struct plain p;
        struct layer other;
        struct layer_brought brought;
        float first[sizeof p.out / FLOAT], want[sizeof p.out / FLOAT];
        plain_begin(&p, packed_types[i]);
        layer_draw_alike(&other, &p.layer, &random);
        layer_pack(&other);
        struct layer_planned plan = layer_plan_new(&p.args, *state, 1);
        layer_bring(&p.args, &brought);
        layer_plan_run(&plan, &brought.data, (struct layer_way){.threads = 1});
        memcpy(first, p.out, sizeof first);
        p.args.packed = other.packed;
        run_call(&p.args, *state);
        memcpy(want, p.out, sizeof want);
        assert_memory_not_equal(want, first, sizeof want);
        brought.data.packed = other.packed;
        layer_plan_run(&plan, &brought.data, (struct layer_way){.threads = 1});
        assert_memory_equal(p.out, want, sizeof want);
        layer_plan_free(&plan);
        layer_free(&other);
        layer_free(&p.layer);
    }
}

/* --- Caches ----------------------------------------------------------------------------------- */

static const int steps[] = {37, 1, 20, 3};

enum { MOST_ROWS = 37 /* the most rows of a step */ };

/* The positions of the first rows of all entries, in 32 and in 64 bits. move_to sets these
 * positions. cos and sin are for rotations that use tables. */
struct positions {
    int32_t narrow[SEQUENCES];
    int64_t wide[SEQUENCES];
    float *cos, *sin;
};

enum { TABLE_POSITIONS = CACHE_CAPACITY + 3 * SEQUENCES };

static void set_rotation(struct positions *p, bool tables, bool narrow, attnkit_rotation *rotation)
{
    uint64_t random = 41;
    p->cos = layer_floats(TABLE_POSITIONS * 16, &random);
    p->sin = layer_floats(TABLE_POSITIONS * 16, &random);
    rotation->positions = (attnkit_ints){.data = p->wide};
    if (narrow)
        rotation->positions = (attnkit_ints){.data = p->narrow, .type = ATTNKIT_INT32};
    if (!tables)
        return;
    rotation->cos = p->cos;
    rotation->sin = p->sin;
    rotation->table_positions = TABLE_POSITIONS;
}

static void move_to(struct positions *p, int64_t first)
{
    for (int b = 0; b < SEQUENCES; b++)
        p->narrow[b] = (int32_t)(p->wide[b] = 2 + 3 * b + first);
}

static void free_positions(struct positions *p)
{
    free(p->cos);
    free(p->sin);
}

/* Runs all rows of the sequences step by step, by calls or by one plan. */
static void decode(struct sequences *s, int how, bool planned, const char *isa)
{
    struct cached_layer cache;
    struct positions positions;
    struct layer_planned plan = {0};
    int32_t narrow[SEQUENCES];
    cached_layer_begin(&cache, s, &storages[how]);
    set_rotation(&positions, how % 2, how % 3 == 0, &s->rotation);
    if (how % 2)
        cache.args.cached = (attnkit_ints){.data = narrow, .type = ATTNKIT_INT32};
    if (planned) {
        cached_layer_step(&cache, s, 0, MOST_ROWS);
        plan = layer_plan_new(&cache.args, isa, LAYER_THREADS);
    }
    for (int64_t first = 0, step = 0, len; first < s->len; first += len, step++) {
        struct layer_brought brought;
        len = steps[step % 4] < s->len - first ? steps[step % 4] : s->len - first;
        cached_layer_step(&cache, s, first, len);
        move_to(&positions, first);
        for (int b = 0; b < SEQUENCES; b++)
            narrow[b] = (int32_t)first;
        layer_bring(&cache.args, &brought);
        const struct layer_way way = {.threads = 1 + step % LAYER_THREADS, .own_threads = how % 2};
        if (planned)
            layer_plan_run(&plan, &brought.data, way);
        else
            run_call(&cache.args, isa);
    }
    if (planned)
        layer_plan_free(&plan);
    free_positions(&positions);
    cached_layer_end(&cache);
}

static void one_plan_decodes_into_every_cache(void **state)
{
    struct sequences s;
    sequences_begin(&s, 2, 140, 7);
    float *const want = malloc(sequences_bytes(&s));
    for (int how = 0; how < STORAGES; how++) {
        const attnkit_rotation angles = s.rotation;
        memset(s.out, 0xa5, sequences_bytes(&s));
        decode(&s, how, false, *state);
        memcpy(want, s.out, sequences_bytes(&s));
        s.rotation = angles;
        memset(s.out, 0xa5, sequences_bytes(&s));
        decode(&s, how, true, *state);
        assert_memory_equal(s.out, want, sequences_bytes(&s));
        s.rotation = angles;
    }
    free(want);
    sequences_end(&s);
}

/* One plan appends the keys of an encoder and attends over them. A second plan only attends over
 * these keys. */
static void a_planned_cache_can_be_left_as_it_is(void **state)
{
    enum { KEYS = 90, MORE = 20 /* MORE: keys that are planned but absent */ };
    struct sequences s;
    uint64_t random = 5;
    float *const key = layer_floats(2 * KEYS * ROW_FLOATS, &random);
    sequences_begin(&s, 2, 60, 11);
    s.attention.flags = 0;
    s.attention.align = ATTNKIT_ALIGN_NONE;
    s.args.rotation = NULL;
    s.args.kv_len = KEYS;
    s.args.key = (attnkit_tensor){
        .data = key, .strides = {KEYS * ROW_BYTES, 0, ROW_BYTES}, .layout = ATTNKIT_STRIDED};
    run_call(&s.args, *state);
    float *const want = malloc(sequences_bytes(&s));
    memcpy(want, s.out, sequences_bytes(&s));

    struct cached_layer cache;
    struct layer_brought brought;
    cached_layer_begin(&cache, &s, &storages[2]);
    cache.args.kv_len = KEYS + MORE;
    struct layer_planned appending = layer_plan_new(&cache.args, *state, 2);
    cache.args.key.data = NULL;
    cache.args.kv_len = 0;
    cache.args.flags = ATTNKIT_NO_APPEND;
    struct layer_planned seeing = layer_plan_new(&cache.args, *state, 2);
    layer_bring(&s.args, &brought);
    brought.attention.data.kv_len = CACHE_CAPACITY;
    brought.attention.data.k = cache.k;
    brought.attention.data.v = cache.v;
    brought.data.cached = cache.cached;
    memset(s.out, 0, sequences_bytes(&s));
    layer_plan_run(&appending, &brought.data, (struct layer_way){.threads = 2});
    assert_memory_equal(s.out, want, sequences_bytes(&s));
    char *const before = malloc(cache.bytes);
    memcpy(before, cache.k, cache.bytes);
    memset(s.out, 0, sequences_bytes(&s));
    cache.cached[0] = cache.cached[1] = KEYS;
    brought.data.key = NULL;
    brought.data.kv_len = 0;
    brought.data.q_len = 20;
    for (int64_t i = 0; i < 60; i += 20) {
        brought.data.x = s.x + i * ROW_FLOATS;
        brought.data.out = s.out + i * ROW_FLOATS;
        layer_plan_run(&seeing, &brought.data,
                       (struct layer_way){.threads = 2, .own_threads = true});
    }
    assert_memory_equal(s.out, want, sequences_bytes(&s));
    assert_memory_equal(cache.k, before, cache.bytes);
    layer_plan_free(&appending);
    layer_plan_free(&seeing);
    free(before);
    free(want);
    free(key);
    cached_layer_end(&cache);
    sequences_end(&s);
}

/* --- Packed sequences ------------------------------------------------------------------------- */

enum { PACKED_ROWS = 60 };

/* Out and the mean weights after a call. */
struct packed_results {
    float out[PACKED_ROWS * ROW_FLOATS], mean[PACKED_ROWS * PACKED_ROWS];
};

static void clear_packed(struct packed_results *r)
{
    memset(r, 0xa5, sizeof *r);
}

/* Moves the mean weights of a call that has `rows` rows to the places where a plan for PACKED_ROWS
 * rows writes them. */
static void place_packed_means(struct packed_results *r, int64_t rows)
{
    static float mean[PACKED_ROWS * PACKED_ROWS];
    memcpy(mean, r->mean, sizeof mean);
    memset(r->mean, 0xa5, sizeof mean);
    for (int64_t i = 0; i < rows; i++)
        memcpy(r->mean + i * PACKED_ROWS, mean + i * rows, (size_t)rows * FLOAT);
}

/* Runs `batch` packed sequences by a plan for three sequences, with rotation by tables or
 * angles. */
static void check_packed(int64_t batch, bool tables, const char *isa)
{
    static const int32_t planned[] = {0, 20, 40, PACKED_ROWS}, starts[] = {0, 17, 17, 51};
    static const int64_t wide[] = {0, 17, 17, 51};
    static struct packed_results got, want;
    struct sequences s;
    struct positions positions;
    struct layer_brought brought;
    sequences_begin(&s, 1, PACKED_ROWS, 19);
    set_rotation(&positions, tables, batch % 2, &s.rotation);
    move_to(&positions, 5);
    attnkit_ints *const cu_seqlens = &s.groups.storage.cu_seqlens_q;
    *cu_seqlens = (attnkit_ints){.data = planned, .type = tables ? ATTNKIT_INT32 : ATTNKIT_INT64};
    s.args.batch = 3;
    s.args.out.data = got.out;
    s.args.mean_weights = got.mean;
    struct layer_planned plan = layer_plan_new(&s.args, isa, LAYER_THREADS);
    s.args.batch = batch;
    s.args.q_len = starts[batch];
    cu_seqlens->data = tables ? (const void *)starts : wide;
    clear_packed(&got);
    run_call(&s.args, isa);
    want = got;
    place_packed_means(&want, starts[batch]);
    layer_bring(&s.args, &brought);
    for (int own = 0; own < 2; own++) {
        clear_packed(&got);
        layer_plan_run(&plan, &brought.data,
                       (struct layer_way){.threads = batch, .own_threads = own});
        assert_memory_equal(&got, &want, sizeof got);
    }
    layer_plan_free(&plan);
    free_positions(&positions);
    sequences_end(&s);
}

static void packed_sequences_may_be_fewer_than_planned(void **state)
{
    for (int tables = 0; tables < 2; tables++)
        for (int64_t batch = 1; batch <= 3; batch++)
            check_packed(batch, tables, *state);
}

/* --- Threads at once -------------------------------------------------------------------------- */

struct user {
    pthread_t thread;
    const struct layer_planned *plan;
    struct layer_brought brought;
    float *out;
};

static void *use(void *arg)
{
    struct user *const u = arg;
    for (int i = 0; i < 5; i++)
        layer_plan_run(u->plan, &u->brought.data, (struct layer_way){.threads = 1 + i % 2});
    return NULL;
}

static void a_plan_may_be_run_by_several_threads_at_once(void **state)
{
    enum { USERS = 4 };
    struct sequences s;
    struct user users[USERS];
    sequences_begin(&s, 2, 50, 13);
    struct layer_planned plan = layer_plan_new(&s.args, *state, 2);
    run_call(&s.args, *state);
    for (int i = 0; i < USERS; i++) {
        users[i].plan = &plan;
        users[i].out = malloc(sequences_bytes(&s));
        layer_bring(&s.args, &users[i].brought);
        users[i].brought.data.out = users[i].out;
        users[i].brought.data.attention = &users[i].brought.attention.data;
    }
    for (int i = 0; i < USERS; i++)
        assert_int_equal(pthread_create(&users[i].thread, NULL, use, &users[i]), 0);
    for (int i = 0; i < USERS; i++) {
        pthread_join(users[i].thread, NULL);
        assert_memory_equal(users[i].out, s.out, sequences_bytes(&s));
        free(users[i].out);
    }
    layer_plan_free(&plan);
    sequences_end(&s);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest promises[] = {
        cmocka_unit_test(runs_have_the_bits_of_the_call),
        cmocka_unit_test(shorter_runs_have_the_bits_of_shorter_calls),
        cmocka_unit_test(weights_may_be_of_any_type),
        cmocka_unit_test(one_plan_serves_layers_of_one_shape),
        cmocka_unit_test(one_plan_decodes_into_every_cache),
        cmocka_unit_test(a_planned_cache_can_be_left_as_it_is),
        cmocka_unit_test(packed_sequences_may_be_fewer_than_planned),
        cmocka_unit_test(a_plan_may_be_run_by_several_threads_at_once),
    };
    return promises_main("layer_plans", promises, sizeof promises / sizeof promises[0], argc, argv);
}
