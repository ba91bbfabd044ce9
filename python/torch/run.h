// SPDX-License-Identifier: Apache-2.0
//
// What both ops share: an attention whose tensors are described runs on torch's threads, into
// tensors that torch has allocated.
#ifndef ATTNKIT_PYTHON_TORCH_RUN_H
#define ATTNKIT_PYTHON_TORCH_RUN_H

#include "python/core/call.h"
#include "python/torch/tensor.h"

namespace attnkit_torch
{

// q, k and v of a call, and its results. A tensor is a copy if attnkit cannot read the original.
// `given` is the result if attnkit cannot write it, and writes `out` instead.
struct tensors {
    tensor q, k, v, out, lse, given;
};

// How the log-sum-exp lies in memory: [batch][heads][rows], or with the heads of a row adjacent, as
// in torch's own op.
enum lse_layout { HEADS_FIRST, ROWS_FIRST };

// Describes q, k and v, whose shapes go together, and allocates out and lse. out is like q if v has
// rows as long as those of q, else it is contiguous.
void describe_tensors(attnkit_python::description &d, tensors &t, lse_layout layout);

// Runs the call. Python's lock may be held or not.
void run(attnkit_python::description &d);

// Returns the result of a call that has run.
tensor result(tensors &t);

// Returns how many calls `run` has made in this process.
int64_t runs();

} // namespace attnkit_torch

#endif
