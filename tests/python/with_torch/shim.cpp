// SPDX-License-Identifier: Apache-2.0
//
// Compares python/torch/shim.h with torch's own headers: the types of the functions of torch's
// stable C ABI, the types of a word and of a tensor handle, and the version of torch for which
// words are written. A word is an argument or a result of an op (python/torch/shim.h). test_shim.py
// compiles this file.
#include <torch/csrc/stable/c/shim.h>

#include "python/torch/shim.h"

#include <type_traits>

using attnkit_torch::shim;

#define COMPARE(place, name)                                                                       \
    static_assert(std::is_same_v<decltype(shim::place), decltype(&name)>, #name);
ATTNKIT_TORCH_FUNCTIONS(COMPARE)

static_assert(std::is_same_v<attnkit_torch::word, StableIValue>, "a word of the stack");
static_assert(std::is_same_v<attnkit_torch::tensor_handle, AtenTensorHandle>, "a tensor");
static_assert(attnkit_torch::abi_version == TORCH_VERSION_2_10_0, "the version of the words");
