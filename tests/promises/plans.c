/* SPDX-License-Identifier: Apache-2.0
 *
 * Planned attention: a run has the bits of a single call, for cases drawn at random (drawn.h). Some
 * runs have fewer entries, rows, keys or threads than planned, or use a copy of the plan. Several
 * threads also run one plan at the same time. Planning reads no tensor and no array, and a run
 * writes nothing to the plan. The tests run on every instruction set that can run here, or on the
 * instruction set that the first argument names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tests/cases/drawn.h"
#include "tests/cases/full.h"
#include "tests/cases/planned.h"
#include "tests/support/random.h"
#include "tests/support/sample.h"

enum {
    CASES = 600,
    MOST_THREADS = 4,
};

static void run_call(const attnkit_attention_args *args, const char *isa)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec, .isa = isa};
    if (attnkit_attention_workspace(args, &exec, &exec.workspace_size, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    exec.workspace = malloc(exec.workspace_size + 1);
    if (attnkit_attention(args, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    free(exec.workspace);
}

/* --- The bits of a call ----------------------------------------------------------------------- */

/* Returns a copy of all bytes of the outputs, including the gaps between rows. */
static char *outputs_of(const struct drawn *c)
{
    char *const all = malloc(c->out_bytes + c->lse_bytes + c->weights_bytes + 1);
    memcpy(all, c->out, c->out_bytes);
    memcpy(all + c->out_bytes, c->lse, c->lse_bytes);
    if (c->weights)
        memcpy(all + c->out_bytes + c->lse_bytes, c->weights, c->weights_bytes);
    return all;
}

static void check_outputs(const struct drawn *c, const char *expected, int number, const char *what)
{
    char *const got = outputs_of(c);
    if (memcmp(got, expected, c->out_bytes + c->lse_bytes + c->weights_bytes) != 0) {
        drawn_print(number);
        fail_msg("case %d: %s differs", number, what);
    }
    free(got);
}

static void check_runs_of_a_case(struct drawn *c, int number, const char *isa)
{
    struct brought brought;
    drawn_clear(c);
    run_call(&c->args, isa);
    char *const expected = outputs_of(c);
    if (number % 2)
        drawn_narrow(c);
    const struct plan plan = plan_call(&c->args, isa, c->threads), copy = plan_new();
    memcpy(copy.memory, plan.memory, plan.size);
    memcpy(copy.written, plan.memory, plan.size);
    plan_bring(&c->args, &brought);
    for (int64_t threads = c->threads; threads > 0; threads--) {
        drawn_clear(c);
        plan_run(plan.memory, &brought.data, threads);
        check_outputs(c, expected, number, "a run");
    }
    plan_free(&plan);
    drawn_clear(c);
    plan_run(copy.memory, &brought.data, 1);
    check_outputs(c, expected, number, "a run with a copy of the plan");
    plan_free(&copy);
    free(expected);
    drawn_free(c);
}

static void runs_have_the_bits_of_the_call(void **state)
{
    for (int i = 0; i < sampled(CASES, 4); i++)
        check_runs_of_a_case(drawn_new(i), i, *state);
}

static void runs_with_cells_have_the_bits_of_the_call(void **state)
{
    for (int i = 0; i < sampled(CASES, 4); i++) {
        struct drawn *const c = drawn_in_cells(i);
        if (c)
            check_runs_of_a_case(c, i, *state);
    }
}

static void runs_with_integers_have_the_bits_of_the_call(void **state)
{
    for (int i = 0; i < sampled(CASES, 4); i++)
        check_runs_of_a_case(drawn_with_integers(i), i, *state);
}

static void runs_with_bf16_products_have_the_bits_of_the_call(void **state)
{
    for (int i = 0; i < sampled(CASES, 4); i++)
        check_runs_of_a_case(drawn_with_bf16_products(i), i, *state);
}

/* --- Fewer entries, rows and keys ------------------------------------------------------------- */

/* A case with fewer entries, rows and keys, and memory for its arguments. */
struct shorter {
    attnkit_attention_args args;
    struct groups groups;
    int64_t kv_lens[DRAWN_BATCH];
    int64_t cu_seqlens_q[DRAWN_BATCH + 1], cu_seqlens_kv[DRAWN_BATCH + 1];
    int32_t *q_segment_ids, *kv_segment_ids; /* ids of the remaining rows and keys, without gaps */
};

