/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests runs of planned layers with bad and odd arguments: pointers that are planned but missing,
 * or passed but not planned; packed weights of another layer; overlaps; bad workspaces; bad numbers
 * in arrays. One thread checks the arrays for all threads. A refused run writes nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/layer/run.h"
#include "tests/support/layer/small.h"

enum { TABLE_POSITIONS = 9, MESSAGE = ATTNKIT_MESSAGE_SIZE };

/* A small layer, its plan, and a valid run of the plan. */
struct ready {
    struct small_layer *c;
    struct layer_planned plan;
    struct layer_brought brought;
};

static struct ready plan_of(struct small_layer *c)
{
    struct ready r = {.c = c, .plan = layer_plan_new(&c->args, NULL, 3)};
    layer_bring(&c->args, &r.brought);
    r.brought.data.attention =
        NULL; /* a pointer into r would dangle, because r is returned by value */
    return r;
}

/* Makes a layer with a cache in pages, and with most arrays that a run can bring. */
static struct small_layer *full_layer(void)
{
    struct small_layer *const c = small_layer();
    struct groups *const g = &c->groups;
    c->rotation.cos = c->rotation.sin = c->table;
    c->rotation.table_positions = TABLE_POSITIONS;
    c->rotation.positions = (attnkit_ints){.data = c->positions};
    c->attention.align = ATTNKIT_ALIGN_OFFSETS;
    c->attention.q_offsets.data = c->positions;
    c->attention.k.type = c->attention.v.type = ATTNKIT_I8;
    g->storage.k_scales.data = c->scales;
    g->storage.v_scales.data = c->scales + ROOM / 2;
    g->pages.block_table = c->block_table;
    g->pages.block_table_stride = 1;
    g->pages.page_size = CAPACITY;
    g->pages.pages = BATCH;
    g->visibility.q_segment_ids = g->visibility.kv_segment_ids = c->block_table;
    g->visibility.mask = (attnkit_tensor){.data = c->mask, .type = ATTNKIT_BOOL};
    g->visibility.mask_bits = (attnkit_tensor){.data = c->mask, .type = ATTNKIT_BITS};
    g->visibility.mask_kind = g->visibility.mask_bits_kind = ATTNKIT_MASK_ATTEND;
    g->scores.bias.data = c->table;
    g->scores.alibi_slopes = g->scores.sinks = g->scores.bias_scales = c->table;
    g->scores.dropout = 0.5;
    g->scores.dropout_seeds = (const uint64_t *)(const void *)c->positions;
    g->weights.weights.data = c->all;
    g->weights.kind = ATTNKIT_WEIGHTS_SOFTMAX;
    return c;
}

/* Makes a layer with a cache of cells, but without pages, because a cache cannot have both. Cell i
 * holds the key of index i. */
static struct small_layer *layer_of_cells(void)
{
    static const int64_t index[CAPACITY] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    struct small_layer *const c = small_layer();
    c->groups.storage.key_index.data = index;
    return c;
}

static attnkit_status run(struct ready *r, char *message)
{
    r->brought.attention.data.groups = &r->brought.attention.groups;
    r->brought.data.attention = &r->brought.attention.data;
    return attnkit_layer_run(r->plan.memory, &r->brought.data, &r->c->exec, message);
}

static void expect_status(struct ready *r, attnkit_status status, char *message)
{
    static struct small_layer before;
    message[0] = '\0';
    memcpy(&before, r->c, sizeof before);
    const attnkit_status got = run(r, message);
    if (got != status)
        fail_msg("status %d, \"%s\": expected %d", (int)got, message, (int)status);
    assert_memory_equal(r->c, &before, sizeof before);
}

static void expect_refusal(struct ready *r, attnkit_status status, const char *text)
{
    char message[MESSAGE];
    expect_status(r, status, message);
    if (!strstr(message, text))
        fail_msg("\"%s\": expected \"%s\"", message, text);
}

