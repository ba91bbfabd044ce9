// SPDX-License-Identifier: Apache-2.0
//
// A graph goes to the CPU backend as a copy of the list of its nodes. In the copy, each attention
// op is replaced by a custom op with the same sources and the same memory for its result. So one
// call of the CPU backend runs the whole graph, on ggml's threads. The nodes of the program's graph
// stay as they are.
#include "ggml/graph.h"

#include "ggml/op.h"

#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>

namespace attnkit_ggml
{

namespace
{

// An attention op with at most this many multiply-adds runs on one thread. All keys count, visible
// or not. One query row for each of 8 heads of 64 elements, with 128 keys, is just at the limit.
// The smallest cache of llama.cpp has 256 keys. With 256 keys, two threads are faster than one,
// however few of these keys the query row sees.
constexpr double most_for_one = 0x1p17;

double multiply_adds(const ggml_tensor *op)
{
    const ggml_tensor *const k = op->src[1], *const v = op->src[2];
    return static_cast<double>(ggml_nrows(op->src[0])) * static_cast<double>(k->ne[1]) *
           static_cast<double>(k->ne[0] + v->ne[0]);
}

template <typename F> F function_of(ggml_backend_dev_t device, const char *name)
{
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(device);
    const auto found = reinterpret_cast<F>(ggml_backend_reg_get_proc_address(reg, name));
    if (!found)
        throw std::runtime_error(std::string("ggml's CPU backend has no ") + name);
    return found;
}

} // namespace

computer::computer(ggml_backend_dev_t cpu)
    : new_pool_(function_of<decltype(new_pool_)>(cpu, "ggml_threadpool_new")),
      free_pool_(function_of<decltype(free_pool_)>(cpu, "ggml_threadpool_free")),
      set_pool_(function_of<decltype(set_pool_)>(cpu, "ggml_backend_cpu_set_threadpool")),
      set_threads_(function_of<decltype(set_threads_)>(cpu, "ggml_backend_set_n_threads")),
      set_abort_callback_(
          function_of<decltype(set_abort_callback_)>(cpu, "ggml_backend_set_abort_callback")),
      cpu_(ggml_backend_dev_init(cpu, nullptr))
{
    if (!cpu_)
        throw std::runtime_error("ggml's CPU device gives no backend");
    set_abort_callback_(cpu_, should_stop, this);
}

computer::~computer()
{
    ggml_backend_free(cpu_);
    for (const auto &[threads, pool] : pools_)
        free_pool_(pool);
}

// A pool is kept for each number of threads, because llama.cpp has one number of threads for
// prefill and another one for decode. The CPU backend pauses the threads of a pool when it gets
// another pool.
void computer::set_threads(int threads)
{
    threads = threads > 1 ? threads : 1;
    ggml_threadpool_t &pool = pools_[threads];
    if (!pool) {
        ggml_threadpool_params params = ggml_threadpool_params_default(threads);
        params.poll = 0; // threads sleep between graphs: another backend may need the processors
        pool = new_pool_(&params);
    }
    set_pool_(cpu_, pool);
    set_threads_(cpu_, threads);
}

void computer::set_abort_callback(ggml_abort_callback callback, void *data)
{
    callback_ = callback;
    callback_data_ = data;
}

bool computer::should_stop(void *of)
{
    const computer &c = *static_cast<computer *>(of);
    return c.status_ != GGML_STATUS_SUCCESS || (c.callback_ && c.callback_(c.callback_data_));
}

void computer::run(attention &of, int threads)
{
    op_shape shape;
    describe(of.theirs, shape);
    const attnkit_exec exec = of.threads.exec(threads);
    const planned &found = plans_.find(shape, exec);
    attnkit_attention_group_data groups;
    found.plan.run(addresses(of.theirs, found.slopes, groups), scratch_, exec);
}

// The function of the custom op that replaces an attention op. ggml calls this function on each of
// its threads. If the op fails, should_stop ends the graph: ggml calls should_stop after the op.
void computer::run_on_thread(ggml_tensor *, int thread, int threads, void *of)
{
    attention &a = *static_cast<attention *>(of);
    if (thread > 0) {
        if (a.by_all)
            a.threads.help(thread);
        return;
    }
    try {
        a.owner->run(a, a.by_all ? threads : 1);
    } catch (const std::bad_alloc &) {
        GGML_LOG_ERROR("attnkit: no memory for the workspace of FLASH_ATTN_EXT\n");
        a.owner->status_ = GGML_STATUS_ALLOC_FAILED;
    } catch (const std::exception &problem) {
        GGML_LOG_ERROR("attnkit: FLASH_ATTN_EXT failed: %s\n", problem.what());
        a.owner->status_ = GGML_STATUS_FAILED;
    }
    a.threads.end();
}

void computer::set_attention(attention &made, const ggml_tensor *op)
{
    made.theirs = op;
    made.op = *op;
    made.owner = this;
    made.by_all = multiply_adds(op) > most_for_one;
    made.threads.begin();
    const ggml_custom_op_params params = {run_on_thread, made.by_all ? GGML_N_TASKS_MAX : 1, &made};
    std::memset(made.op.op_params, 0, sizeof made.op.op_params);
    std::memcpy(made.op.op_params, &params, sizeof params);
    made.op.op = GGML_OP_CUSTOM;
}

void computer::replace(const ggml_cgraph *graph)
{
    nodes_.assign(graph->nodes, graph->nodes + graph->n_nodes);
    size_t count = 0;
    for (ggml_tensor *&node : nodes_) {
        if (node->op != GGML_OP_FLASH_ATTN_EXT)
            continue;
        if (count == attentions_.size())
            attentions_.push_back(std::make_unique<attention>());
        attention &made = *attentions_[count++];
        set_attention(made, node);
        node = &made.op;
    }
}

ggml_status computer::compute(const ggml_cgraph *graph)
{
    try {
        replace(graph);
    } catch (const std::bad_alloc &) {
        GGML_LOG_ERROR("attnkit: no memory for a graph\n");
        return GGML_STATUS_ALLOC_FAILED;
    }
    status_ = GGML_STATUS_SUCCESS;
    ggml_cgraph ours = *graph;
    ours.nodes = nodes_.data();
    ours.uid = 0; // the uid belongs to the original graph
    const ggml_status status = ggml_backend_graph_compute(cpu_, &ours);
    return status_ != GGML_STATUS_SUCCESS ? status_ : status;
}

} // namespace attnkit_ggml
