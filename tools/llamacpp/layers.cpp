// SPDX-License-Identifier: Apache-2.0
//
// Compares decode steps of several candidates in one process, for tools/llamacpp_layers.py. All
// candidates share the weights of one model with random weights, and run on the same threads. A
// candidate is a context of its own, with its own cache and its own memory for graphs.
//
//     layers LAYERS DEPTH THREADS KV_TYPE ROUNDS PLACES CANDIDATE...
//
// A candidate is `stock`, or the file of a backend, which only its context has. In each round,
// every candidate decodes a few tokens after DEPTH tokens, in a random order. Prints a line for
// each round: the time of a decode step of each candidate in microseconds. After every ROUNDS
// rounds, the contexts are made anew, in other memory. This is repeated PLACES times.
#include "tools/llamacpp/random_model.h"

#include <ggml-backend.h>

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace
{

constexpr int prompt = 512, steps = 4;

double microseconds()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// Decodes `count` tokens from a position on.
void decode(llama_context *context, llama_batch &batch, int position, int count)
{
    batch.n_tokens = count;
    for (int i = 0; i < count; i++) {
        batch.token[i] = (position + i) * 7919 % random_vocabulary;
        batch.pos[i] = position + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = i == count - 1;
    }
    if (llama_decode(context, batch) != 0)
        fail("llama_decode failed");
    llama_synchronize(context);
}

llama_context *make_context(llama_model *model, const std::string &candidate,
                            const llama_context_params &params)
{
    ggml_backend_reg_t reg = nullptr;
    if (candidate != "stock") {
        // The second handle keeps the code of the backend when only the context has the backend.
        reg = ggml_backend_load(candidate.c_str());
        if (!reg || !dlopen(candidate.c_str(), RTLD_NOW))
            fail("no backend " + candidate);
    }
    llama_context *const context = llama_init_from_model(model, params);
    if (!context)
        fail("no context");
    if (reg)
        ggml_backend_unload(reg); // later contexts do not have the backend
    return context;
}

double step_time(llama_context *context, llama_batch &batch, int depth)
{
    decode(context, batch, depth, 1); // wakes the threads
    const double begin = microseconds();
    for (int i = 1; i <= steps; i++)
        decode(context, batch, depth + i, 1);
    const double time = (microseconds() - begin) / steps;
    llama_memory_seq_rm(llama_get_memory(context), 0, depth, -1);
    return time;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 8)
        fail("LAYERS DEPTH THREADS KV_TYPE ROUNDS PLACES CANDIDATE...");
    const int depth = std::atoi(argv[2]), rounds = std::atoi(argv[5]), places = std::atoi(argv[6]);
    const std::vector<std::string> candidates(argv + 7, argv + argc);
    llama_model *const model =
        random_model("llama", static_cast<uint32_t>(std::atoi(argv[1])), true);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(depth + 2 * prompt);
    params.n_batch = params.n_ubatch = prompt;
    params.n_threads = params.n_threads_batch = std::atoi(argv[3]);
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.type_k = params.type_v = type_of(argv[4]);
    llama_batch batch = llama_batch_init(prompt, 0, 1);
    std::mt19937 random(1);
    std::vector<size_t> order(candidates.size());
    std::iota(order.begin(), order.end(), size_t{0});
    for (int place = 0; place < places; place++) {
        std::vector<llama_context *> contexts(candidates.size());
        std::shuffle(order.begin(), order.end(), random);
        for (size_t i : order) {
            contexts[i] = make_context(model, candidates[i], params);
            for (int first = 0; first < depth; first += prompt)
                decode(contexts[i], batch, first, std::min(prompt, depth - first));
            step_time(contexts[i], batch, depth);
        }
        for (int round = 0; round < rounds; round++) {
            std::vector<double> times(candidates.size());
            std::shuffle(order.begin(), order.end(), random);
            for (size_t i : order)
                times[i] = step_time(contexts[i], batch, depth);
            for (size_t i = 0; i < times.size(); i++)
                std::printf("%.3f%c", times[i], i + 1 < times.size() ? ' ' : '\n');
        }
        std::fflush(stdout);
        for (llama_context *context : contexts)
            llama_free(context);
    }
    llama_batch_free(batch);
    llama_model_free(model);
    return 0;
}
