// SPDX-License-Identifier: Apache-2.0
//
// Models of llama.cpp with random weights of f32, which are the same on every machine. The models
// are for tests and measurements of the backend for ggml.
#ifndef ATTNKIT_RANDOM_MODEL_H
#define ATTNKIT_RANDOM_MODEL_H

#include <ggml.h>
#include <llama.h>

#include <string>

constexpr int random_vocabulary = 256; // the tokens of a text are its bytes

// Ends the program with a message.
[[noreturn]] void fail(const std::string &what);

// Loads all backends that ggml finds, and the backend that GGML_BACKEND_PATH names. Then returns a
// model of the architecture llama, qwen3, gemma2, gemma3, gpt-oss, mpt or deepseek2. llama has 8
// query heads and 2 KV heads of 64 elements. With layers_are_same, all layers lie in the same
// memory. The processor then has the weights of a layer in its caches, so that the time of a layer
// does not vary with the speed of the memory.
llama_model *random_model(const std::string &architecture, uint32_t layers,
                          bool layers_are_same = false);

// Returns the type whose name in ggml is `name`.
ggml_type type_of(const std::string &name);

#endif // ATTNKIT_RANDOM_MODEL_H
