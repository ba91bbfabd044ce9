/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the faults that a run of an attention plan refuses. A run refuses wrong addresses, arrays,
 * workspaces and thread numbers with the messages of a call. A run also refuses lengths, threads
 * and instruction sets beyond the plan. A run refuses a missing pointer that was planned, and a
 * pointer that was not planned. The message names the pointer. A run refuses memory that holds no
 * plan, or a plan of another function. Planning refuses wrong shapes, types, strides and options
 * with the messages of a call. The tests run on every instruction set that can run here, or on the
 * instruction set that the first argument names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cases/full.h"
#include "tests/support/memory.h"
#include "tests/cases/planned.h"

/* A call, its plan for one thread, and everything that a run of the plan needs. */
struct ready {
    struct call *c, *untouched; /* two equal calls, whose outputs hold a pattern */
    struct plan plan;
    struct brought brought;
    attnkit_exec exec;
};

static void make_ready(struct ready *r, struct call *c, const char *isa)
{
    *r = (struct ready){.c = c, .untouched = full_beside(c), .plan = plan_call(&c->args, isa, 1)};
    full_clear(r->c);
    full_clear(r->untouched);
    plan_bring(&c->args, &r->brought);
    r->exec =
        (attnkit_exec){.size = sizeof r->exec, .workspace_size = plan_workspace(r->plan.memory)};
    r->exec.workspace = malloc(r->exec.workspace_size);
}

static void end_ready(struct ready *r)
{
    free(r->exec.workspace);
    plan_free(&r->plan);
    call_free(r->untouched);
    call_free(r->c);
}

/* Checks that a run of the plan is refused with this status, and with a message that contains
 * `words`. The run must not change an output. */
static void refuse_plan(const struct ready *r, const void *plan, attnkit_status expected,
                        const char *words)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    const attnkit_status status = attnkit_attention_run(plan, &r->brought.data, &r->exec, message);
    if (status != expected || !strstr(message, words))
        fail_msg("status %d, \"%s\" instead of \"%s\"", (int)status, message, words);
    assert_true(full_same(r->c, r->untouched));
}

static void refuse_run(const struct ready *r, attnkit_status expected, const char *words)
{
    refuse_plan(r, r->plan.memory, expected, words);
}

#define POINTER(name, field)                                                                       \
    {                                                                                              \
        name, offsetof(struct brought, field)                                                      \
    }

/* Every pointer to a tensor or an array that a run may pass. */
static const struct pointer {
    const char *name; /* name in messages */
    size_t offset;    /* offset in struct brought */
} pointers[] = {
    POINTER("q", data.q),
    POINTER("k", data.k),
    POINTER("v", data.v),
    POINTER("out", data.out),
    POINTER("lse", data.lse),
    POINTER("kv_lens", data.kv_lens),
    POINTER("q_offsets", data.q_offsets),
    POINTER("cu_seqlens_q", data.cu_seqlens_q),
    POINTER("cu_seqlens_kv", data.cu_seqlens_kv),
    POINTER("block_table", data.block_table),
    POINTER("k_scales", groups.k_scales),
    POINTER("v_scales", groups.v_scales),
    POINTER("q_segment_ids", groups.q_segment_ids),
    POINTER("kv_segment_ids", groups.kv_segment_ids),
    POINTER("mask", groups.mask),
    POINTER("mask_bits", groups.mask_bits),
    POINTER("bias", groups.bias),
    POINTER("bias_scales", groups.bias_scales),
    POINTER("alibi_slopes", groups.alibi_slopes),
    POINTER("sinks", groups.sinks),
    POINTER("dropout_seeds", groups.dropout_seeds),
    POINTER("state_in.max", groups.state_in.max),
    POINTER("state_in.sum", groups.state_in.sum),
    POINTER("state_in.out", groups.state_in.out),
    POINTER("state_out.max", groups.state_out.max),
    POINTER("state_out.sum", groups.state_out.sum),
    POINTER("state_out.out", groups.state_out.out),
    POINTER("weights", groups.weights),
    POINTER("key_index", groups.key_index),
};

enum { POINTERS = sizeof pointers / sizeof pointers[0] };

/* Leaves out a planned pointer, or passes a pointer that was not planned, and expects a refusal.
 * Returns whether the pointer was planned. */
