// SPDX-License-Identifier: Apache-2.0
//
// The last four plans that were made, each for a shape of an op and a number of threads. All layers
// of a model together have one or two shapes, which stay the same for many tokens, because
// llama.cpp's cache grows by many keys at a time.
#ifndef ATTNKIT_GGML_PLANS_H
#define ATTNKIT_GGML_PLANS_H

#include "ggml/op.h"

#include <attnkit.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace attnkit_ggml
{

struct planned {
    planned(const op_shape &op, const attnkit_exec &exec);

    op_shape shape;
    int64_t threads;
    std::vector<float> slopes; // one for each head; empty without max_bias
    attnkit::attention_plan plan;
};

class plans
{
  public:
    // Finds or makes the plan of a shape for exec.threads threads. The reference is valid until the
    // next call of `find`. Throws attnkit::error if attnkit refuses the shape, and std::bad_alloc
    // without memory.
    const planned &find(const op_shape &shape, const attnkit_exec &exec);

  private:
    std::array<std::unique_ptr<planned>, 4> kept_;
    size_t oldest_ = 0;
};

} // namespace attnkit_ggml

#endif // ATTNKIT_GGML_PLANS_H
