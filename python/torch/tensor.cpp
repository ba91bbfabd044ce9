// SPDX-License-Identifier: Apache-2.0
//
// Reads and makes tensors by the functions of shim.h. Ops of torch are slower than these functions.
// To read or make a tensor, this file calls an op only if the tensor has to be copied, or if a new
// tensor has to be like a tensor that is not dense.
#include "python/torch/tensor.h"

#include <cstring>
#include <stdexcept>

namespace attnkit_torch
{

namespace
{

template <class type> type value_of(word value)
{
    type result;
    memcpy(&result, &value, sizeof result);
    return result;
}

// Returns the word that an optional value points to, and frees the memory of this word.
word unwrap(word value)
{
    word *const address = value_of<word *>(value);
    const word inside = *address;
    if (torch.delete_word)
        torch.delete_word(address);
    else
        delete address; // as the headers of older versions of torch do
    return inside;
}

int32_t type_of(int32_t dtype)
{
    static const struct {
        int32_t dtype, type;
    } types[] = {{torch.dtype_float32(), ATTNKIT_F32},   {torch.dtype_float16(), ATTNKIT_F16},
                 {torch.dtype_bfloat16(), ATTNKIT_BF16}, {torch.dtype_bool(), ATTNKIT_BOOL},
                 {torch.dtype_int32(), INT32},           {torch.dtype_int64(), INT64}};
    for (const auto &known : types)
        if (known.dtype == dtype)
            return known.type;
    return OTHER;
}

int64_t item_of(int32_t type)
{
    switch (type) {
    case ATTNKIT_F32:
    case INT32:
        return 4;
    case ATTNKIT_F16:
    case ATTNKIT_BF16:
        return 2;
    case ATTNKIT_BOOL:
        return 1;
    default:
        return 8;
    }
}

// Returns whether the elements fill a piece of memory without gaps or repetition.
bool is_dense(const view &v)
{
    int64_t span = v.item;
    bool used[most_dims] = {};
    for (int n = 0; n < v.ndim; n++) {
        int next = -1;
        for (int d = 0; d < v.ndim; d++)
            if (!used[d] && (v.shape[d] == 1 || v.strides[d] == span))
                next = d;
        if (next < 0)
            return false;
        used[next] = true;
        span *= v.shape[next];
    }
    return true;
}

} // namespace

void refuse(const std::string &text)
{
    throw std::runtime_error("attnkit: " + text);
}

void expect(int32_t status)
{
    if (status == 0)
        return;
    const char *const text = torch.last_error ? torch.last_error() : nullptr;
    throw std::runtime_error(text && *text ? text
                                           : "a function of torch failed; stderr has its message");
}

tensor take_tensor(word value)
{
    return tensor(value_of<tensor_handle>(value));
}

tensor take_optional_tensor(word value)
{
    return value ? take_tensor(unwrap(value)) : tensor();
}

bool take_optional_float(word value, double &number)
{
    if (!value)
        return false;
    number = value_of<double>(unwrap(value));
    return true;
}

void call(const char *op, word *stack)
{
    expect(torch.call_dispatcher(op, "", stack, abi_version));
}

bool is_readable(tensor_handle t)
{
    int64_t ndim;
    int32_t device;
    expect(torch.get_dim(t, &ndim));
    expect(torch.get_device_type(t, &device));
    return ndim <= most_dims && device == torch.device_cpu();
}

view read(tensor_handle t, const char *name)
{
    view v = {};
    int64_t ndim, *shape, *strides;
    int32_t dtype, device;
    void *data;
    expect(torch.get_device_type(t, &device));
    if (device != torch.device_cpu())
        refuse(std::string(name) + " is not in the memory of the CPU");
    expect(torch.get_dim(t, &ndim));
    expect(torch.get_sizes(t, &shape));
    expect(torch.get_strides(t, &strides));
    expect(torch.get_dtype(t, &dtype));
    expect(torch.get_data_ptr(t, &data));
    if (ndim > most_dims)
        refuse(std::string(name) + " has " + std::to_string(ndim) +
               " dimensions: must have at most " + std::to_string(most_dims));
    v.data = (char *)data;
    v.ndim = (int32_t)ndim;
    v.type = type_of(dtype);
    v.item = item_of(v.type);
    for (int d = 0; d < v.ndim; d++) {
        v.shape[d] = shape[d];
        v.strides[d] = shape[d] > 1 ? strides[d] * v.item : 0;
    }
    return v;
}

bool has_rows(const view &v)
{
    return v.ndim == 0 || v.shape[v.ndim - 1] < 2 || v.strides[v.ndim - 1] == v.item;
}

view read_rows(tensor &t, const char *name)
{
    const view v = read(t.get(), name);
    if (has_rows(v))
        return v;
    word stack[2] = {word_of(std::move(t)), (word)(uint32_t)torch.contiguous_format()};
    call("aten::contiguous", stack);
    t = take_tensor(stack[0]);
    return read(t.get(), name);
}

void expect_float(const view &v, const char *name)
{
    if (v.type != ATTNKIT_F32 && v.type != ATTNKIT_F16 && v.type != ATTNKIT_BF16)
        refuse(std::string(name) + " must be float32, float16 or bfloat16");
}

std::string shape_text(const view &v)
{
    std::string text = "(";
    for (int d = 0; d < v.ndim; d++)
        text += (d ? ", " : "") + std::to_string(v.shape[d]);
    return text + (v.ndim == 1 ? ",)" : ")");
}

attnkit_tensor describe(const view &v)
{
    attnkit_tensor described = {};
    described.data = v.data;
    described.type = v.type;
    described.layout = ATTNKIT_STRIDED;
    for (int d = 0; d < 3; d++)
        described.strides[d] = v.strides[d];
    return described;
}

tensor empty(int ndim, const int64_t *shape, const int64_t *strides, int32_t dtype)
{
    tensor_handle made;
    expect(torch.empty_strided(ndim, shape, strides, dtype, torch.device_cpu(), -1, &made));
    return tensor(made);
}

tensor empty_like(tensor_handle t, const view &v)
{
    if (is_dense(v)) {
        int64_t *strides;
        int32_t dtype;
        expect(torch.get_strides(t, &strides));
        expect(torch.get_dtype(t, &dtype));
        return empty(v.ndim, v.shape, strides, dtype);
    }
    tensor_handle same;
    expect(torch.new_tensor_handle(t, &same));
    word stack[6] = {(word)same, 0, 0, 0, 0, 0};
    call("aten::empty_like", stack);
    return take_tensor(stack[0]);
}

} // namespace attnkit_torch
