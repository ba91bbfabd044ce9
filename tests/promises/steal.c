/* SPDX-License-Identifier: Apache-2.0
 *
 * Work stealing: threads take items from the shares of slow threads. They also share the chunks of
 * keys of an item, for example if there are fewer heads than threads. The result has the bits of
 * one thread. A parallel-for runs the tasks at once, in sequence, twice and backwards, or only the
 * last task. Other calls have threads of the caller, with or without a barrier. The shapes have few
 * rows and many, rows that see no key, heads that share pages, and more chunks than there is room
 * for states.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/attention/attention.h"
#include "dispatch/cpu/isa.h"
#include "dispatch/attention/steal.h"
#include "tests/support/groups.h"
#include "tests/support/random.h"
#include "tests/support/sample.h"
#include "tests/support/units.h"

enum {
    MAX_ISAS = 8,
    MAX_THREADS = 7,
    MAX_BATCH = 3,
};

static const struct shape {
    int batch, kv_heads, group, q_len, kv_len, head_dim, value_dim;
    bool causal, lengths;
} shapes[] = {
    {1, 1, 1, 1, 1025, 16, 16, false, false}, /* one row, three chunks */
    {1, 1, 4, 1, 9000, 8, 24, true, false},   /* a group of query heads, many chunks */
    {1, 1, 8, 5, 3000, 20, 33, true, false},  /* panels of rows; with AVX-512 also decode rows */
    {1, 1, 1, 70, 5000, 16, 64, true, false}, /* many rows: more chunks than room for states */
    {1, 1, 2, 300, 700, 8, 40, true, false},  /* row blocks, rows that see one chunk */
    {1, 1, 1, 300, 1500, 8, 8, true, false},  /* row blocks over three chunks */
    {3, 1, 2, 3, 2000, 16, 16, true, true},   /* sequences of different lengths, one of length 0 */
    {1, 3, 1, 2, 1300, 16, 16, false,
     false}, /* three heads, which two threads cannot divide equally */
    {1, 1, 16, 6, 1100, 8, 200, false, false}, /* a state larger than SLOT_BYTES of steal.c */
    {2, 5, 2, 1, 1500, 8, 8, false, true},     /* items to steal, some of a sequence without keys */
};

enum { SHAPES = sizeof shapes / sizeof shapes[0] };

struct call {
    attnkit_attention_args args;
    struct groups groups;
    int64_t kv_lens[MAX_BATCH];
    void *out, *lse; /* the outputs of args */
    size_t out_bytes, lse_bytes;
};

static float *random_floats(int64_t count, uint64_t seed)
{
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = 3.0f * random_uniform(&seed);
    return x;
}

static struct call *new_call(const struct shape *s)
{
    struct call *c = calloc(1, sizeof *c);
    const int64_t rows = (int64_t)s->batch * s->kv_heads * s->group * s->q_len;
    const int64_t keys = (int64_t)s->batch * s->kv_heads * s->kv_len;
    c->out_bytes = (size_t)(rows * s->value_dim) * sizeof(float);
    c->lse_bytes = (size_t)rows * sizeof(float);
    for (int b = 0; b < s->batch; b++)
        c->kv_lens[b] = b == 1 ? 0 : s->kv_len - 700 * b;
    c->out = malloc(c->out_bytes);
    c->lse = malloc(c->lse_bytes);
    c->args = (attnkit_attention_args){
        .size = sizeof c->args,
        .flags = s->causal ? ATTNKIT_CAUSAL : 0,
        .align = s->causal ? ATTNKIT_ALIGN_BOTTOM_RIGHT : ATTNKIT_ALIGN_NONE,
        .batch = s->batch,
        .q_heads = s->kv_heads * s->group,
        .kv_heads = s->kv_heads,
        .q_len = s->q_len,
        .kv_len = s->kv_len,
        .head_dim = s->head_dim,
        .value_dim = s->value_dim,
        .q = {.data = random_floats(rows * s->head_dim, 1)},
        .k = {.data = random_floats(keys * s->head_dim, 2)},
        .v = {.data = random_floats(keys * s->value_dim, 3)},
        .out = {.data = c->out},
        .lse = {.data = c->lse},
    };
    groups_init(&c->groups);
    groups_hang(&c->args, &c->groups);
    c->groups.visibility.kv_lens.data = s->lengths ? c->kv_lens : NULL;
    return c;
}

