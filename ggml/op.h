// SPDX-License-Identifier: Apache-2.0
//
// GGML_OP_FLASH_ATTN_EXT in attnkit's words: what an op is as arguments of a call, or why it is
// none.
#ifndef ATTNKIT_GGML_OP_H
#define ATTNKIT_GGML_OP_H

#include <attnkit.h>

#include <ggml.h>

#include <string>
#include <vector>

namespace attnkit_ggml
{

// All of an op but its addresses, in whose place ATTNKIT_LATER stands: equal ops have equal bytes,
// and share a plan.
struct op_shape {
    attnkit_attention_args args;
    attnkit_score_mods scores;
    float max_bias; // of ALiBi; 0: none
};

// Throws attnkit::error where the op has no words there.
void describe(const ggml_tensor *op, op_shape &shape);

// Why attnkit cannot take the op, with its tensors in parentheses; empty where it can.
std::string why_not(const ggml_tensor *op);

// Arguments that point to the groups of this shape, which it must not outlive.
attnkit_attention_args arguments(const op_shape &shape);

// The factor of the mask of each head, from max_bias and the number of heads.
std::vector<float> slopes(const op_shape &shape);

// The addresses of an op. `groups` is for those of its mask, sinks and slopes.
attnkit_attention_data addresses(const ggml_tensor *op, const std::vector<float> &slopes,
                                 attnkit_attention_group_data &groups);

} // namespace attnkit_ggml

#endif // ATTNKIT_GGML_OP_H
