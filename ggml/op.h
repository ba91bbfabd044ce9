// SPDX-License-Identifier: Apache-2.0
//
// Turns an op GGML_OP_FLASH_ATTN_EXT into the arguments of a call of attnkit, or says why attnkit
// cannot take the op.
#ifndef ATTNKIT_GGML_OP_H
#define ATTNKIT_GGML_OP_H

#include <attnkit.h>

#include <ggml.h>

#include <string>
#include <vector>

namespace attnkit_ggml
{

// An op without its addresses: ATTNKIT_LATER stands in place of each address. Ops that differ only
// in their addresses have equal shapes, byte for byte, and can share a plan.
struct op_shape {
    attnkit_attention_args args;
    attnkit_score_mods scores;
    float max_bias; // gives the slopes of ALiBi; 0: no ALiBi
};

// Fills in the shape of an op. Throws attnkit::error if the op cannot be turned into arguments of
// attnkit. attnkit may still refuse the arguments.
void describe(const ggml_tensor *op, op_shape &shape);

// Returns why attnkit cannot take the op, with the op's q, K and V in parentheses. If attnkit can
// take the op, the text is empty.
std::string why_not(const ggml_tensor *op);

// Returns arguments that point to the groups of `shape`. `shape` has to outlive the arguments.
attnkit_attention_args arguments(const op_shape &shape);

// Returns for each head the factor by which the mask is multiplied, computed from max_bias and the
// number of heads. If max_bias is 0, the list is empty.
std::vector<float> slopes(const op_shape &shape);

// Returns the addresses of an op, with a pointer to `groups`. `groups` receives the addresses of
// the op's mask and sinks, and of `slopes`. `groups` and `slopes` must outlive the result.
attnkit_attention_data addresses(const ggml_tensor *op, const std::vector<float> &slopes,
                                 attnkit_attention_group_data &groups);

} // namespace attnkit_ggml

#endif // ATTNKIT_GGML_OP_H