static void free_call(struct call *c)
{
    free((void *)(uintptr_t)c->args.q.data);
    free((void *)(uintptr_t)c->args.k.data);
    free((void *)(uintptr_t)c->args.v.data);
    free(c->out);
    free(c->lse);
    free(c);
}

/* --- Ways to run ------------------------------------------------------------------------------ */

static void forwards(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    for (int64_t i = 0; i < n; i++)
        task(arg, i);
}

static void only_the_last_one(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    task(arg, n - 1);
}

static void twice_and_backwards(void *pool, int64_t n, void (*task)(void *arg, int64_t i),
                                void *arg)
{
    forwards(pool, n, task, arg);
    for (int64_t i = n - 1; i >= 0; i--)
        task(arg, i);
}

struct task {
    void (*run)(void *arg, int64_t i);
    void *arg;
    int64_t i;
};

static void *run_task(void *arg)
{
    const struct task *t = arg;
    t->run(t->arg, t->i);
    return NULL;
}

static void at_once(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    struct task tasks[MAX_THREADS];
    pthread_t ids[MAX_THREADS];
    (void)pool;
    for (int64_t i = 0; i < n; i++) {
        tasks[i] = (struct task){task, arg, i};
        assert_int_equal(pthread_create(&ids[i], NULL, run_task, &tasks[i]), 0);
    }
    for (int64_t i = 0; i < n; i++)
        pthread_join(ids[i], NULL);
}

static void meet(void *pool)
{
    pthread_barrier_wait(pool);
}

struct thread {
    const attnkit_attention_args *args;
    attnkit_exec exec;
    attnkit_status status;
};

static void *run_thread(void *arg)
{
    struct thread *t = arg;
    t->status = attnkit_attention(t->args, &t->exec, NULL);
    return NULL;
}

static void run_own_threads(const attnkit_attention_args *args, const attnkit_exec *exec)
{
    struct thread threads[MAX_THREADS];
    pthread_t ids[MAX_THREADS];
    for (int i = 0; i < exec->threads; i++) {
        threads[i] = (struct thread){.args = args, .exec = *exec};
        threads[i].exec.thread = i;
        assert_int_equal(pthread_create(&ids[i], NULL, run_thread, &threads[i]), 0);
    }
    for (int i = 0; i < exec->threads; i++) {
        pthread_join(ids[i], NULL);
        assert_int_equal(threads[i].status, ATTNKIT_OK);
    }
}

enum way { ONE_THREAD, PARALLEL_FOR, BARRIER = PARALLEL_FOR + 4, NO_BARRIER, WAYS };

static void (*const parallel_fors[])(void *pool, int64_t n, void (*task)(void *arg, int64_t i),
                                     void *arg) = {forwards, only_the_last_one, twice_and_backwards,
                                                   at_once};

static void run(const struct call *c, const char *isa, enum way way, int threads)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    pthread_barrier_t barrier;
    attnkit_exec exec = {
        .size = sizeof exec, .isa = isa, .threads = way == ONE_THREAD ? 1 : threads};
    assert_int_equal(attnkit_attention_workspace(&c->args, &exec, &exec.workspace_size, message),
                     ATTNKIT_OK);
    exec.workspace = malloc(exec.workspace_size);
    memset(exec.workspace, 0xff, exec.workspace_size);
    memset(c->out, 0xa5, c->out_bytes);
    memset(c->lse, 0xa5, c->lse_bytes);
    if (way >= PARALLEL_FOR && way < BARRIER)
        exec.parallel_for = parallel_fors[way - PARALLEL_FOR];
    if (way == BARRIER) {
        pthread_barrier_init(&barrier, NULL, (unsigned)threads);
        exec.barrier = meet;
        exec.pool = &barrier;
    }
    if (way == BARRIER || way == NO_BARRIER)
        run_own_threads(&c->args, &exec);
    else
        assert_int_equal(attnkit_attention(&c->args, &exec, message), ATTNKIT_OK);
    if (way == BARRIER)
        pthread_barrier_destroy(&barrier);
    free(exec.workspace);
}

