/* SPDX-License-Identifier: Apache-2.0
 *
 * One sequence on several threads: fewer heads than threads, so that the keys are shared out in
 * chunks. The bits are those of one thread, with a parallel-for, also one that runs tasks twice and
 * backwards, and with threads that meet at a barrier; for few rows and many, rows that see
 * nothing, states that are carried from wave to wave.
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

#include "../dispatch/check.h"
#include "../dispatch/isa.h"
#include "../dispatch/split.h"
#include "attnkit.h"
#include "random.h"

enum {
    MAX_ISAS = 8,
    MAX_THREADS = 7,
    MAX_BATCH = 3,
};

static const struct shape {
    int batch, kv_heads, group, q_len, kv_len, head_dim, value_dim;
    bool causal, lengths;
} shapes[] = {
    {1, 1, 1, 1, 1025, 16, 16, false, false},   /* one row, three chunks */
    {1, 1, 4, 1, 20000, 8, 24, true, false},    /* a group, many chunks */
    {1, 1, 8, 5, 3000, 20, 33, true, false},    /* panels and a rest for decode */
    {1, 1, 1, 70, 5000, 16, 64, true, false},   /* many rows: several waves */
    {1, 1, 2, 300, 1500, 8, 40, true, false},   /* two row blocks, rows that see one chunk */
    {3, 1, 2, 3, 2000, 16, 16, true, true},     /* lengths, one of them 0 */
    {1, 3, 1, 2, 1300, 16, 16, false, false},   /* heads left over */
    {1, 1, 16, 20, 1200, 8, 200, false, false}, /* states larger than a wave's memory */
};

enum { SHAPES = sizeof shapes / sizeof shapes[0] };

struct call {
    attnkit_attention_args args;
    int64_t kv_lens[MAX_BATCH];
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
        .q = random_floats(rows * s->head_dim, 1),
        .k = random_floats(keys * s->head_dim, 2),
        .v = random_floats(keys * s->value_dim, 3),
        .out = malloc(c->out_bytes),
        .lse = malloc(c->lse_bytes),
        .kv_lens = s->lengths ? c->kv_lens : NULL,
    };
    return c;
}

static void free_call(struct call *c)
{
    free((void *)(uintptr_t)c->args.q);
    free((void *)(uintptr_t)c->args.k);
    free((void *)(uintptr_t)c->args.v);
    free(c->args.out);
    free(c->args.lse);
    free(c);
}

/* --- Ways to run ------------------------------------------------------------------------------ */

static void forwards(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    for (int64_t i = 0; i < n; i++)
        task(arg, i);
}

