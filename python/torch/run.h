// SPDX-License-Identifier: Apache-2.0
//
// Functions that the op of attention.cpp and the op of flash.cpp use. They describe tensors, and
// run attention on torch's threads. torch allocates the results.
#ifndef ATTNKIT_PYTHON_TORCH_RUN_H
#define ATTNKIT_PYTHON_TORCH_RUN_H

#include "python/core/call.h"
#include "python/torch/tensor.h"

namespace attnkit_torch
{

// q, k and v of a call, and its results. q, k or v is a copy if attnkit cannot read the original.
// If attnkit cannot write `out` with the strides that torch expects, the tensor `given` has these
// strides. After the run, `result` copies `out` to `given`.
struct tensors {
    tensor q, k, v, out, lse, given;
    bool has_rows_first = false; // out lies in memory as [batch][rows][heads][elements]
};

// How the log-sum-exp lies in memory: as [batch][heads][rows], or as [batch][rows][heads], which
// torch's own op returns.
enum lse_layout { HEADS_FIRST, ROWS_FIRST };

// Describes q, k and v, and allocates out and lse. Throws if the shapes do not match. Without
// t.has_rows_first, the strides of the result depend on the lengths of the rows of q and v. If the
// lengths are equal, the result has the strides of torch.empty_like(q). Otherwise it is contiguous.
void describe_tensors(attnkit_python::description &d, tensors &t, lse_layout layout);

// Runs the call. Python's lock may be held or not.
void run(attnkit_python::description &d);

// Returns the result of a call that has run. Can be called once: moves the result out of t.
tensor result(tensors &t);

// Returns how many calls `run` has computed in this process. Failed calls do not count.
int64_t runs();

} // namespace attnkit_torch

#endif