/* --- The same bits ---------------------------------------------------------------------------- */

static struct steal steal_of(const struct call *c, const struct isa *isa, int threads)
{
    struct attention a;
    assert_int_equal(attnkit_attention_problem(&c->args, &a, NULL), ATTNKIT_OK);
    const struct schedule s = attnkit_schedule(&a, isa->kernels, threads);
    return attnkit_steal(&a, isa->kernels, &s, threads);
}

static void check_shape(const struct isa *isa, const struct shape *shape)
{
    struct call *c = new_call(shape);
    void *out = malloc(c->out_bytes), *lse = malloc(c->lse_bytes);
    run(c, isa->name, ONE_THREAD, 1);
    memcpy(out, c->out, c->out_bytes);
    memcpy(lse, c->lse, c->lse_bytes);
    static const int counts[] = {2, MAX_THREADS, 3}; /* threads; a sampled run leaves out 3 */
    for (int n = 0; n < (is_sampled_run() ? 2 : 3); n++)
        for (int way = PARALLEL_FOR; way < WAYS; way++) {
            const int threads = counts[n];
            assert_true(steal_of(c, isa, threads).splits);
            run(c, isa->name, (enum way)way, threads);
            if (memcmp(out, c->out, c->out_bytes) || memcmp(lse, c->lse, c->lse_bytes)) {
                printf("# %s: shape %d, %d threads, way %d: the results differ from the results of "
                       "one thread\n",
                       isa->name, (int)(shape - shapes), threads, way);
                fail();
            }
        }
    free(out);
    free(lse);
    free_call(c);
}

static void keys_shared_by_threads_give_the_bits_of_one_thread(void **state)
{
    const struct isa *isa = *state;
    for (int i = 0; i < SHAPES; i++)
        check_shape(isa, &shapes[i]);
}

static void meet_and_count(void *pool)
{
    ++*(int *)pool;
}

/* Runs a call on two threads, of which the second never begins, so that the first does all the
 * work. Returns how often the first thread waits at the barrier. */
static int meetings(const struct shape *shape)
{
    int count = 0;
    struct call *c = new_call(shape);
    attnkit_exec exec = {
        .size = sizeof exec, .threads = 2, .barrier = meet_and_count, .pool = &count};
    assert_int_equal(attnkit_attention_workspace(&c->args, &exec, &exec.workspace_size, NULL),
                     ATTNKIT_OK);
    exec.workspace = malloc(exec.workspace_size);
    assert_int_equal(attnkit_attention(&c->args, &exec, NULL), ATTNKIT_OK);
    free(exec.workspace);
    free_call(c);
    return count;
}

static void threads_of_the_caller_meet_only_if_items_are_left_over(void **state)
{
    (void)state;
    static const struct shape one = {1, 1, 1, 1, 2000, 8, 8, true, false},
                              three = {1, 3, 1, 1, 2000, 8, 8, true, false},
                              four = {1, 4, 1, 1, 2000, 8, 8, true, false},
                              one_chunk = {1, 3, 1, 1, 512, 8, 8, true, false};
    assert_int_equal(meetings(&one), 2);
    assert_int_equal(meetings(&three), 2);
    assert_int_equal(meetings(&four), 0);
    assert_int_equal(meetings(&one_chunk), 0);
}

static void threads_beyond_the_chunks_have_nothing_to_do(void **state)
{
    (void)state;
    struct call *c = new_call(&shapes[0]);
    attnkit_exec exec = {.size = sizeof exec, .threads = INT64_MAX};
    size_t bytes;
    assert_int_equal(attnkit_attention_workspace(&c->args, &exec, &bytes, NULL), ATTNKIT_OK);
    assert_true(bytes < 1 << 20);
    free_call(c);
}

/* --- A thread that is held up ----------------------------------------------------------------- */

/* A call on two threads. The first decode block of the first thread lasts until the second thread
 * has returned. */
