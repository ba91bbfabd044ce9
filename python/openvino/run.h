// SPDX-License-Identifier: Apache-2.0
//
// The call of attnkit on tensors of OpenVINO.
#ifndef ATTNKIT_OPENVINO_RUN_H
#define ATTNKIT_OPENVINO_RUN_H

#include <openvino/runtime/tensor.hpp>

namespace attnkit_openvino
{

// Computes attention of the inputs query, key, value and, if given, attention_mask and scale. A
// causal call ignores attention_mask. Sets the shape of out and writes the result to out. Runs on
// the threads of the calling thread's TBB arena.
void run(ov::Tensor &out, const ov::TensorVector &inputs, bool causal);

} // namespace attnkit_openvino

#endif // ATTNKIT_OPENVINO_RUN_H
