// SPDX-License-Identifier: Apache-2.0
//
// The plans of a thread. A call searches the plans of the thread's last calls for a plan with the
// call's description. The addresses of q, k and v do not count. Other pointers count only as NULL
// or not NULL. If there is such a plan, the call only adds its own pointers. Plans and workspace
// end with the thread.
#include "python/core/call.h"
#include "python/core/pool.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace attnkit_python
{

namespace
{

constexpr int kept_plans = 16;
constexpr size_t kept_workspace = (size_t)64
                                  << 20; // bytes; a call of attention frees a larger workspace

struct freed {
    void operator()(void *memory) const
    {
        free(memory);
    }
};
using memory = std::unique_ptr<void, freed>;

memory allocate(size_t bytes)
{
    void *const data = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (!data)
        throw std::bad_alloc();
    return memory(data);
}

struct planned {
    description key;
    memory plan;
    size_t workspace;
};

struct thread_state {
    planned plans[kept_plans];
    int count = 0, last = 0;
    unsigned age = 0; // value of `forgotten` for which the plans are valid
    memory workspace;
    size_t workspace_size = 0;
};
thread_local std::unique_ptr<thread_state> state;
std::atomic<unsigned> forgotten; // how often forget_plans was called

thread_state &of_thread()
{
    if (!state)
        state.reset(new thread_state());
    const unsigned now = forgotten.load();
    if (state->age != now) {
        state->age = now;
        state->count = state->last = 0;
    }
    return *state;
}

template <class pointer> void hide(pointer &p)
{
    if (p)
        p = (pointer)ATTNKIT_LATER;
}

void hide(attnkit_state &s)
{
    hide(s.max);
    hide(s.sum);
    hide(s.out);
}

// Returns the description with ATTNKIT_LATER as the addresses of q, k and v, and as every other
// pointer that is not NULL. The plan of a call does not depend on where pointers point.
description without_pointers(const description &d)
{
    description key = d;
    key.args.q.data = key.args.k.data = key.args.v.data = ATTNKIT_LATER;
    hide(key.args.out.data);
    hide(key.args.lse.data);
    hide(key.args.q_offsets.data);
    hide(key.storage.k_scales.data);
    hide(key.storage.v_scales.data);
    hide(key.storage.cu_seqlens_q.data);
    hide(key.storage.cu_seqlens_kv.data);
    hide(key.pages.block_table);
    hide(key.visibility.kv_lens.data);
    hide(key.visibility.mask.data);
    hide(key.scores.bias.data);
    hide(key.scores.alibi_slopes);
    hide(key.scores.sinks);
    hide(key.scores.dropout_seeds);
    hide(key.states.state_in);
    hide(key.states.state_out);
    hide(key.weights.weights.data);
    return key;
}

planned &make_plan(thread_state &s, const description &key)
{
    const int place = s.count < kept_plans ? s.count : (s.last + 1) % kept_plans;
    char message[ATTNKIT_MESSAGE_SIZE];
    const size_t size = attnkit_attention_plan_size();
    description linked = key;
    link(linked);
    memory plan = allocate(size);
    const attnkit_exec exec = exec_of(key.threads);
    expect_ok(attnkit_attention_plan(&linked.args, &exec, plan.get(), size, message), message);
    size_t bytes = 0;
    expect_ok(attnkit_attention_plan_workspace(plan.get(), &bytes, message), message);
    planned &kept = s.plans[place];
    kept.key = key;
    kept.plan = std::move(plan);
    kept.workspace = bytes;
    if (s.count < kept_plans)
        s.count++;
    s.last = place;
    return kept;
}

planned &find_plan(thread_state &s, const description &key)
{
    for (int i = 0; i < s.count; i++) {
        const int place = s.last >= i ? s.last - i : s.last - i + s.count;
        if (memcmp(&s.plans[place].key, &key, sizeof key) == 0) {
            s.last = place;
            return s.plans[place];
        }
    }
    return make_plan(s, key);
}

attnkit_attention_group_data group_data(const description &d)
{
    attnkit_attention_group_data data;
    attnkit_attention_group_data_init(&data);
    data.k_scales = (const float *)d.storage.k_scales.data;
    data.v_scales = (const float *)d.storage.v_scales.data;
    data.mask = d.visibility.mask.data;
    data.bias = d.scores.bias.data;
    data.alibi_slopes = d.scores.alibi_slopes;
    data.sinks = d.scores.sinks;
    data.dropout_seeds = d.scores.dropout_seeds;
    data.state_in = d.states.state_in;
    data.state_out = d.states.state_out;
    data.weights = (float *)const_cast<void *>(d.weights.weights.data);
    return data;
}

attnkit_attention_data run_data(const description &d)
{
    attnkit_attention_data data;
    attnkit_attention_data_init(&data);
    data.batch = d.args.batch;
    data.q_len = d.args.q_len;
    data.kv_len = d.args.kv_len;
    data.q = d.args.q.data;
    data.k = d.args.k.data;
    data.v = d.args.v.data;
    data.out = const_cast<void *>(d.args.out.data);
    data.lse = (float *)const_cast<void *>(d.args.lse.data);
    data.kv_lens = d.visibility.kv_lens.data;
    data.q_offsets = d.args.q_offsets.data;
    data.cu_seqlens_q = d.storage.cu_seqlens_q.data;
    data.cu_seqlens_kv = d.storage.cu_seqlens_kv.data;
    data.block_table = d.pages.block_table;
    return data;
}

void *workspace_of(thread_state &s, size_t bytes)
{
    if (bytes > s.workspace_size) {
        s.workspace.reset();
        s.workspace_size = 0;
        s.workspace = allocate(bytes);
        s.workspace_size = bytes;
    }
    return s.workspace.get();
}

// A call that is ready to run.
struct prepared {
    const void *plan;
    attnkit_attention_group_data groups;
    attnkit_attention_data data;
    attnkit_exec exec;
    char message[ATTNKIT_MESSAGE_SIZE];

    attnkit_status run()
    {
        return attnkit_attention_run(plan, &data, &exec, message);
    }
};

void prepare(prepared &p, const description &d)
{
    thread_state &s = of_thread();
    const planned &found = find_plan(s, without_pointers(d));
    p.plan = found.plan.get();
    p.groups = group_data(d);
    p.data = run_data(d);
    p.data.groups = &p.groups;
    p.exec = exec_of(d.threads);
    p.exec.workspace = workspace_of(s, found.workspace);
    p.exec.workspace_size = s.workspace_size;
}

void finish(const prepared &p, attnkit_status status)
{
    thread_state &s = of_thread();
    if (s.workspace_size > kept_workspace) {
        s.workspace.reset();
        s.workspace_size = 0;
    }
    expect_ok(status, p.message);
}

} // namespace

void *workspace(size_t bytes)
{
    return workspace_of(of_thread(), bytes);
}

attnkit_exec exec_of(int64_t threads)
{
    attnkit_exec exec;
    attnkit_exec_init(&exec);
    exec.threads = threads;
    exec.parallel_for = threads > 1 ? parallel_for : nullptr;
    return exec;
}

int64_t read_threads(PyObject *object)
{
    if (!object)
        return 1;
    const int64_t threads = integer(object, "threads");
    if (threads < 1 || threads > most_threads)
        bad_value("threads is " + std::to_string(threads) + ": must be between 1 and " +
                  std::to_string(most_threads));
    return threads;
}

void forget_plans()
{
    forgotten++;
}

void run_planned(description &d)
{
    prepared p;
    prepare(p, d);
    attnkit_status status;
    {
        nb::gil_scoped_release released;
        status = p.run();
    }
    finish(p, status);
}

void run_without_lock(description &d, parallel_for_function *threads)
{
    prepared p;
    prepare(p, d);
    p.exec.parallel_for = threads;
    finish(p, p.run());
}

void link(description &d)
{
    attnkit_attention_args &args = d.args;
    args.storage = d.storage.size ? &d.storage : nullptr;
    d.storage.pages = d.pages.size ? &d.pages : nullptr;
    args.visibility = d.visibility.size ? &d.visibility : nullptr;
    d.visibility.window = d.window.size ? &d.window : nullptr;
    args.scores = d.scores.size ? &d.scores : nullptr;
    args.states = d.states.size ? &d.states : nullptr;
    args.weights = d.weights.size ? &d.weights : nullptr;
}

} // namespace attnkit_python
