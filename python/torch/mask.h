// SPDX-License-Identifier: Apache-2.0
//
// Masks and biases of torch. A dimension of length 1 stands for all batch entries, heads, rows or
// keys.
#ifndef ATTNKIT_PYTHON_TORCH_MASK_H
#define ATTNKIT_PYTHON_TORCH_MASK_H

#include "python/core/call.h"
#include "python/torch/tensor.h"

namespace attnkit_torch
{

enum mask_kind { BOOLS, NUMBERS };

// A mask or a bias, and the memory of its copy if attnkit cannot read the original.
class mask
{
  public:
    // Adds the tensor t to a call whose q, k and v are described. BOOLS are true where a row sees a
    // key, NUMBERS are added to the scores. This object must live until the call has run.
    void add(attnkit_python::description &d, tensor t, mask_kind kind, const char *name);

  private:
    void broadcast(const attnkit_attention_args &args, const char *name);
    void repeat_columns(int64_t columns);

    tensor tensor_;
    view view_;
    std::unique_ptr<char[]> copy_;
};

} // namespace attnkit_torch

#endif