struct hold_up {
    struct attention problem;
    const struct kernels *real;
    struct kernels kernels; /* the kernels of the instruction set, with the test's `decode` */
    struct schedule schedule;
    struct steal steal;
    char *shared;
    int blocks[2]; /* decode blocks that each thread has worked on */
    pthread_barrier_t begun, other_is_through;
};

static struct hold_up held_up;
static _Thread_local int own_number;

static void decode_late(const struct decode_block *block, int rows, float scale_log2)
{
    if (held_up.blocks[own_number]++ == 0 && own_number == 0) {
        pthread_barrier_wait(&held_up.begun);
        pthread_barrier_wait(&held_up.other_is_through);
    }
    held_up.real->decode(block, rows, scale_log2);
}

static void run_as(int number)
{
    struct hold_up *const h = &held_up;
    char *const scratch = h->shared + h->steal.bytes + (size_t)number * h->schedule.scratch;
    own_number = number;
    attnkit_steal_run(&h->problem, &h->kernels, &h->schedule, &h->steal, number, h->shared,
                      scratch);
}

static void *run_other(void *arg)
{
    pthread_barrier_wait(&held_up.begun);
    run_as(1);
    pthread_barrier_wait(&held_up.other_is_through);
    return arg;
}

static void run_held_up(const struct call *c, const struct isa *isa)
{
    struct hold_up *const h = &held_up;
    pthread_t other;
    *h = (struct hold_up){.real = isa->kernels, .kernels = *isa->kernels};
    h->kernels.decode = decode_late;
    assert_int_equal(attnkit_attention_problem(&c->args, &h->problem, NULL), ATTNKIT_OK);
    h->schedule = attnkit_schedule(&h->problem, &h->kernels, 2);
    h->steal = attnkit_steal(&h->problem, &h->kernels, &h->schedule, 2);
    h->shared = aligned_alloc(64, (h->steal.bytes + 2 * h->schedule.scratch + 63) / 64 * 64);
    pthread_barrier_init(&h->begun, NULL, 2);
    pthread_barrier_init(&h->other_is_through, NULL, 2);
    attnkit_steal_begin(&h->problem, &h->kernels, &h->schedule, &h->steal, h->shared);
    assert_int_equal(pthread_create(&other, NULL, run_other, NULL), 0);
    run_as(0);
    pthread_join(other, NULL);
    pthread_barrier_destroy(&h->begun);
    pthread_barrier_destroy(&h->other_is_through);
    free(h->shared);
}

/* Returns how many blocks the delayed thread works on. Fails the test if out does not have the bits
 * that one thread gives. */
static int blocks_held_up(const struct shape *shape, const struct isa *isa)
{
    struct call *c = new_call(shape);
    void *out = malloc(c->out_bytes);
    run(c, isa->name, ONE_THREAD, 1);
    memcpy(out, c->out, c->out_bytes);
    memset(c->out, 0xa5, c->out_bytes);
    run_held_up(c, isa);
    assert_memory_equal(out, c->out, c->out_bytes);
    free(out);
    free_call(c);
    return held_up.blocks[0];
}

/* There are 8 heads of 8 blocks. The first block of the delayed thread takes very long. Meanwhile
 * the other thread computes all other heads. */
static void heads_of_a_slow_thread_are_taken(void **state)
{
    static const struct shape heads = {1, 8, 1, 1, 1000, 16, 16, false, false};
    assert_int_equal(blocks_held_up(&heads, *state), 8);
    assert_int_equal(held_up.blocks[1], 7 * 8);
}

/* There is one KV head of 40 chunks of 4 blocks. The delayed thread keeps only the chunks that it
 * has claimed, a quarter of all chunks. */
static void keys_of_a_slow_thread_are_taken(void **state)
{
    static const struct shape keys = {1, 1, 4, 1, 20480, 8, 24, false, false};
    assert_int_equal(blocks_held_up(&keys, *state), 10 * 4);
    assert_int_equal(held_up.blocks[1], 30 * 4);
}

/* There are very many keys. The other thread takes chunks until the room for states is full. It
 * then returns instead of waiting. */
