// SPDX-License-Identifier: Apache-2.0
//
// The process of one candidate of tools/llamacpp_speed.py. It has a model with random weights and a
// cache of DEPTH tokens, and prefills and decodes on command.
//
//     speed LAYERS DEPTH THREADS FLASH KV_TYPE FILE
//
// FLASH is 1 for -fa on, 0 for -fa off. If FILE exists, the process reads the cache from FILE.
// Otherwise, if DEPTH is not 0, the process computes the tokens, and writes the cache to FILE. Then
// it prints "ready". Each input line is "prefill" or "decode". A prefill computes a prompt of 512
// further tokens. A decode computes 16 further tokens one after the other. The further tokens are
// then removed from the cache. For each line, the process prefills or decodes once to wake the
// threads and to fill the caches of the CPU, and then repeatedly for 100 ms or longer. The answer
// is the mean time of a prompt or of one token in milliseconds, first in wall clock time, then in
// processor time.
#include "tools/llamacpp/random_model.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <vector>

namespace
{

constexpr int prompt = 512, steps = 16;

double milliseconds(clockid_t clock)
{
    timespec now;
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// Computes `count` tokens from a position on, with logits only for the last token.
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

// Prefills or decodes once, and removes the new tokens from the cache.
void compute(llama_context *context, llama_batch &batch, int depth, bool is_prefill)
{
    for (int i = 0; i < (is_prefill ? 1 : steps); i++)
        decode(context, batch, depth + i, is_prefill ? prompt : 1);
    llama_memory_seq_rm(llama_get_memory(context), 0, depth, -1);
}

// Fills the cache with `depth` tokens. If the file exists, reads the cache from the file, because
// stock llama.cpp takes minutes to compute 32,768 tokens with a cache of q8_0. Otherwise computes
// the tokens and, if depth is not 0, writes the file.
void fill(llama_context *context, llama_batch &batch, int depth, const char *file)
{
    std::vector<llama_token> tokens(static_cast<size_t>(depth));
    size_t count = 0;
    if (std::ifstream(file).good()) {
        if (!llama_state_seq_load_file(context, file, 0, tokens.data(), tokens.size(), &count))
            fail("the cache cannot be read");
        return;
    }
    for (int first = 0; first < depth; first += prompt)
        decode(context, batch, first, std::min(prompt, depth - first));
    if (depth > 0 && !llama_state_seq_save_file(context, file, 0, tokens.data(), tokens.size()))
        fail("the cache cannot be written");
}

void take_turns(llama_context *context, llama_batch &batch, int depth)
{
    for (char line[16]; std::fgets(line, sizeof line, stdin);) {
        const bool is_prefill = std::strncmp(line, "prefill", 7) == 0;
        compute(context, batch, depth, is_prefill);
        const double clock = milliseconds(CLOCK_MONOTONIC),
                     processor = milliseconds(CLOCK_PROCESS_CPUTIME_ID);
        int calls = 0;
        do {
            compute(context, batch, depth, is_prefill);
            calls += is_prefill ? 1 : steps;
        } while (milliseconds(CLOCK_MONOTONIC) < clock + 100);
        std::printf("%.6f %.6f\n", (milliseconds(CLOCK_MONOTONIC) - clock) / calls,
                    (milliseconds(CLOCK_PROCESS_CPUTIME_ID) - processor) / calls);
        std::fflush(stdout);
    }
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 7)
        fail("usage: speed LAYERS DEPTH THREADS FLASH KV_TYPE FILE");
    const int depth = std::atoi(argv[2]);
    llama_model *const model = random_model("llama", static_cast<uint32_t>(std::atoi(argv[1])));
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(depth + 2 * prompt);
    params.n_batch = params.n_ubatch = prompt;
    params.n_threads = params.n_threads_batch = std::atoi(argv[3]);
    params.flash_attn_type =
        std::atoi(argv[4]) ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.type_k = params.type_v = type_of(argv[5]);
    llama_context *const context = llama_init_from_model(model, params);
    if (!context)
        fail("no context");
    llama_batch batch = llama_batch_init(prompt, 0, 1);
    fill(context, batch, depth, argv[6]);
    std::printf("ready\n");
    std::fflush(stdout);
    take_turns(context, batch, depth);
    llama_batch_free(batch);
    llama_free(context);
    llama_model_free(model);
    return 0;
}