static void twice_and_backwards(void *pool, int64_t n, void (*task)(void *arg, int64_t i),
                                void *arg)
{
    forwards(pool, n, task, arg);
    for (int64_t i = n - 1; i >= 0; i--)
        task(arg, i);
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

enum way { ONE_THREAD, FORWARDS, TWICE_AND_BACKWARDS, BARRIER, NO_BARRIER, WAYS };

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
    memset(c->args.out, 0xa5, c->out_bytes);
    memset(c->args.lse, 0xa5, c->lse_bytes);
    if (way == FORWARDS)
        exec.parallel_for = forwards;
    if (way == TWICE_AND_BACKWARDS)
        exec.parallel_for = twice_and_backwards;
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

/* --- Tests ------------------------------------------------------------------------------------ */

static struct split split_of(const struct call *c, const struct isa *isa, int threads)
{
    struct problem p;
    assert_int_equal(attnkit_check(&c->args, &p, NULL), ATTNKIT_OK);
    const struct schedule s = attnkit_schedule(&p.a, isa->kernels, threads);
    struct split split = attnkit_split(&p.a, isa->kernels, &s, threads);
    if (split.is_useful)
        attnkit_count_units(&p.a, &s, &split);
    return split;
}

static void check_shape(const struct isa *isa, const struct shape *shape, int *useful, int *waves)
{
    struct call *c = new_call(shape);
    void *out = malloc(c->out_bytes), *lse = malloc(c->lse_bytes);
    run(c, isa->name, ONE_THREAD, 1);
    memcpy(out, c->args.out, c->out_bytes);
    memcpy(lse, c->args.lse, c->lse_bytes);
    for (int threads = 2; threads <= MAX_THREADS; threads += threads < 3 ? 1 : 4)
        for (int way = FORWARDS; way < WAYS; way++) {
            const struct split split = split_of(c, isa, threads);
            *useful += split.is_useful;
            *waves += split.is_useful && split.waves > 1;
            run(c, isa->name, (enum way)way, threads);
            if (memcmp(out, c->args.out, c->out_bytes) || memcmp(lse, c->args.lse, c->lse_bytes)) {
                printf("# %s: shape %d, %d threads, way %d differs\n", isa->name,
                       (int)(shape - shapes), threads, way);
                fail();
            }
        }
    free(out);
    free(lse);
    free_call(c);
}

static void keys_shared_by_threads_give_the_bits_of_one(void **state)
{
    const struct isa *isa = *state;
    int useful = 0, waves = 0;
    for (int i = 0; i < SHAPES; i++)
        check_shape(isa, &shapes[i], &useful, &waves);
    printf("# %s: %d calls share keys, %d of them in several waves\n", isa->name, useful, waves);
    assert_true(useful >= SHAPES * (WAYS - 1));
    assert_true(waves >= 2 * (WAYS - 1));
}

static void count_turns(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    ++*(int *)pool;
    forwards(NULL, n, task, arg);
}

/* How many times the call takes turns on two threads. */
static int turns_of(const attnkit_attention_args *args)
{
    int turns = 0;
    attnkit_exec exec = {
        .size = sizeof exec, .threads = 2, .parallel_for = count_turns, .pool = &turns};
    assert_int_equal(attnkit_attention_workspace(args, &exec, &exec.workspace_size, NULL),
                     ATTNKIT_OK);
    exec.workspace = malloc(exec.workspace_size);
    assert_int_equal(attnkit_attention(args, &exec, NULL), ATTNKIT_OK);
    free(exec.workspace);
    return turns;
}

static void room_for_more_keys_takes_no_turns(void **state)
{
    (void)state;
    struct call *c = new_call(&shapes[0]);
    const int32_t pages[2] = {0, 0};
    c->kv_lens[0] = 1000;
    c->args.kv_lens = c->kv_lens;
    c->args.page_table = pages;
    c->args.page_table_stride = INT64_MAX / 4;
    c->args.page_size = 512;
    c->args.pages = 1;
    c->args.kv_len = INT64_C(1) << 40;
    assert_int_equal(turns_of(&c->args), 2);
    c->kv_lens[0] = 512; /* one chunk: nothing to share out */
    assert_int_equal(turns_of(&c->args), 1);
    free_call(c);
}

static void items_that_go_round_are_not_shared(void **state)
{
    (void)state;
    static const struct shape one = {1, 1, 1, 1, 2000, 8, 8, true, false},
                              three = {1, 3, 1, 1, 2000, 8, 8, true, false},
                              five_times_three = {1, 5, 1, 768, 768, 8, 8, true, false};
    const struct {
        const struct shape *shape;
        bool shared;
    } calls[] = {{&one, true}, {&three, true}, {&five_times_three, false}};
    for (int i = 0; i < 3; i++) {
        struct call *c = new_call(calls[i].shape);
        assert_int_equal(turns_of(&c->args) > 1, calls[i].shared);
        free_call(c);
    }
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

int main(int argc, char **argv)
{
    struct CMUnitTest tests[MAX_ISAS + 3] = {
        cmocka_unit_test(room_for_more_keys_takes_no_turns),
        cmocka_unit_test(items_that_go_round_are_not_shared),
        cmocka_unit_test(threads_beyond_the_chunks_have_nothing_to_do)};
    size_t count = 3;
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    for (int i = 0; i < isa_count && i < MAX_ISAS; i++)
        if ((argc < 2 || strcmp(argv[1], isas[i].name) == 0) && attnkit_isa_can_run(&isas[i]))
            tests[count++] =
                (struct CMUnitTest){isas[i].name, keys_shared_by_threads_give_the_bits_of_one, NULL,
                                    NULL, (void *)(uintptr_t)&isas[i]};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("split", tests, count, NULL, NULL);
}
