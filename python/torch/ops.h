// SPDX-License-Identifier: Apache-2.0
//
// The ops that attnkit implements for torch.
#ifndef ATTNKIT_PYTHON_TORCH_OPS_H
#define ATTNKIT_PYTHON_TORCH_OPS_H

#include "python/torch/shim.h"

namespace attnkit_torch
{

// attnkit::attention, with attnkit's options.
extern const char *const attention_schema;
kernel attention;

// aten::_scaled_dot_product_flash_attention_for_cpu, to which torch sends calls of
// scaled_dot_product_attention on the CPU.
kernel flash_attention;

// The op by which flash_attention hands a call on to torch's own function.
extern const char *const torch_op;

} // namespace attnkit_torch

#endif
