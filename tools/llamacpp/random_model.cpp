// SPDX-License-Identifier: Apache-2.0
//
// Makes the metadata that llama.cpp needs for a model, and random numbers for the weights of the
// model. The models are small.
#include "tools/llamacpp/random_model.h"

#include <ggml-backend.h>
#include <gguf.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

namespace
{

constexpr uint32_t window = 300; // length of a sliding window, in keys

struct description {
    std::map<std::string, uint32_t> integers; // metadata keys, without the name of the architecture
    std::map<std::string, float> numbers;
};

// The metadata of all models. A model can replace a value by its own.
const description common = {
    {{"context_length", 4096},
     {"embedding_length", 256},
     {"feed_forward_length", 512},
     {"attention.head_count", 8},
     {"attention.head_count_kv", 2},
     {"vocab_size", random_vocabulary}},
    {{"attention.layer_norm_rms_epsilon", 1e-5f}, {"attention.layer_norm_epsilon", 1e-5f}}};

const std::map<std::string, description> architectures = {
    {"llama", {{{"attention.key_length", 64}, {"attention.value_length", 64}}, {}}},
    {"qwen3", {{{"attention.key_length", 64}, {"attention.value_length", 64}}, {}}},
    {"gemma2",
     {{{"attention.sliding_window", window}},
      {{"attn_logit_softcapping", 50}, {"final_logit_softcapping", 30}}}},
    {"gemma3",
     {{{"attention.sliding_window", window}, {"attention.sliding_window_pattern", 2}}, {}}},
    {"gpt-oss",
     {{{"attention.sliding_window", window},
       {"attention.key_length", 64},
       {"attention.value_length", 64},
       {"expert_count", 4},
       {"expert_used_count", 2},
       {"expert_feed_forward_length", 128}},
      {}}},
    {"mpt", {{{"attention.head_count_kv", 8}}, {{"attention.max_alibi_bias", 8}}}},
    {"deepseek2", // MLA: a key in the cache has 128 + 32 elements; the first 128 are its value
     {{{"attention.head_count_kv", 1},
       {"attention.q_lora_rank", 96},
       {"attention.kv_lora_rank", 128},
       {"attention.key_length", 160},
       {"attention.value_length", 128},
       {"attention.key_length_mla", 64},
       {"attention.value_length_mla", 48},
       {"rope.dimension_count", 32},
       {"leading_dense_block_count", 1},
       {"expert_count", 4},
       {"expert_used_count", 2},
       {"expert_shared_count", 1},
       {"expert_feed_forward_length", 128}},
      {}}},
};

void describe(gguf_context *metadata, const std::string &architecture, const description &d)
{
    for (const auto &[key, value] : d.integers)
        gguf_set_val_u32(metadata, (architecture + "." + key).c_str(), value);
    for (const auto &[key, value] : d.numbers)
        gguf_set_val_f32(metadata, (architecture + "." + key).c_str(), value);
}

// Adds the vocabulary: the tokens of a text are its bytes.
void describe_vocabulary(gguf_context *metadata)
{
    std::string names[random_vocabulary];
    const char *tokens[random_vocabulary];
    int32_t types[random_vocabulary];
    for (int byte = 0; byte < random_vocabulary; byte++) {
        char name[8];
        std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
        names[byte] = name;
        tokens[byte] = names[byte].c_str();
        types[byte] = LLAMA_TOKEN_TYPE_BYTE;
    }
    gguf_set_val_str(metadata, "tokenizer.ggml.model", "llama");
    gguf_set_arr_str(metadata, "tokenizer.ggml.tokens", tokens, random_vocabulary);
    gguf_set_arr_data(metadata, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types,
                      random_vocabulary);
}

gguf_context *describe(const std::string &architecture, uint32_t layers)
{
    const auto found = architectures.find(architecture);
    if (found == architectures.end())
        fail("no architecture " + architecture);
    gguf_context *const metadata = gguf_init_empty();
    gguf_set_val_str(metadata, "general.architecture", architecture.c_str());
    describe_vocabulary(metadata);
    describe(metadata, architecture, common);
    describe(metadata, architecture, found->second);
    gguf_set_val_u32(metadata, (architecture + ".block_count").c_str(), layers);
    return metadata;
}

// Returns a random number in -1 .. 1 with a variance of 1/3. The sequence of numbers is the same on
// every machine.
float random_number(uint64_t &seed)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(static_cast<int64_t>(seed >> 40) - (1 << 23)) / (1 << 23);
}

uint64_t seed_of(const char *name)
{
    uint64_t seed = 14695981039346656037u;
    for (; *name; name++)
        seed = (seed ^ static_cast<unsigned char>(*name)) * 1099511628211u;
    return seed;
}

// Sets random weights. The elements of biases are near 0. The elements of other vectors, such as
// the weights of norms, are near 1. The elements of a matrix are scaled so that its outputs have
// about the magnitude of its inputs. The outputs of matrices whose names have attn_q or attn_k are
// larger, so that the softmax is sharper.
void set_weights(ggml_tensor *t)
{
    const bool is_vector = t->ne[1] == 1, is_bias = std::strstr(t->name, ".bias") != nullptr;
    const bool is_of_scores = std::strstr(t->name, "attn_q") || std::strstr(t->name, "attn_k");
    const float center = is_vector && !is_bias ? 1 : 0;
    const float width = is_vector || is_bias ? 0.1f
                                             : (is_of_scores ? 2.5f : 1.7f) /
                                                   std::sqrt(static_cast<float>(t->ne[0]));
    uint64_t seed = seed_of(t->name);
    std::vector<float> values(static_cast<size_t>(ggml_nelements(t)));
    for (float &value : values)
        value = center + width * random_number(seed);
    ggml_backend_tensor_set(t, values.data(), 0, ggml_nbytes(t));
}

void set_own_weights(ggml_tensor *t, void *)
{
    set_weights(t);
}

// Gives all layers the same weights in the same memory. t is a matrix or a vector of the model,
// such as "blk.7.attn_q.weight". `first` is a map from the name without "blk.7" to the memory that
// the layers share. If the map does not have this name yet, sets random weights. Otherwise lets t
// point to the memory in the map.
void share_weights(ggml_tensor *t, void *first)
{
    std::string name = t->name;
    if (name.compare(0, 4, "blk.") == 0)
        name.erase(0, name.find('.', 4));
    const auto [place, is_first] =
        static_cast<std::map<std::string, void *> *>(first)->emplace(name, t->data);
    t->data = place->second;
    if (is_first)
        set_weights(t);
}

} // namespace

void fail(const std::string &what)
{
    std::fprintf(stderr, "%s\n", what.c_str());
    std::exit(1);
}

llama_model *random_model(const std::string &architecture, uint32_t layers, bool layers_are_same)
{
    ggml_backend_load_all();
    llama_backend_init();
    gguf_context *const metadata = describe(architecture, layers);
    std::map<std::string, void *> first;
    llama_model *const model =
        llama_model_init_from_user(metadata, layers_are_same ? share_weights : set_own_weights,
                                   &first, llama_model_default_params());
    if (!model)
        fail("no model");
    gguf_free(metadata);
    return model;
}

ggml_type type_of(const std::string &name)
{
    for (int i = 0; i < GGML_TYPE_COUNT; i++)
        if (ggml_type_name(static_cast<ggml_type>(i)) &&
            name == ggml_type_name(static_cast<ggml_type>(i)))
            return static_cast<ggml_type>(i);
    fail("no type " + name);
}