static void expect_ok(struct ready *r)
{
    char message[MESSAGE] = "";
    if (run(r, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    assert_string_equal(message, "");
}

static void end(struct ready *r)
{
    layer_plan_free(&r->plan);
}

static void good_runs_are_good(void **state)
{
    (void)state;
    struct small_layer *(*const layers[])(void) = {small_layer, small_cross_layer, full_layer};
    for (int i = 0; i < 3; i++) {
        struct ready r = plan_of(layers[i]());
        expect_ok(&r);
        end(&r);
    }
}

/* --- Pointers --------------------------------------------------------------------------------- */

struct pointer {
    const char *name;
    size_t offset; /* offset in struct layer_brought */
};

#define OF(name, field)                                                                            \
    {                                                                                              \
        name, offsetof(struct layer_brought, field)                                                \
    }

static const struct pointer pointers[] = {
    OF("x", data.x),
    OF("out", data.out),
    OF("cached", data.cached),
    OF("positions", data.positions),
    OF("rotation.cos", data.cos),
    OF("rotation.sin", data.sin),
    OF("mean_weights", data.mean_weights),
    OF("attention->k", attention.data.k),
    OF("attention->v", attention.data.v),
    OF("attention->lse", attention.data.lse),
    OF("attention->q_offsets", attention.data.q_offsets),
    OF("attention->block_table", attention.data.block_table),
    OF("attention->k_scales", attention.groups.k_scales),
    OF("attention->v_scales", attention.groups.v_scales),
    OF("attention->q_segment_ids", attention.groups.q_segment_ids),
    OF("attention->kv_segment_ids", attention.groups.kv_segment_ids),
    OF("attention->mask", attention.groups.mask),
    OF("attention->mask_bits", attention.groups.mask_bits),
    OF("attention->bias", attention.groups.bias),
    OF("attention->bias_scales", attention.groups.bias_scales),
    OF("attention->alibi_slopes", attention.groups.alibi_slopes),
    OF("attention->sinks", attention.groups.sinks),
    OF("attention->dropout_seeds", attention.groups.dropout_seeds),
    OF("attention->weights", attention.groups.weights),
};

static void expect_to_be_missed(struct ready *r, const struct pointer *p)
{
    char text[MESSAGE];
    void **const field = (void **)(void *)((char *)&r->brought + p->offset);
    void *const own = *field;
    assert_non_null(own);
    *field = NULL;
    snprintf(text, sizeof text, "%s is NULL", p->name);
    expect_refusal(r, ATTNKIT_BAD_ARGUMENT, text);
    *field = own;
    expect_ok(r);
}

static void missing_planned_pointers_are_refused_by_name(void **state)
{
    (void)state;
    static const struct pointer index = OF("attention->key_index", attention.groups.key_index);
    struct ready r = plan_of(full_layer());
    for (size_t i = 0; i < sizeof pointers / sizeof pointers[0]; i++)
        expect_to_be_missed(&r, &pointers[i]);
    end(&r);
    r = plan_of(layer_of_cells());
    expect_to_be_missed(&r, &index);
    end(&r);
}

static void pointers_that_were_not_planned_are_refused_by_name(void **state)
{
    (void)state;
    static const struct pointer more[] = {
        OF("key", data.key),
        OF("value", data.value),
        OF("attention->k", attention.data.k),
        OF("attention->q", attention.data.q),
        OF("attention->out", attention.data.out),
        OF("kv_lens", attention.data.kv_lens),
        OF("cu_seqlens_q", attention.data.cu_seqlens_q),
        OF("cu_seqlens_kv", attention.data.cu_seqlens_kv),
        OF("state_in.max", attention.groups.state_in.max),
        OF("state_out.out", attention.groups.state_out.out),
    };
    enum { FEW = sizeof more / sizeof more[0], ALL = FEW + sizeof pointers / sizeof pointers[0] };
    int refused = 0;
    struct small_layer *(*const layers[])(void) = {small_layer, small_cross_layer};
    for (int cross = 0; cross < 2; cross++) {
        struct ready r = plan_of(layers[cross]());
        for (size_t i = 0; i < ALL; i++) {
            char text[MESSAGE];
            const struct pointer *const p = i < FEW ? &more[i] : &pointers[i - FEW];
            void **const field = (void **)(void *)((char *)&r.brought + p->offset);
            if (*field)
                continue;
            *field = r.c->table;
            const char *const bare = strstr(p->name, "->") ? strstr(p->name, "->") + 2 : p->name;
            snprintf(text, sizeof text, "%s is given", bare);
            expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, text);
            *field = NULL;
            refused++;
        }
        expect_ok(&r);
        end(&r);
    }
    /* The loop skips the pointers that a layer plans. The first layer plans x, out, cached,
     * mean_weights, k (which is in both tables), v and lse. The second layer plans x, out, key,
     * mean_weights and lse. */
    assert_int_equal(refused, 2 * ALL - 8 - 5);
}

static void an_index_that_two_cells_have_is_refused(void **state)
{
    (void)state;
    static const int64_t twice[CAPACITY] = {0, 1, 2, 1};
    struct ready r = plan_of(layer_of_cells());
    r.brought.attention.groups.key_index = twice;
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "key_index[1][3] is 1: cell 1 has this index, too");
    end(&r);
}