static void a_thread_without_room_for_states_returns(void **state)
{
    static const struct shape keys = {1, 1, 4, 1, 51200, 8, 96, false, false};
    assert_true(blocks_held_up(&keys, *state) > (100 / 4 + 4) * 4);
    assert_true(held_up.blocks[1] > (100 / 2) * 4);
    assert_int_equal(held_up.blocks[0] + held_up.blocks[1], 100 * 4);
}

static void set_strides(attnkit_tensor *t, const attnkit_tensor *as)
{
    const void *const data = t->data;
    *t = *as;
    t->data = data;
}

/* Heads that share pages of virtual memory stay together, even if their keys are split into
 * chunks. */
static void heads_that_go_together_are_split(void **state)
{
    static const struct shape shape = {1, 4, 2, 1, 6000, 16, 16, false, false};
    const struct isa *isa = *state;
    struct call *c = new_call(&shape);
    const int64_t row = 16 * sizeof(float), all = 4 * row;
    const attnkit_tensor rows = {.strides = {8 * row, row, row}, .layout = ATTNKIT_STRIDED},
                         lse_rows = {.strides = {32, 4, 4}, .layout = ATTNKIT_STRIDED},
                         keys = {.strides = {6000 * all, row, all}, .layout = ATTNKIT_STRIDED};
    set_strides(&c->args.q, &rows);
    set_strides(&c->args.out, &rows);
    set_strides(&c->args.lse, &lse_rows);
    set_strides(&c->args.k, &keys);
    set_strides(&c->args.v, &keys);
    void *out = malloc(c->out_bytes);
    run(c, isa->name, ONE_THREAD, 1);
    memcpy(out, c->out, c->out_bytes);
    for (int way = PARALLEL_FOR; way < WAYS; way++) {
        run(c, isa->name, (enum way)way, 2);
        assert_memory_equal(out, c->out, c->out_bytes);
    }
    memset(c->out, 0xa5, c->out_bytes);
    run_held_up(c, isa);
    assert_true(held_up.schedule.walks > 1);
    assert_memory_equal(out, c->out, c->out_bytes);
    assert_true(held_up.blocks[1] > held_up.blocks[0]);
    free(out);
    free_call(c);
}

/* --- All tests -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    CMUnitTestFunction run;
} tests_of_isa[] = {
    {"keys_shared_by_threads_give_the_bits_of_one_thread",
     keys_shared_by_threads_give_the_bits_of_one_thread},
    {"heads_of_a_slow_thread_are_taken", heads_of_a_slow_thread_are_taken},
    {"keys_of_a_slow_thread_are_taken", keys_of_a_slow_thread_are_taken},
    {"a_thread_without_room_for_states_returns", a_thread_without_room_for_states_returns},
    {"heads_that_go_together_are_split", heads_that_go_together_are_split},
};

enum { TESTS_OF_ISA = sizeof tests_of_isa / sizeof tests_of_isa[0], NAME_SIZE = 80 };

int main(int argc, char **argv)
{
    struct CMUnitTest tests[2 + MAX_ISAS * TESTS_OF_ISA] = {
        cmocka_unit_test(threads_of_the_caller_meet_only_if_items_are_left_over),
        cmocka_unit_test(threads_beyond_the_chunks_have_nothing_to_do)};
    static char names[MAX_ISAS * TESTS_OF_ISA][NAME_SIZE];
    size_t count = 2;
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    expect_isa(argc, argv);
    for (int i = 0; i < isa_count && i < MAX_ISAS; i++)
        for (int t = 0; t < TESTS_OF_ISA; t++) {
            if ((argc >= 2 && strcmp(argv[1], isas[i].name)) || !attnkit_isa_can_run(&isas[i]))
                continue;
            char *const name = names[i * TESTS_OF_ISA + t];
            snprintf(name, NAME_SIZE, "%s: %s", isas[i].name, tests_of_isa[t].name);
            tests[count++] = (struct CMUnitTest){name, tests_of_isa[t].run, NULL, NULL,
                                                 (void *)(uintptr_t)&isas[i]};
        }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("steal", tests, count, NULL, NULL);
}