/* Makes the strides of a tensor explicit, so that a shorter tensor can have the same strides. */
static void say_strides(attnkit_tensor *t, int64_t row_bytes, int64_t rows, int64_t heads)
{
    if (!t->data || t->layout & ATTNKIT_STRIDED)
        return;
    t->layout |= ATTNKIT_STRIDED;
    t->strides[2] = row_bytes;
    t->strides[1] = row_bytes * rows;
    t->strides[0] = row_bytes * rows * heads;
}

/* Makes the strides of K or V, and of their scales, explicit. */
static void say_strides_of_keys(const struct drawn *c, attnkit_tensor *t, attnkit_tensor *scales,
                                int64_t dim, int64_t group)
{
    const attnkit_pages *const pages = &c->groups.pages;
    const int64_t keys = pages->block_table ? pages->page_size : c->args.kv_len;
    const int64_t unit = t->layout & ATTNKIT_TILED ? ATTNKIT_TILE_KEYS : 1;
    const int64_t units = (keys + unit - 1) / unit, heads = c->args.kv_heads;
    say_strides(t, unit * bytes_of((enum type)t->type, dim), units, heads);
    say_strides(scales, unit * (dim / (group ? group : dim)) * 4, units, heads);
}

static void say_all_strides(const struct drawn *c, struct shorter *s)
{
    attnkit_attention_args *const a = &s->args;
    attnkit_kv_storage *const storage = &s->groups.storage;
    say_strides(&a->q, bytes_of((enum type)a->q.type, a->head_dim), a->q_len, a->q_heads);
    say_strides(&a->out, bytes_of((enum type)a->out.type, a->value_dim), a->q_len, a->q_heads);
    say_strides(&a->lse, 4, a->q_len, a->q_heads);
    say_strides(&s->groups.weights.weights, 4 * a->kv_len, a->q_len, a->q_heads);
    say_strides_of_keys(c, &a->k, &storage->k_scales, a->head_dim, storage->k_scale_group);
    say_strides_of_keys(c, &a->v, &storage->v_scales, a->value_dim, storage->v_scale_group);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* If the call has the cu_seqlens `starts`, replaces them by drawn numbers, for `batch` sequences
 * with `total` rows or keys in all. `room` has space for batch + 1 numbers. */
static void draw_starts(attnkit_ints *starts, int64_t *room, int64_t batch, int64_t total,
                        uint64_t *random)
{
    if (!starts->data)
        return;
    room[0] = 0;
    for (int64_t b = 1; b <= batch; b++)
        room[b] = b == batch ? total : room[b - 1] + random_below(random, total - room[b - 1] + 1);
    *starts = (attnkit_ints){.data = room};
}

/* Returns the first `count` ids of each entry without gaps. `ids` has `room` ids for each entry. If
 * `ids` is NULL, the returned memory has no ids. The caller frees the memory. */
static int32_t *pack_ids(const int32_t *ids, int64_t entries, int64_t room, int64_t count)
{
    int32_t *const packed = malloc((size_t)(entries * count + 1) * sizeof *packed);
    for (int64_t b = 0; ids && b < entries; b++)
        memcpy(packed + b * count, ids + b * room, (size_t)count * sizeof *ids);
    return packed;
}

static void shorten_visibility(const struct drawn *c, struct shorter *s)
{
    const int64_t keys = s->args.kv_len, batch = s->args.batch;
    const attnkit_kv_storage *const storage = &c->groups.storage;
    const int64_t row_entries = storage->cu_seqlens_q.data ? 1 : batch;
    const int64_t key_entries = storage->cu_seqlens_kv.data ? 1 : batch;
    attnkit_visibility *const see = &s->groups.visibility;
    for (int64_t b = 0; b < batch && see->kv_lens.data; b++)
        s->kv_lens[b] = smaller(c->kv_lens[b], keys);
    if (see->kv_lens.data)
        see->kv_lens = (attnkit_ints){.data = s->kv_lens};
    s->q_segment_ids = pack_ids(see->q_segment_ids, row_entries, c->args.q_len, s->args.q_len);
    s->kv_segment_ids = pack_ids(see->kv_segment_ids, key_entries, c->args.kv_len, keys);
    if (see->q_segment_ids) {
        see->q_segment_ids = s->q_segment_ids;
        see->kv_segment_ids = s->kv_segment_ids;
    }
    see->mask_columns = smaller(see->mask_columns, keys);
    see->mask_bits_columns = smaller(see->mask_bits_columns, keys);
    s->groups.scores.bias_columns = smaller(s->groups.scores.bias_columns, keys);
}

static void shorten(const struct drawn *c, uint64_t *random, struct shorter *s)
{
    attnkit_attention_args *const a = &s->args;
    attnkit_kv_storage *const storage = &s->groups.storage;
    *s = (struct shorter){.args = c->args, .groups = c->groups};
    groups_hang(a, &s->groups);
    say_all_strides(c, s);
    a->batch = 1 + random_below(random, a->batch);
    a->q_len = random_below(random, a->q_len + 1);
    a->kv_len = random_below(random, a->kv_len + 1);
    draw_starts(&storage->cu_seqlens_q, s->cu_seqlens_q, a->batch, a->q_len, random);
    draw_starts(&storage->cu_seqlens_kv, s->cu_seqlens_kv, a->batch, a->kv_len, random);
    shorten_visibility(c, s);
}

/* The shorter call and the shorter run have the strides of the plan. Segment ids have no strides:
 * they lie without gaps in the call, and as planned in the run. */
static void check_shorter_runs_of_a_case(struct drawn *c, int number, const char *isa)
{
    const struct plan plan = plan_call(&c->args, isa, c->threads);
    uint64_t random = (uint64_t)number;
    /* Cases whose K and V lie between unmapped pages (tests/support/memory.h) are left out. In
     * these cases the keys that no row of the whole call sees are unmapped, too, but rows of a
     * shorter call may see these keys. */
    for (int i = 0; i < 3 && !c->slots; i++) {
        struct shorter s;
        struct brought brought;
        shorten(c, &random, &s);
        drawn_clear(c);
        run_call(&s.args, isa);
        char *const expected = outputs_of(c);
        plan_bring(&s.args, &brought);
        brought.groups.q_segment_ids = c->groups.visibility.q_segment_ids;
        brought.groups.kv_segment_ids = c->groups.visibility.kv_segment_ids;
        drawn_clear(c);
        plan_run(plan.memory, &brought.data, 1 + random_below(&random, c->threads));
        check_outputs(c, expected, number, "a shorter run");
        free(expected);
        free(s.q_segment_ids);
        free(s.kv_segment_ids);
    }
    plan_free(&plan);
    drawn_free(c);
}

static void shorter_runs_have_the_bits_of_shorter_calls(void **state)
{
    for (int i = 0; i < sampled(CASES, 4); i++)
        check_shorter_runs_of_a_case(drawn_new(i), i, *state);
}

/* The room for rounded rows of q in the planned workspace must be enough for each shorter run. */
static void shorter_runs_with_integers_have_the_bits_of_shorter_calls(void **state)
{
    for (int i = 0; i < sampled(CASES, 4); i++) {
        struct drawn *const c = drawn_with_integers(i);
        if (c->groups.storage.key_index.data)
            drawn_free(c); /* a case with cells has no shorter runs */
        else
            check_shorter_runs_of_a_case(c, i, *state);
    }
}

static void shorter_runs_with_bf16_products_have_the_bits_of_shorter_calls(void **state)
{
    for (int i = 0; i < sampled(CASES, 4); i++) {
        struct drawn *const c = drawn_with_bf16_products(i);
        if (c->groups.storage.key_index.data)
            drawn_free(c); /* a call with cells is not shortened */
        else
            check_shorter_runs_of_a_case(c, i, *state);
    }
}

/* --- States, and packed keys ------------------------------------------------------------------ */

/* One row (a decoding step), few rows and many. */
static const int64_t row_counts[] = {1, 3, 35};

static void states_and_packed_keys_have_the_bits_of_the_call(void **state)
{
    for (int n = 0; n < FULL_CALLS; n++)
        for (int r = 0; r < 3; r++) {
            struct call *const c = full_calls[n](row_counts[r]), *const d = full_beside(c);
            struct brought brought;
            full_clear(c);
            run_call(&c->args, *state);
            for (int64_t threads = 1; threads <= MOST_THREADS; threads++) {
                const struct plan plan = plan_call(&d->args, *state, threads);
                plan_bring(&d->args, &brought);
                full_clear(d);
                plan_run(plan.memory, &brought.data, threads);
                assert_true(full_same(c, d));
                plan_free(&plan);
            }
            call_free(d);
            call_free(c);
        }
}

enum { ROOM = 35, STATE_ROWS = 2 * FULL_HEADS * ROOM };

/* Copies `rows` rows of each head from a state with room for from_room rows to a state with room
 * for to_room rows. */
static void move_rows(const void *from, int64_t from_room, void *to, int64_t to_room, int64_t rows,
                      int64_t row_bytes)
{
    for (int64_t head = 0; head < 2 * FULL_HEADS; head++)
        memcpy((char *)to + head * to_room * row_bytes,
               (const char *)from + head * from_room * row_bytes, (size_t)(rows * row_bytes));
}

static void move_state(attnkit_state from, int64_t from_room, attnkit_state to, int64_t to_room,
                       int64_t rows)
{
    move_rows(from.max, from_room, to.max, to_room, rows, sizeof(float));
    move_rows(from.sum, from_room, to.sum, to_room, rows, sizeof(double));
    move_rows(from.out, from_room, to.out, to_room, rows, FULL_DIM * sizeof(double));
}

static attnkit_state drawn_state(struct call *c, uint64_t random)
{
    const attnkit_state s = {call_memory(c, STATE_ROWS * sizeof(float)),
                             call_memory(c, STATE_ROWS * sizeof(double)),
                             call_memory(c, STATE_ROWS * FULL_DIM * sizeof(double))};
    for (int i = 0; i < STATE_ROWS; i++) {
        s.max[i] = (float)random_below(&random, 5);
        s.sum[i] = 1.0 + 0.5 * (double)random_uniform(&random);
    }
    for (int i = 0; i < STATE_ROWS * FULL_DIM; i++)
        s.out[i] = (double)random_uniform(&random);
    return s;
}

/* States are dense. A run's states have the planned shape, and a call's states have the shape of
 * the call. */
static void check_shorter_states(int64_t rows, const char *isa)
{
    struct call *const c = full_calls[1](ROOM);
    attnkit_states *const states = &c->groups.states;
    const attnkit_state in = drawn_state(c, 1), out = drawn_state(c, 2),
                        expected = drawn_state(c, 2);
    const attnkit_state packed_in = drawn_state(c, 3), packed_out = drawn_state(c, 4);
    struct brought brought;
    const struct plan plan = plan_call(&c->args, isa, 1);
    c->args.q_len = rows;
    states->state_in = packed_in;
    states->state_out = packed_out;
    move_state(in, ROOM, packed_in, rows, rows);
    run_call(&c->args, isa);
    move_state(packed_out, rows, expected, ROOM, rows);
    states->state_in = in;
    states->state_out = out;
    plan_bring(&c->args, &brought);
    plan_run(plan.memory, &brought.data, 1);
    assert_memory_equal(out.max, expected.max, STATE_ROWS * sizeof(float));
    assert_memory_equal(out.sum, expected.sum, STATE_ROWS * sizeof(double));
    assert_memory_equal(out.out, expected.out, STATE_ROWS * FULL_DIM * sizeof(double));
    plan_free(&plan);
    call_free(c);
}

static void shorter_runs_have_the_states_of_shorter_calls(void **state)
{
    static const int64_t shorter[] = {0, 1, 2, 5, 34, ROOM};
    for (int i = 0; i < 6; i++)
        check_shorter_states(shorter[i], *state);
}

/* --- Many threads ----------------------------------------------------------------------------- */

enum { ROUNDS = 5 };

/* A thread with a call of its own and the plan that all threads share. */
struct caller {
    pthread_t thread;
    const void *plan;
    struct call *c;
    const struct call *expected;
    bool is_right;
};

static void *run_rounds(void *arg)
{
    struct caller *const caller = arg;
    struct brought brought;
    attnkit_exec exec = {.size = sizeof exec, .workspace_size = plan_workspace(caller->plan)};
    exec.workspace = malloc(exec.workspace_size);
    plan_bring(&caller->c->args, &brought);
    caller->is_right = true;
    for (int i = 0; i < ROUNDS; i++) {
        full_clear(caller->c);
        caller->is_right &=
            attnkit_attention_run(caller->plan, &brought.data, &exec, NULL) == ATTNKIT_OK &&
            full_same(caller->expected, caller->c);
    }
    free(exec.workspace);
    return NULL;
}

static void check_callers(struct call *expected, const char *isa)
{
    struct caller callers[MOST_THREADS];
    const struct plan plan = plan_call(&expected->args, isa, 1);
    full_clear(expected);
    run_call(&expected->args, isa);
    for (int i = 0; i < MOST_THREADS; i++) {
        callers[i] =
            (struct caller){.plan = plan.memory, .c = full_beside(expected), .expected = expected};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, run_rounds, &callers[i]), 0);
    }
    for (int i = 0; i < MOST_THREADS; i++) {
        pthread_join(callers[i].thread, NULL);
        assert_true(callers[i].is_right);
        call_free(callers[i].c);
    }
    plan_free(&plan);
    call_free(expected);
}