/* A run must not pass those lengths of the attention that the layer itself knows. */
static void lengths_of_the_attention_are_refused(void **state)
{
    (void)state;
    struct ready r = plan_of(small_layer());
    r.brought.attention.data.batch = BATCH;
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "attention->batch is given");
    r.brought.attention.data.batch = 0;
    r.brought.attention.data.q_len = Q_LEN;
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "attention->q_len is given");
    end(&r);
    r = plan_of(small_cross_layer());
    r.brought.attention.data.kv_len = 5;
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "attention->kv_len is 5");
    end(&r);
}

/* A run needs no attention data if the attention of the plan has no pointer. */
static void the_attention_may_be_left_out(void **state)
{
    (void)state;
    struct small_layer *const c = small_cross_layer();
    c->attention.lse.data = NULL;
    struct ready r = plan_of(c);
    char message[MESSAGE];
    assert_int_equal(attnkit_layer_run(r.plan.memory, &r.brought.data, &c->exec, message),
                     ATTNKIT_OK);
    end(&r);
    r = plan_of(small_layer());
    assert_int_equal(attnkit_layer_run(r.plan.memory, &r.brought.data, &r.c->exec, message),
                     ATTNKIT_BAD_ARGUMENT);
    end(&r);
}

/* --- Packed weights --------------------------------------------------------------------------- */

static void packed_weights_of_another_layer_are_refused(void **state)
{
    (void)state;
    static _Alignas(64) char other[PACKED];
    for (int i = 0; i < 7; i++) {
        struct ready r = plan_of(small_cross_layer());
        attnkit_layer_weights w = r.c->weights;
        w.q_heads = i == 0 ? 2 : w.q_heads;
        w.kv_heads = i == 1 ? 4 : w.kv_heads;
        w.head_dim = i == 2 ? 4 : w.head_dim;
        w.value_dim = i == 3 ? 4 : w.value_dim;
        w.d_out = i == 4 ? 16 : w.d_out;
        w.packed_type = i == 5 ? ATTNKIT_F16 : w.packed_type;
        w.b_k = i == 6 ? NULL : w.b_k;
        assert_int_equal(attnkit_layer_pack(&w, other, sizeof other, NULL, NULL), ATTNKIT_OK);
        r.brought.data.packed = other;
        expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "is a layer of other shapes or types");
        end(&r);
    }
    struct ready r = plan_of(small_layer());
    r.brought.data.packed = NULL;
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "packed is NULL");
    r.brought.data.packed = r.c->packed + 32;
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "must be aligned to 64 bytes");
    r.brought.data.packed = r.c->packed;
    r.brought.data.packed_size = 2000;
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "packed_size is 2000");
    end(&r);
}