static bool check_pointer(struct ready *r, const struct pointer *p)
{
    static _Alignas(64) char memory[64];
    char *const field = (char *)&r->brought + p->offset;
    void *own, *other;
    char words[ATTNKIT_MESSAGE_SIZE];
    memcpy(&own, field, sizeof own);
    other = own ? NULL : memory;
    memcpy(field, &other, sizeof other);
    snprintf(words, sizeof words, "%s is %s", p->name,
             own ? "NULL" : "given, but the plan has none");
    refuse_run(r, ATTNKIT_BAD_ARGUMENT, words);
    memcpy(field, &own, sizeof own);
    return own;
}

static void pointers_that_differ_from_the_plan_are_refused_by_name(void **state)
{
    int planned[POINTERS] = {0};
    for (int n = 0; n < FULL_CALLS; n++) {
        struct ready r;
        make_ready(&r, full_calls[n](3), *state);
        for (int i = 0; i < POINTERS; i++)
            planned[i] += check_pointer(&r, &pointers[i]);
        end_ready(&r);
    }
    for (int i = 0; i < POINTERS; i++) /* each pointer is planned in at least one call, and all but
                                          q, k and v are left out in at least one call */
        assert_in_range(planned[i], 1, i < 3 ? FULL_CALLS : FULL_CALLS - 1);
}

static void lengths_beyond_the_plan_are_refused(void **state)
{
    struct ready r;
    make_ready(&r, full_call_new(3), *state);
    attnkit_attention_data *const data = &r.brought.data;
    int64_t *const lengths[] = {&data->batch, &data->q_len, &data->kv_len};
    static const char *const names[] = {"batch is ", "q_len is ", "kv_len is "};
    for (int i = 0; i < 3; i++) {
        const int64_t own = *lengths[i], bad[] = {own + 1, -1, INT64_MAX, INT64_MIN};
        for (int j = 0; j < 4; j++) {
            *lengths[i] = bad[j];
            refuse_run(&r, ATTNKIT_BAD_ARGUMENT, names[i]);
        }
        *lengths[i] = own;
    }
    end_ready(&r);
}

static void threads_and_instruction_sets_beyond_the_plan_are_refused(void **state)
{
    struct ready r;
    make_ready(&r, full_call_new(3), *state);
    r.exec.threads = 2;
    refuse_run(&r, ATTNKIT_BAD_ARGUMENT, "exec.threads is 2");
    r.exec.threads = 1;
    r.exec.isa = "none";
    refuse_run(&r, ATTNKIT_BAD_ISA, "exec.isa is \"none\"");
    r.exec.isa = strcmp(*state, "scalar") ? "scalar" : "avx2";
    refuse_run(&r, ATTNKIT_BAD_ISA, "exec.isa is ");
    r.exec.isa = *state;
    assert_int_equal(attnkit_attention_run(r.plan.memory, &r.brought.data, &r.exec, NULL),
                     ATTNKIT_OK);
    end_ready(&r);
}

static void structs_of_no_version_are_refused(void **state)
{
    struct {
        attnkit_attention_data data;
        char more[8];
    } newer = {.more = {0}};
    struct ready r;
    make_ready(&r, full_call_new(3), *state);
    char message[ATTNKIT_MESSAGE_SIZE];
    assert_int_equal(attnkit_attention_run(r.plan.memory, NULL, &r.exec, message),
                     ATTNKIT_BAD_ARGUMENT);
    assert_non_null(strstr(message, "data is NULL"));
    r.brought.data.size = 3;
    refuse_run(&r, ATTNKIT_BAD_ARGUMENT, "attnkit_attention_data.size is 3");
    r.brought.data.size = sizeof r.brought.data;
    r.brought.groups.size = 3;
    refuse_run(&r, ATTNKIT_BAD_ARGUMENT, "attnkit_attention_group_data.size is 3");
    r.brought.groups.size = sizeof r.brought.groups;
    newer.data = r.brought.data;
    newer.data.size = sizeof newer;
    newer.more[3] = 1;
    assert_int_equal(attnkit_attention_run(r.plan.memory, &newer.data, &r.exec, message),
                     ATTNKIT_UNSUPPORTED);
    assert_true(full_same(r.c, r.untouched));
    newer.more[3] = 0;
    assert_int_equal(attnkit_attention_run(r.plan.memory, &newer.data, &r.exec, message),
                     ATTNKIT_OK);
    end_ready(&r);
}

/* plan_append and plan_linear_map make plans of calls other than attention. */
static void plan_append(void *plan, size_t size)
{
    const attnkit_append_args args = {.size = sizeof args,
                                      .batch = 1,
                                      .heads = 1,
                                      .len = 1,
                                      .dim = 8,
                                      .capacity = 8,
                                      .src = {.data = ATTNKIT_LATER},
                                      .dst = {.data = ATTNKIT_LATER}};
    assert_int_equal(attnkit_append_plan(&args, NULL, plan, size, NULL), ATTNKIT_OK);
}

