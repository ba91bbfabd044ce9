// SPDX-License-Identifier: Apache-2.0
//
// Measures steps of several candidates in one process, for tools/llamacpp_layers.py. All candidates
// share the weights of a model with random weights, and the threads. A candidate is a context, with
// its own cache and its own memory for graphs.
//
//     layers LAYERS DEPTH THREADS KV_TYPE TOKENS ROUNDS PLACES CANDIDATE...
//
// The candidate "on" is stock llama.cpp with -fa on. The candidate "off" is stock llama.cpp with
// -fa off. Any other candidate is the file of a backend that only this candidate loads. A step
// computes TOKENS further tokens after about DEPTH tokens. In each round, the candidates take some
// steps each, one candidate after the other in a random order. Each line of the output is a round:
// the mean time of a step of each candidate in microseconds, in the order of the arguments. ROUNDS
// rounds are measured with the same contexts. There are PLACES sets of contexts one after the
// other, each in other memory.
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

constexpr int most_tokens = 512; // the most tokens of a batch
constexpr int decode_steps = 4;  // steps of a turn if TOKENS is 1; otherwise a turn is one step

double microseconds()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// Computes `count` tokens from a position on, with logits only for the last token.
void compute(llama_context *context, llama_batch &batch, int position, int count)
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

llama_context *make_context(llama_model *model, llama_context_params params,
                            const std::string &candidate)
{
    ggml_backend_reg_t backend = nullptr;
    params.flash_attn_type =
        candidate == "off" ? LLAMA_FLASH_ATTN_TYPE_DISABLED : LLAMA_FLASH_ATTN_TYPE_ENABLED;
    if (candidate != "on" && candidate != "off") {
        backend = ggml_backend_load(candidate.c_str());
        // The handle of dlopen keeps the backend's code in memory after ggml_backend_unload.
        if (!backend || !dlopen(candidate.c_str(), RTLD_NOW))
            fail("no backend " + candidate);
    }
    llama_context *const context = llama_init_from_model(model, params);
    if (!context)
        fail("no context");
    if (backend)
        ggml_backend_unload(backend); // later contexts do not have the backend
    return context;
}

// Takes some steps, and removes the new tokens from the cache. Returns the mean time of a step in
// microseconds.
double turn(llama_context *context, llama_batch &batch, int depth, int tokens)
{
    const int steps = tokens == 1 ? decode_steps : 1;
    compute(context, batch, depth, 1); // wakes the threads
    const double begin = microseconds();
    for (int i = 0; i < steps; i++)
        compute(context, batch, depth + 1 + i, tokens);
    const double time = (microseconds() - begin) / steps;
    llama_memory_seq_rm(llama_get_memory(context), 0, depth, -1);
    return time;
}

struct measurement {
    llama_model *model;
    llama_context_params params;
    int depth, tokens, rounds;
    std::vector<std::string> candidates;
    std::mt19937 random{1};
};

// Makes the contexts, fills each cache with `depth` tokens, and measures all rounds.
void measure(measurement &m, llama_batch &batch)
{
    const size_t count = m.candidates.size();
    std::vector<llama_context *> contexts(count);
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), m.random);
    for (size_t i : order) {
        contexts[i] = make_context(m.model, m.params, m.candidates[i]);
        for (int first = 0; first < m.depth; first += most_tokens)
            compute(contexts[i], batch, first, std::min(most_tokens, m.depth - first));
        turn(contexts[i], batch, m.depth, m.tokens);
    }
    for (int round = 0; round < m.rounds; round++) {
        std::vector<double> times(count);
        std::shuffle(order.begin(), order.end(), m.random);
        for (size_t i : order)
            times[i] = turn(contexts[i], batch, m.depth, m.tokens);
        for (size_t i = 0; i < count; i++)
            std::printf("%.3f%c", times[i], i + 1 < count ? ' ' : '\n');
    }
    for (llama_context *context : contexts)
        llama_free(context);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 9)
        fail("usage: layers LAYERS DEPTH THREADS KV_TYPE TOKENS ROUNDS PLACES CANDIDATE...");
    measurement m = {random_model("llama", static_cast<uint32_t>(std::atoi(argv[1])), true),
                     llama_context_default_params(),
                     std::atoi(argv[2]),
                     std::atoi(argv[5]),
                     std::atoi(argv[6]),
                     {argv + 8, argv + argc}};
    m.params.n_ctx = static_cast<uint32_t>(m.depth + 2 * most_tokens);
    m.params.n_batch = m.params.n_ubatch = most_tokens;
    m.params.n_threads = m.params.n_threads_batch = std::atoi(argv[3]);
    m.params.type_k = m.params.type_v = type_of(argv[4]);
    llama_batch batch = llama_batch_init(most_tokens, 0, 1);
    for (int place = 0; place < std::atoi(argv[7]); place++)
        measure(m, batch);
    llama_batch_free(batch);
    llama_model_free(m.model);
    return 0;
}
