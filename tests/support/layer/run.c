/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/layer/run.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/memory.h"

/* --- Threads ---------------------------------------------------------------------------------- */

/* A call, or the run of a plan. */
struct work {
    const attnkit_layer_args *args; /* NULL for the run of a plan */
    const void *plan;
    const attnkit_layer_data *data;
};

static attnkit_status start(const struct work *work, const attnkit_exec *exec, char *message)
{
    return work->args ? attnkit_layer(work->args, exec, message)
                      : attnkit_layer_run(work->plan, work->data, exec, message);
}

static void backwards(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    for (int64_t i = n - 1; i >= 0; i--)
        task(arg, i);
    if (n > 1)
        task(arg, n / 2); /* a second run of a task must change nothing */
}

struct member {
    const struct work *work;
    attnkit_exec exec;
    attnkit_status status;
    char message[ATTNKIT_MESSAGE_SIZE];
};

static void wait_for_all(void *pool)
{
    pthread_barrier_wait(pool);
}

static void *join_in(void *arg)
{
    struct member *const m = arg;
    m->status = start(m->work, &m->exec, m->message);
    return NULL;
}

static void run_team(const struct work *work, const attnkit_exec *exec)
{
    struct member members[LAYER_THREADS];
    pthread_t handles[LAYER_THREADS];
    pthread_barrier_t barrier;
    assert_in_range(exec->threads, 1, LAYER_THREADS);
    pthread_barrier_init(&barrier, NULL, (unsigned)exec->threads);
    for (int64_t i = 0; i < exec->threads; i++) {
        members[i] = (struct member){.work = work, .exec = *exec};
        members[i].exec.thread = i;
        members[i].exec.barrier = wait_for_all;
        members[i].exec.pool = &barrier;
        assert_int_equal(pthread_create(&handles[i], NULL, join_in, &members[i]), 0);
    }
    for (int64_t i = 0; i < exec->threads; i++)
        pthread_join(handles[i], NULL);
    pthread_barrier_destroy(&barrier);
    for (int64_t i = 0; i < exec->threads; i++)
        if (members[i].status != ATTNKIT_OK || members[i].message[0])
            fail_msg("thread %d: %s", (int)i, members[i].message);
}

static void run_in_workspace(const struct work *work, size_t bytes, struct layer_way way)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    struct guarded memory = memory_guarded(bytes, 0, true);
    attnkit_exec exec = {.size = sizeof exec,
                         .workspace = memory.data,
                         .workspace_size = bytes,
                         .isa = work->args ? way.isa : NULL,
                         .threads = way.threads};
    if (way.own_threads) {
        run_team(work, &exec);
    } else {
        exec.parallel_for = way.threads > 1 ? backwards : NULL;
        if (start(work, &exec, message) != ATTNKIT_OK)
            fail_msg("%s", message);
        assert_string_equal(message, "");
    }
    memory_unguard(&memory);
}

void layer_call_run(const attnkit_layer_args *args, struct layer_way way)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    size_t bytes;
    const attnkit_exec exec = {.size = sizeof exec, .isa = way.isa, .threads = way.threads};
    const struct work work = {.args = args};
    if (attnkit_layer_workspace(args, &exec, &bytes, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    run_in_workspace(&work, bytes, way);
}

/* --- Plans ------------------------------------------------------------------------------------ */

static struct layer_planned plan_memory(void)
{
    struct layer_planned p = {.size = attnkit_layer_plan_size()};
    const size_t room = (p.size + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT;
    p.memory = aligned_alloc(PLAN_ALIGNMENT, room);
    p.written = malloc(p.size);
    return p;
}

static const void *later(const void *data)
{
    return data ? ATTNKIT_LATER : NULL;
}

/* Copies of the structs of a call. In the copies, ATTNKIT_LATER takes the place of each address of
 * a tensor or array, unless the address is NULL. The packed weights keep their address. */
struct forgotten {
    attnkit_layer_args args;
    attnkit_attention_args attention;
    struct groups groups;
    attnkit_rotation rotation;
};

static void forget(const attnkit_layer_args *args, struct forgotten *f)
{
    f->args = *args;
    f->args.x.data = later(args->x.data);
    f->args.key.data = later(args->key.data);
    f->args.value.data = later(args->value.data);
    f->args.out.data = later(args->out.data);
    f->args.cached.data = later(args->cached.data);
    f->args.mean_weights = args->mean_weights ? ATTNKIT_LATER : NULL;
    if (args->attention) {
        f->attention = *args->attention;
        f->groups = groups_of(args->attention);
        plan_forget(&f->attention, &f->groups);
        f->args.attention = &f->attention;
    }
    if (args->rotation) {
        f->rotation = *args->rotation;
        f->rotation.positions.data = later(args->rotation->positions.data);
        f->rotation.cos = later(args->rotation->cos);
        f->rotation.sin = later(args->rotation->sin);
        f->args.rotation = &f->rotation;
    }
}

struct layer_planned layer_plan_new(const attnkit_layer_args *args, const char *isa,
                                    int64_t threads)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    struct layer_planned p = plan_memory();
    const attnkit_exec exec = {.size = sizeof exec, .isa = isa, .threads = threads};
    struct forgotten f;
    forget(args, &f);
    if (attnkit_layer_plan(&f.args, &exec, p.memory, p.size, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    assert_string_equal(message, "");
    memcpy(p.written, p.memory, p.size);
    return p;
}

struct layer_planned layer_plan_copy(const struct layer_planned *p)
{
    const struct layer_planned copy = plan_memory();
    memcpy(copy.memory, p->memory, p->size);
    memcpy(copy.written, p->memory, p->size);
    return copy;
}

void layer_plan_free(struct layer_planned *p)
{
    assert_memory_equal(p->memory, p->written, p->size);
    free(p->memory);
    free(p->written);
}

void layer_bring(const attnkit_layer_args *args, struct layer_brought *b)
{
    b->data = (attnkit_layer_data){
        .size = sizeof b->data,
        .packed = args->packed,
        .packed_size = args->packed_size,
        .batch = args->batch,
        .q_len = args->q_len,
        .kv_len = args->kv_len,
        .x = args->x.data,
        .key = args->key.data,
        .value = args->value.data,
        .out = (void *)(uintptr_t)args->out.data,
        .cached = args->cached.data,
        .mean_weights = args->mean_weights,
    };
    if (args->rotation) {
        b->data.positions = args->rotation->positions.data;
        b->data.cos = args->rotation->cos;
        b->data.sin = args->rotation->sin;
    }
    if (args->attention) {
        plan_bring(args->attention, &b->attention);
        b->data.attention = &b->attention.data;
    }
}

void layer_plan_run(const struct layer_planned *p, const attnkit_layer_data *data,
                    struct layer_way way)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    size_t bytes;
    const struct work work = {.plan = p->memory, .data = data};
    if (attnkit_layer_plan_workspace(p->memory, &bytes, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    run_in_workspace(&work, bytes, way);
}