static void many_threads_run_one_plan_at_once(void **state)
{
    for (int n = 0; n < FULL_CALLS; n++)
        for (int r = 0; r < 3; r++)
            check_callers(full_calls[n](row_counts[r]), *state);
}

/* One of the threads that share a run. */
struct sharer {
    pthread_t thread;
    const void *plan;
    const attnkit_attention_data *data;
    attnkit_exec exec;
    attnkit_status status;
};

static void *run_share(void *arg)
{
    struct sharer *const s = arg;
    s->status = attnkit_attention_run(s->plan, s->data, &s->exec, NULL);
    return NULL;
}

static void meet(void *pool)
{
    pthread_barrier_wait(pool);
}

static void run_shares(const struct plan *plan, const attnkit_attention_data *data, int threads,
                       bool with_barrier)
{
    struct sharer sharers[MOST_THREADS];
    pthread_barrier_t barrier;
    attnkit_exec exec = {.size = sizeof exec,
                         .workspace_size = plan_workspace(plan->memory),
                         .threads = threads,
                         .barrier = with_barrier ? meet : NULL,
                         .pool = &barrier};
    exec.workspace = malloc(exec.workspace_size);
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        sharers[i] = (struct sharer){.plan = plan->memory, .data = data, .exec = exec};
        sharers[i].exec.thread = i;
        assert_int_equal(pthread_create(&sharers[i].thread, NULL, run_share, &sharers[i]), 0);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(sharers[i].thread, NULL);
        assert_int_equal(sharers[i].status, ATTNKIT_OK);
    }
    pthread_barrier_destroy(&barrier);
    free(exec.workspace);
}