static void plan_linear_map(void *plan, size_t size)
{
    const attnkit_linear_args args = {.size = sizeof args,
                                      .rows = 1,
                                      .in_dim = 8,
                                      .out_dim = 8,
                                      .x = {.data = ATTNKIT_LATER},
                                      .w = {.data = ATTNKIT_LATER},
                                      .y = {.data = ATTNKIT_LATER}};
    assert_int_equal(attnkit_linear_plan(&args, NULL, plan, size, NULL), ATTNKIT_OK);
}

static void memory_without_a_plan_is_refused(void **state)
{
    static const char words[] = "is not what attnkit_attention_plan of this library wrote";
    struct ready r;
    make_ready(&r, full_call_new(3), *state);
    const struct plan other = plan_new();
    char *const memory = other.memory;
    size_t bytes;
    refuse_plan(&r, NULL, ATTNKIT_BAD_ARGUMENT, "plan is NULL");
    refuse_plan(&r, memory, ATTNKIT_BAD_ARGUMENT, words);
    assert_int_equal(attnkit_attention_plan_workspace(memory, &bytes, NULL), ATTNKIT_BAD_ARGUMENT);
    memset(memory, 0, other.size);
    refuse_plan(&r, memory, ATTNKIT_BAD_ARGUMENT, words);
    assert_true(attnkit_append_plan_size() <= other.size &&
                attnkit_linear_plan_size() <= other.size);
    plan_append(memory, other.size);
    refuse_plan(&r, memory, ATTNKIT_BAD_ARGUMENT, words);
    plan_linear_map(memory, other.size);
    refuse_plan(&r, memory, ATTNKIT_BAD_ARGUMENT, words);
    /* A copy of the plan at an address that is not aligned to 16 bytes is no plan. */
    const size_t room = (other.size / PLAN_ALIGNMENT + 2) * PLAN_ALIGNMENT;
    char *const shifted = aligned_alloc(PLAN_ALIGNMENT, room);
    memcpy(shifted + 8, r.plan.memory, other.size);
    refuse_plan(&r, shifted + 8, ATTNKIT_BAD_ARGUMENT, words);
    free(shifted);
    free(other.memory);
    free(other.written);
    end_ready(&r);
}

static void memory_that_is_too_small_for_a_plan_is_refused(void **state)
{
    struct call *const c = full_call_new(3);
    const attnkit_exec exec = {.size = sizeof exec, .isa = *state};
    const size_t size = attnkit_attention_plan_size();
    char message[ATTNKIT_MESSAGE_SIZE];
    struct guarded memory = memory_guarded(size, 0, false);
    memset(memory.data, 0x5a, size);
    assert_int_equal(attnkit_attention_plan(&c->args, &exec, NULL, size, message),
                     ATTNKIT_BAD_ARGUMENT);
    assert_non_null(strstr(message, "plan is NULL"));
    assert_int_equal(attnkit_attention_plan(&c->args, &exec, memory.data + 8, size - 8, message),
                     ATTNKIT_BAD_ARGUMENT);
    assert_non_null(strstr(message, "must be aligned to 16 bytes"));
    assert_int_equal(attnkit_attention_plan(&c->args, &exec, memory.data, size - 1, message),
                     ATTNKIT_BAD_ARGUMENT);
    assert_non_null(strstr(message, "plan_size is "));
    for (size_t i = 0; i < size; i++)
        assert_int_equal(memory.data[i], 0x5a);
    memory_unguard(&memory);
    call_free(c);
}

/* --- The checks of the call ------------------------------------------------------------------- */

/* A fault that a call and a run refuse with the same message. `words` is a part of the message.
 * `commit` puts the fault into a call or its exec. */
struct fault {
    const char *words;
    void (*commit)(struct call *c, attnkit_exec *exec);
};

static attnkit_ints new_ints(struct call *c, attnkit_ints like, int64_t count, int64_t i, int64_t x)
{
    int64_t *const ints = call_memory(c, (size_t)count * sizeof *ints);
    for (int64_t n = 0; n < count; n++)
        ints[n] = n == i ? x : ints_at(like, n);
    return (attnkit_ints){.data = ints};
}

static void too_many_keys(struct call *c, attnkit_exec *exec)
{
    (void)exec;
    attnkit_ints *const lens = &c->groups.visibility.kv_lens;
    *lens = new_ints(c, *lens, 2, 1, FULL_KEYS + 1);
}

