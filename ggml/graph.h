// SPDX-License-Identifier: Apache-2.0
//
// Computes graphs of ggml: attnkit computes the attention ops, and a CPU backend of ggml the other
// ops.
#ifndef ATTNKIT_GGML_GRAPH_H
#define ATTNKIT_GGML_GRAPH_H

#include "ggml/plans.h"
#include "ggml/team.h"

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml-impl.h>
#include <ggml.h>

#include <attnkit.hpp>

#include <map>
#include <memory>
#include <vector>

namespace attnkit_ggml
{

// A CPU backend of ggml with its threads, and the data of attnkit's calls. Each attnkit backend
// that a program makes has a computer of its own.
class computer
{
  public:
    // `cpu` is ggml's CPU device. Throws std::runtime_error if the device gives no backend, or if
    // one of the functions below is not found.
    explicit computer(ggml_backend_dev_t cpu);
    ~computer();
    computer(const computer &) = delete;
    computer &operator=(const computer &) = delete;

    void set_threads(int threads);

    // After each op of a graph, should_stop calls `callback` with `data`. The graph ends if
    // `callback` returns true.
    void set_abort_callback(ggml_abort_callback callback, void *data);

    ggml_status compute(const ggml_cgraph *graph);

  private:
    // An attention op of the program (`theirs`), and the custom op that is computed in its place
    // (`op`).
    struct attention {
        const ggml_tensor *theirs;
        ggml_tensor op;
        computer *owner;
        bool by_all; // whether all threads work on the op, or thread 0 alone
        team threads;
    };

    static void run_on_thread(ggml_tensor *op, int thread, int threads, void *of);
    static bool should_stop(void *of);

    void replace(const ggml_cgraph *graph);
    void set_attention(attention &made, const ggml_tensor *op);
    void run(attention &of, int threads);

    // Functions of the CPU backend. They are looked up by name, because a program may load the CPU
    // backend as a library.
    decltype(&ggml_threadpool_new) new_pool_;
    decltype(&ggml_threadpool_free) free_pool_;
    decltype(&ggml_backend_cpu_set_threadpool) set_pool_;
    ggml_backend_set_n_threads_t set_threads_;
    ggml_backend_set_abort_callback_t set_abort_callback_;
    ggml_backend_t cpu_;
    std::map<int, ggml_threadpool_t> pools_; // by number of threads
    ggml_abort_callback callback_ = nullptr;
    void *callback_data_ = nullptr;
    std::vector<ggml_tensor *> nodes_;
    // The attention ops of the current graph, in order. If an earlier graph had more attention ops,
    // further elements follow, which the current graph does not use.
    std::vector<std::unique_ptr<attention>> attentions_;
    attnkit_ggml::plans plans_;
    attnkit::workspace scratch_;
    ggml_status status_ = GGML_STATUS_SUCCESS;
};

} // namespace attnkit_ggml

#endif // ATTNKIT_GGML_GRAPH_H