/* Two or four threads cannot divide the 3 heads equally. With a barrier, they share the three
 * chunks of keys of each head. */
static void threads_of_the_caller_share_a_run(void **state)
{
    for (int64_t rows = 1; rows <= 71; rows += 70) {
        struct call *const c =
            call_new((struct shape){.kv_heads = 3, .q_len = rows, .kv_len = 1100, .head_dim = 8});
        struct call *const d = call_like(c);
        struct brought brought;
        const struct plan plan = plan_call(&d->args, *state, MOST_THREADS);
        plan_bring(&d->args, &brought);
        call_run(c, *state);
        for (int threads = 1; threads <= MOST_THREADS; threads++)
            for (int with_barrier = 0; with_barrier < 2; with_barrier++) {
                memset(d->out, 0x5a, (size_t)(3 * rows) * sizeof *d->out);
                run_shares(&plan, &brought.data, threads, with_barrier);
                assert_true(call_same(c, d));
            }
        plan_free(&plan);
        call_free(d);
        call_free(c);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest promises[] = {
        cmocka_unit_test(runs_have_the_bits_of_the_call),
        cmocka_unit_test(runs_with_cells_have_the_bits_of_the_call),
        cmocka_unit_test(runs_with_integers_have_the_bits_of_the_call),
        cmocka_unit_test(runs_with_bf16_products_have_the_bits_of_the_call),
        cmocka_unit_test(shorter_runs_have_the_bits_of_shorter_calls),
        cmocka_unit_test(shorter_runs_with_integers_have_the_bits_of_shorter_calls),
        cmocka_unit_test(shorter_runs_with_bf16_products_have_the_bits_of_shorter_calls),
        cmocka_unit_test(states_and_packed_keys_have_the_bits_of_the_call),
        cmocka_unit_test(shorter_runs_have_the_states_of_shorter_calls),
        cmocka_unit_test(many_threads_run_one_plan_at_once),
        cmocka_unit_test(threads_of_the_caller_share_a_run),
    };
    const int failed =
        promises_main("plans", promises, sizeof promises / sizeof promises[0], argc, argv);
    memory_end();
    return failed;
}