/* --- Memory ----------------------------------------------------------------------------------- */

/* The library refuses outputs that overlap inputs: otherwise one part of a layer would read memory
 * that another part has written. */
static void overlaps_are_refused(void **state)
{
    (void)state;
    static const char *const outputs[] = {
        "out",          "mean_weights", "attention->lse",      "attention->weights",
        "attention->k", "attention->v", "attention->k_scales", "attention->v_scales"};
    struct ready r = plan_of(full_layer());
    for (size_t i = 0; i < sizeof pointers / sizeof pointers[0]; i++) {
        char text[MESSAGE];
        bool is_output = false;
        for (size_t j = 0; j < sizeof outputs / sizeof outputs[0]; j++)
            is_output = is_output || strcmp(pointers[i].name, outputs[j]) == 0;
        for (int of_k = 0; of_k < 2 && !is_output; of_k++) {
            void **const field = (void **)(void *)((char *)&r.brought + pointers[i].offset);
            void *const own = *field;
            *field = of_k ? r.c->k + MARGIN : r.c->out + MARGIN;
            snprintf(text, sizeof text, "overlaps %s (", pointers[i].name);
            expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, text);
            *field = own;
        }
    }
    end(&r);
}

static void a_workspace_in_a_tensor_is_refused(void **state)
{
    (void)state;
    struct ready r = plan_of(full_layer());
    for (size_t i = 0; i < sizeof pointers / sizeof pointers[0]; i++) {
        char text[MESSAGE];
        void **const field = (void **)(void *)((char *)&r.brought + pointers[i].offset);
        void *const own = *field;
        *field = small_workspace + 256;
        memset(small_workspace, 0, SMALL_WORKSPACE);
        snprintf(text, sizeof text, "overlaps %s", pointers[i].name);
        expect_refusal(&r, ATTNKIT_BAD_WORKSPACE, text);
        for (size_t j = 0; j < SMALL_WORKSPACE; j++)
            assert_int_equal(small_workspace[j], 0);
        *field = own;
    }
    r.brought.data.packed = memcpy(small_workspace, r.c->packed, PACKED);
    expect_refusal(&r, ATTNKIT_BAD_WORKSPACE, "overlaps packed");
    end(&r);
}

/* A plan needs the same workspace as a call with the planned lengths. No run needs more workspace.
 */
static void a_plan_needs_what_the_call_needs(void **state)
{
    (void)state;
    struct small_layer *(*const layers[])(void) = {small_layer, small_cross_layer, full_layer};
    for (int i = 0; i < 3; i++)
        for (int64_t threads = 1; threads <= 3; threads++) {
            struct small_layer *const c = layers[i]();
            size_t call, plan;
            const attnkit_exec exec = {.size = sizeof exec, .threads = threads};
            struct layer_planned planned = layer_plan_new(&c->args, NULL, threads);
            assert_int_equal(attnkit_layer_workspace(&c->args, &exec, &call, NULL), ATTNKIT_OK);
            assert_int_equal(attnkit_layer_plan_workspace(planned.memory, &plan, NULL), ATTNKIT_OK);
            assert_int_equal(plan, call);
            layer_plan_free(&planned);
        }
}

static void calls_with_nothing_to_do_need_no_memory(void **state)
{
    (void)state;
    static struct small_layer before;
    struct ready r = plan_of(small_cross_layer());
    r.c->exec.workspace = NULL;
    r.c->exec.workspace_size = 0;
    r.brought.data.x = NULL;
    r.brought.data.out = NULL;
    memcpy(&before, r.c, sizeof before);
    r.brought.data.batch = 0;
    expect_ok(&r);
    r.brought.data.batch = BATCH;
    r.brought.data.q_len = 0;
    expect_ok(&r);
    assert_memory_equal(r.c, &before, sizeof before);
    r.brought.data.q_len = 1;
    expect_refusal(&r, ATTNKIT_BAD_WORKSPACE, "exec.workspace is NULL");
    end(&r);
}

