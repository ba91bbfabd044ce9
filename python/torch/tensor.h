// SPDX-License-Identifier: Apache-2.0
//
// Tensors of torch as attnkit reads them: handles that release themselves, and views with type,
// shape and byte strides. Errors are std::runtime_error, which torch turns into RuntimeError.
#ifndef ATTNKIT_PYTHON_TORCH_TENSOR_H
#define ATTNKIT_PYTHON_TORCH_TENSOR_H

#include "python/torch/shim.h"

#include <attnkit.h>

#include <memory>
#include <string>

namespace attnkit_torch
{

// Throws std::runtime_error with "attnkit: " and this text.
[[noreturn]] void refuse(const std::string &text);

// Throws if a function of torch has failed.
void expect(int32_t status);

struct deleted {
    void operator()(tensor_handle handle) const
    {
        torch.delete_tensor(handle);
    }
};
using tensor = std::unique_ptr<AtenTensorOpaque, deleted>;

// Take over the tensor whose handle a word holds; shim.h says what a word is. The word of an
// optional tensor is 0 if there is no tensor, else the address of the word that holds the handle.
tensor take_tensor(word value);
tensor take_optional_tensor(word value);
// Sets `number` to an optional float, and frees the word that holds the float. Returns whether the
// float is given. If not, `number` stays as it is.
bool take_optional_float(word value, double &number);

inline word word_of(tensor owned)
{
    return (word)owned.release();
}

// Calls an op of torch. Takes over the arguments on the stack, and puts the results in their place.
void call(const char *op, word *stack);

constexpr int most_dims = 4;

// Types of elements that attnkit_type lacks.
constexpr int32_t INT32 = 1000, INT64 = 1001, OTHER = 1002;

// What attnkit needs to know of a tensor. Strides and `item`, the size of an element, are in bytes.
// A stride along a dimension of length 0 or 1 is 0.
struct view {
    char *data;
    int32_t ndim;
    int32_t type;
    int64_t item;
    int64_t shape[most_dims];
    int64_t strides[most_dims];
};

// Returns whether attnkit can read the tensor: it has at most most_dims dimensions and is in the
// memory of the CPU.
bool is_readable(tensor_handle t);

// Reads a tensor of at most most_dims dimensions in the memory of the CPU; `name` is for errors.
view read(tensor_handle t, const char *name);

// Returns whether the elements of the last dimension are adjacent.
bool has_rows(const view &v);

// Replaces the tensor by a copy unless the elements of its last dimension are adjacent. Returns the
// view.
view read_rows(tensor &t, const char *name);

// Throws unless the elements are float32, float16 or bfloat16.
void expect_float(const view &v, const char *name);

std::string shape_text(const view &v);

// Returns the attnkit_tensor of a view. The dimensions of the view are
// [batch][heads][rows][elements].
attnkit_tensor describe(const view &v);

// Returns a new tensor of these dimensions; strides are in elements.
tensor empty(int ndim, const int64_t *shape, const int64_t *strides, int32_t dtype);

// Returns a new tensor with the shape and type of t, as torch.empty_like does: with the strides of
// t if t has no gaps. v is the view of t.
tensor empty_like(tensor_handle t, const view &v);

} // namespace attnkit_torch

#endif