static void too_far_a_position(struct call *c, attnkit_exec *exec)
{
    (void)exec;
    c->args.q_offsets = new_ints(c, c->args.q_offsets, 2, 0, INT64_MAX);
}

static void rows_that_begin_late(struct call *c, attnkit_exec *exec)
{
    (void)exec;
    attnkit_ints *const starts = &c->groups.storage.cu_seqlens_q;
    *starts = new_ints(c, *starts, 3, 0, 1);
}

static void page_that_is_not_there(struct call *c, attnkit_exec *exec)
{
    (void)exec;
    attnkit_pages *const pages = &c->groups.pages;
    int32_t *const table = call_memory(c, (size_t)pages->pages * sizeof *table);
    memcpy(table, pages->block_table, (size_t)pages->pages * sizeof *table);
    table[1] = (int32_t)pages->pages;
    pages->block_table = table;
}

static void odd_address_of_q(struct call *c, attnkit_exec *exec)
{
    (void)exec;
    c->args.q.data = (const char *)c->args.q.data + 1;
}

static void odd_address_of_sinks(struct call *c, attnkit_exec *exec)
{
    (void)exec;
    c->groups.scores.sinks =
        (const float *)(const void *)((const char *)c->groups.scores.sinks + 2);
}

static void out_over_q(struct call *c, attnkit_exec *exec)
{
    (void)exec;
    c->args.out.data = c->args.q.data;
}

static void lse_over_weights(struct call *c, attnkit_exec *exec)
{
    (void)exec;
    c->args.lse.data = c->groups.weights.weights.data;
}

static void out_over_ints(struct call *c, attnkit_exec *exec)
{
    (void)exec;
    c->groups.visibility.kv_lens.data = c->out;
}

static void no_workspace(struct call *c, attnkit_exec *exec)
{
    (void)c;
    exec->workspace = NULL;
}

static void too_small_a_workspace(struct call *c, attnkit_exec *exec)
{
    (void)c;
    exec->workspace_size--;
}

static void workspace_over_v(struct call *c, attnkit_exec *exec)
{
    exec->workspace = (void *)(uintptr_t)c->args.v.data;
}

static void no_such_thread(struct call *c, attnkit_exec *exec)
{
    (void)c;
    exec->thread = 1;
}

static void exec_of_no_version(struct call *c, attnkit_exec *exec)
{
    (void)c;
    exec->size = 3;
}

static const struct fault faults[] = {
    {"kv_lens[1] is 151", too_many_keys},
    {"q_offsets[0] is 9223372036854775807", too_far_a_position},
    {"cu_seqlens_q[0] is 1: must be 0", rows_that_begin_late},
    {"block_table[1] is ", page_that_is_not_there},
    {"must be aligned to 4 bytes", odd_address_of_q},
    {"must be aligned to 4 bytes", odd_address_of_sinks},
    {"overlaps q", out_over_q},
    {"overlaps weights", lse_over_weights},
    {"overlaps kv_lens", out_over_ints},
    {"exec.workspace is NULL", no_workspace},
    {"exec.workspace_size is ", too_small_a_workspace},
    {"bytes) overlaps ", workspace_over_v},
    {"exec.thread is 1", no_such_thread},
    {"attnkit_exec.size is 3", exec_of_no_version},
};

enum { FAULTS = sizeof faults / sizeof faults[0] };

static void a_run_refuses_what_a_call_refuses_with_the_same_message(void **state)
{
    for (int i = 0; i < FAULTS; i++) {
        char of_call[ATTNKIT_MESSAGE_SIZE], of_run[ATTNKIT_MESSAGE_SIZE];
        struct ready r;
        make_ready(&r, full_call_new(3), *state);
        void *const workspace = r.exec.workspace;
        attnkit_exec with_isa;
        faults[i].commit(r.c, &r.exec);
        plan_bring(&r.c->args, &r.brought);
        with_isa = r.exec;
        with_isa.isa = *state;
        const attnkit_status call = attnkit_attention(&r.c->args, &with_isa, of_call);
        const attnkit_status run =
            attnkit_attention_run(r.plan.memory, &r.brought.data, &r.exec, of_run);
        if (!strstr(of_call, faults[i].words))
            fail_msg("\"%s\" instead of \"%s\"", of_call, faults[i].words);
        assert_int_not_equal(call, ATTNKIT_OK);
        assert_int_equal(run, call);
        assert_string_equal(of_run, of_call);
        assert_true(full_same(r.c, r.untouched));
        r.exec.workspace = workspace;
        end_ready(&r);
    }
}