/* --- Arrays ----------------------------------------------------------------------------------- */

static void arrays_are_checked(void **state)
{
    (void)state;
    struct ready r = plan_of(full_layer());
    r.c->cached[1] = -1;
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "cached[1] is -1");
    r.c->cached[1] = CAPACITY - Q_LEN + 1;
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "cached[1] is 14");
    r.c->cached[1] = 6;
    r.brought.attention.data.kv_len = 8;
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "at most attention->kv_len (8)");
    r.brought.attention.data.kv_len = CAPACITY;
    r.c->block_table[1] = BATCH;
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "block_table[1] is 2");
    r.c->block_table[1] = 1;
    r.c->positions[1] = TABLE_POSITIONS - Q_LEN + 1;
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "rotation.table_positions is 9");
    r.c->positions[1] = -1;
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "positions[1] is -1");
    r.c->positions[1] = INT64_MAX - 1;
    expect_refusal(&r, ATTNKIT_OVERFLOW, "q_offsets[1] is 9223372036854775806");
    end(&r);
}

/* Arrays of 32-bit integers are also checked. */
static void narrow_arrays_are_checked(void **state)
{
    (void)state;
    int32_t cached[BATCH] = {5, 6}, positions[BATCH] = {0, 3};
    struct small_layer *const c = small_layer();
    c->args.cached = (attnkit_ints){.data = cached, .type = ATTNKIT_INT32};
    c->rotation.positions = (attnkit_ints){.data = positions, .type = ATTNKIT_INT32};
    struct ready r = plan_of(c);
    expect_ok(&r);
    cached[1] = -2;
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "cached[1] is -2");
    cached[1] = INT32_MAX;
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "cached[1] is 2147483647");
    cached[1] = 6;
    positions[1] = -7;
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "positions[1] is -7");
    end(&r);
}

static void packed_lengths_are_checked(void **state)
{
    (void)state;
    int64_t starts[] = {0, 1, Q_LEN};
    struct small_layer *const c = small_layer();
    c->args.cached.data = NULL;
    c->rotation.positions.data = c->positions;
    c->attention.k.data = c->attention.v.data = NULL;
    c->attention.kv_len = 0;
    c->groups.storage.cu_seqlens_q.data = starts;
    struct ready r = plan_of(c);
    expect_ok(&r);
    starts[1] = Q_LEN + 1;
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "cu_seqlens_q[2] is 3");
    starts[1] = 1;
    starts[2] = Q_LEN - 1;
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "cu_seqlens_q[2] is 2: must be q_len (3)");
    starts[2] = Q_LEN;
    c->positions[1] = INT64_MAX - 1;
    expect_refusal(&r, ATTNKIT_OVERFLOW, "positions[1] is 9223372036854775806");
    c->positions[1] = 1;
    r.brought.attention.data.cu_seqlens_kv =
        starts; /* in self-attention, the keys have the cu_seqlens of the rows */
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "attention->cu_seqlens_kv is given");
    end(&r);
}

/* --- Threads of the caller -------------------------------------------------------------------- */

struct member {
    pthread_t thread;
    struct ready *r;
    bool planned;
    attnkit_exec exec;
    attnkit_status status;
    char message[MESSAGE];
};

static void *join_in(void *arg)
{
    struct member *const m = arg;
    m->status =
        m->planned ? attnkit_layer_run(m->r->plan.memory, &m->r->brought.data, &m->exec, m->message)
                   : attnkit_layer(&m->r->c->args, &m->exec, m->message);
    return NULL;
}

struct meeting {
    pthread_barrier_t barrier;
    atomic_int arrived;
};

static void meet(void *pool)
{
    struct meeting *const m = pool;
    atomic_fetch_add(&m->arrived, 1);
    pthread_barrier_wait(&m->barrier);
}

