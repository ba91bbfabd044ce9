// SPDX-License-Identifier: Apache-2.0
//
// Computes the logits of each token of a text by a model with random weights. The model is given
// the tokens of the text, not its own predictions (teacher forcing). models.py runs this program
// with the backend (GGML_BACKEND_PATH) and without it, each time in a new process, because a
// process cannot unload a backend.
//
//     model ARCH TEXT OUT TOKENS THREADS UBATCH FLASH KV_TYPE [cells-go-round]
//
// The tokens are the first TOKENS bytes of the file TEXT. UBATCH is llama.cpp's n_ubatch. FLASH is
// 0 or 1: whether llama.cpp uses flash attention. KV_TYPE is the type of the cache by its name in
// ggml, such as f16. With cells-go-round, layers with a sliding window get a ring cache (swa_full
// is off). The program writes the logits to OUT as f32 [TOKENS][256].
#include "tools/llamacpp/random_model.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace
{

std::vector<llama_token> read_tokens(const char *path, int wanted)
{
    std::FILE *const file = std::fopen(path, "rb");
    std::vector<llama_token> tokens;
    for (int c; file && static_cast<int>(tokens.size()) < wanted && (c = std::fgetc(file)) != EOF;)
        tokens.push_back(c);
    if (!file || static_cast<int>(tokens.size()) < wanted)
        fail(std::string(path) + " has fewer than TOKENS bytes");
    std::fclose(file);
    return tokens;
}

llama_context *make_context(llama_model *model, char **arguments, bool cells_go_round)
{
    const int threads = std::atoi(arguments[0]);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 4096;
    params.n_batch = 512;
    params.n_ubatch = static_cast<uint32_t>(std::atoi(arguments[1]));
    params.n_threads = params.n_threads_batch = threads;
    params.flash_attn_type =
        std::atoi(arguments[2]) ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.type_k = params.type_v = type_of(arguments[3]);
    params.swa_full = !cells_go_round;
    params.no_perf = true;
    llama_context *const context = llama_init_from_model(model, params);
    if (!context)
        fail("no context");
    return context;
}

// Returns the logits of all tokens of a text as [token][256]. The tokens are computed in batches of
// up to 512, at consecutive positions from 0 on.
std::vector<float> logits_of(llama_context *context, std::vector<llama_token> &tokens)
{
    std::vector<float> logits;
    llama_batch batch = llama_batch_init(512, 0, 1);
    for (size_t first = 0; first < tokens.size(); first += 512) {
        batch.n_tokens = static_cast<int>(std::min<size_t>(512, tokens.size() - first));
        for (int i = 0; i < batch.n_tokens; i++) {
            batch.token[i] = tokens[first + static_cast<size_t>(i)];
            batch.pos[i] = static_cast<llama_pos>(first) + i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = 1;
        }
        if (llama_decode(context, batch) != 0)
            fail("llama_decode failed");
        const float *const made = llama_get_logits(context);
        logits.insert(logits.end(), made, made + batch.n_tokens * random_vocabulary);
    }
    llama_batch_free(batch);
    return logits;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 9)
        fail("ARCH TEXT OUT TOKENS THREADS UBATCH FLASH KV_TYPE [cells-go-round]");
    llama_model *const model = random_model(argv[1], 2);
    llama_context *const context = make_context(model, argv + 5, argc > 9);
    std::vector<llama_token> tokens = read_tokens(argv[2], std::atoi(argv[4]));
    const std::vector<float> logits = logits_of(context, tokens);
    std::FILE *const out = std::fopen(argv[3], "wb");
    const bool written =
        out && std::fwrite(logits.data(), sizeof(float), logits.size(), out) == logits.size() &&
        std::fclose(out) == 0;
    llama_free(context);
    llama_model_free(model);
    return written ? 0 : 1;
}