/* --- Planning --------------------------------------------------------------------------------- */

static void no_dims(struct call *c)
{
    c->args.head_dim = 0;
}

static void unknown_flag(struct call *c)
{
    c->args.flags |= 1u << 30;
}

static void unknown_type(struct call *c)
{
    c->args.k.type = 9;
}

static void heads_that_do_not_divide(struct call *c)
{
    c->args.q_heads = 3;
}

static void odd_stride(struct call *c)
{
    c->args.q.strides[2] = 6;
}

static void rows_on_each_other(struct call *c)
{
    c->args.out.strides[2] = 4;
}

static void infinite_scale(struct call *c)
{
    c->args.flags |= ATTNKIT_SCALE_GIVEN;
    c->args.scale = 1e300;
}

static void negative_window(struct call *c)
{
    groups_set_window(&c->args, &c->groups, -2, 0, 0);
}

static void dropout_of_everything(struct call *c)
{
    c->groups.scores.dropout = 1.0;
}

static void unknown_weights(struct call *c)
{
    c->groups.weights.kind = 9;
}

static void tiles_across_pages(struct call *c)
{
    c->groups.pages.page_size = 24;
}

static void no_segments_of_keys(struct call *c)
{
    c->groups.visibility.kv_segment_ids = NULL;
}

static void (*const mistakes[])(struct call *c) = {
    no_dims,         unknown_flag,          unknown_type,       heads_that_do_not_divide,
    odd_stride,      rows_on_each_other,    infinite_scale,     negative_window,
    unknown_weights, dropout_of_everything, tiles_across_pages, no_segments_of_keys,
};

enum { MISTAKES = sizeof mistakes / sizeof mistakes[0] };

static void planning_refuses_what_a_call_refuses_with_the_same_message(void **state)
{
    for (int i = 0; i < MISTAKES; i++) {
        char of_call[ATTNKIT_MESSAGE_SIZE], of_plan[ATTNKIT_MESSAGE_SIZE];
        struct call *const c = full_call_new(3);
        const attnkit_exec exec = {.size = sizeof exec, .isa = *state};
        const struct plan plan = plan_new();
        memcpy(plan.written, plan.memory, plan.size);
        mistakes[i](c);
        const attnkit_status call = attnkit_attention(&c->args, &exec, of_call);
        plan_forget(&c->args, &c->groups);
        assert_int_not_equal(call, ATTNKIT_OK);
        assert_int_not_equal(call, ATTNKIT_BAD_WORKSPACE);
        assert_int_equal(attnkit_attention_plan(&c->args, &exec, plan.memory, plan.size, of_plan),
                         call);
        assert_string_equal(of_plan, of_call);
        plan_free(&plan);
        call_free(c);
    }
}

/* A run with nothing to do needs no workspace. */
static void a_run_of_no_rows_needs_no_workspace(void **state)
{
    struct ready r;
    make_ready(&r, full_calls[2](3), *state);
    attnkit_attention_data *const data = &r.brought.data;
    char message[ATTNKIT_MESSAGE_SIZE];
    data->batch = 0;
    assert_int_equal(attnkit_attention_run(r.plan.memory, data, NULL, message), ATTNKIT_OK);
    data->batch = 2;
    data->q_len = 0;
    assert_int_equal(attnkit_attention_run(r.plan.memory, data, NULL, message), ATTNKIT_OK);
    assert_string_equal(message, "");
    data->q_len = 3;
    assert_int_equal(attnkit_attention_run(r.plan.memory, data, NULL, message),
                     ATTNKIT_BAD_WORKSPACE);
    assert_true(full_same(r.c, r.untouched));
    end_ready(&r);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest promises[] = {
        cmocka_unit_test(pointers_that_differ_from_the_plan_are_refused_by_name),
        cmocka_unit_test(lengths_beyond_the_plan_are_refused),
        cmocka_unit_test(threads_and_instruction_sets_beyond_the_plan_are_refused),
        cmocka_unit_test(structs_of_no_version_are_refused),
        cmocka_unit_test(memory_without_a_plan_is_refused),
        cmocka_unit_test(memory_that_is_too_small_for_a_plan_is_refused),
        cmocka_unit_test(a_run_refuses_what_a_call_refuses_with_the_same_message),
        cmocka_unit_test(planning_refuses_what_a_call_refuses_with_the_same_message),
        cmocka_unit_test(a_run_of_no_rows_needs_no_workspace),
    };
    return promises_main("attention_plan", promises, sizeof promises / sizeof promises[0], argc,
                         argv);
}