static void join(struct member *m, struct ready *r, bool planned, int thread,
                 struct meeting *meeting)
{
    *m = (struct member){.r = r, .planned = planned, .exec = r->c->exec};
    m->exec.threads = 3;
    m->exec.thread = thread;
    m->exec.barrier = meet;
    m->exec.pool = meeting;
    assert_int_equal(pthread_create(&m->thread, NULL, join_in, m), 0);
}

/* Only thread 0 checks the arrays, but all threads report a fault in an array, and no thread writes
 * a result. If the fault is in an array, the test starts thread 0 only when the other threads are
 * at the barrier. Each thread finds out for itself that x is NULL, before the barrier. */
static void all_threads_report_the_same_fault(void **state)
{
    (void)state;
    static const struct {
        attnkit_status status;
        const char *text;
        bool is_in_array;
    } wrong[] = {{ATTNKIT_BAD_ARGUMENT, "cached[1] is 14", true},
                 {ATTNKIT_BAD_ARGUMENT, "positions[0] is -9", true},
                 {ATTNKIT_BAD_ARGUMENT, "x is NULL", false}};
    for (int i = 0; i < 6; i++) {
        static struct small_layer before;
        struct member members[3];
        struct meeting meeting;
        struct small_layer *const c = small_layer();
        c->rotation.positions.data = c->positions;
        struct ready r = plan_of(c);
        r.brought.data.attention = &r.brought.attention.data;
        r.brought.attention.data.groups = &r.brought.attention.groups;
        c->cached[1] = i % 3 == 0 ? 14 : 6;
        c->positions[0] = i % 3 == 1 ? -9 : 0;
        c->args.x.data = r.brought.data.x = i % 3 == 2 ? NULL : c->x;
        memcpy(&before, c, sizeof before);
        memset(small_workspace, 0, SMALL_WORKSPACE);
        pthread_barrier_init(&meeting.barrier, NULL, 3);
        atomic_init(&meeting.arrived, 0);
        for (int t = 2; t > 0; t--)
            join(&members[t], &r, i < 3, t, &meeting);
        while (wrong[i % 3].is_in_array && atomic_load(&meeting.arrived) < 2)
            sched_yield();
        join(&members[0], &r, i < 3, 0, &meeting);
        for (int t = 0; t < 3; t++) {
            pthread_join(members[t].thread, NULL);
            assert_int_equal(members[t].status, wrong[i % 3].status);
            assert_string_equal(members[t].message, members[0].message);
            assert_non_null(strstr(members[t].message, wrong[i % 3].text));
        }
        assert_memory_equal(c, &before, sizeof before);
        pthread_barrier_destroy(&meeting.barrier);
        end(&r);
    }
}

static void threads_need_a_barrier(void **state)
{
    (void)state;
    struct ready r = plan_of(small_layer());
    r.c->exec.threads = 2;
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT,
                   "exec.barrier is NULL: a layer needs a barrier for 2 threads");
    r.c->exec.threads = 4;
    expect_refusal(&r, ATTNKIT_BAD_ARGUMENT, "exec.threads is 4: the plan is for at most 3");
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_runs_are_good),
        cmocka_unit_test(missing_planned_pointers_are_refused_by_name),
        cmocka_unit_test(pointers_that_were_not_planned_are_refused_by_name),
        cmocka_unit_test(an_index_that_two_cells_have_is_refused),
        cmocka_unit_test(lengths_of_the_attention_are_refused),
        cmocka_unit_test(the_attention_may_be_left_out),
        cmocka_unit_test(packed_weights_of_another_layer_are_refused),
        cmocka_unit_test(overlaps_are_refused),
        cmocka_unit_test(a_workspace_in_a_tensor_is_refused),
        cmocka_unit_test(a_plan_needs_what_the_call_needs),
        cmocka_unit_test(calls_with_nothing_to_do_need_no_memory),
        cmocka_unit_test(arrays_are_checked),
        cmocka_unit_test(narrow_arrays_are_checked),
        cmocka_unit_test(packed_lengths_are_checked),
        cmocka_unit_test(all_threads_report_the_same_fault),
        cmocka_unit_test(threads_need_a_barrier),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
