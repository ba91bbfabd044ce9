// SPDX-License-Identifier: Apache-2.0
//
// attnkit's function for the op inside scaled_dot_product_attention. torch's own backward op reads
// the results of this op. A call that attnkit does not compute goes to torch's own function with
// all its arguments.
#include "python/torch/mask.h"
#include "python/torch/ops.h"
#include "python/torch/run.h"

#include <cmath>
#include <cstring>

namespace attnkit_torch
{

using attnkit_python::description;

const char *const torch_op = "attnkit::flash_attention_of_torch";

namespace
{

// The places of the arguments on the stack.
enum { Q, K, V, DROPOUT, CAUSAL, MASK, SCALE, ARGUMENTS };

template <class type> type peek(word value)
{
    type result;
    memcpy(&result, &value, sizeof result);
    return result;
}

bool is_mask_for(const view &mask, const view &q, const view &k)
{
    if ((mask.ndim != 2 && mask.ndim != 4) || (mask.type != q.type && mask.type != ATTNKIT_F32))
        return false;
    const int64_t whole[4] = {q.shape[0], q.shape[1], q.shape[2], k.shape[2]};
    for (int d = 0; d < mask.ndim; d++)
        if (mask.shape[d] != 1 && mask.shape[d] != whole[4 - mask.ndim + d])
            return false;
    return true;
}

// Returns whether attnkit computes this call. q, k and v must have the same type: float32, float16
// or bfloat16. There must be no dropout. All tensors must be in the memory of the CPU, and torch's
// own function must take the shapes and the mask.
bool is_ours(const word *stack)
{
    view views[3];
    for (int i = 0; i < 3; i++) {
        if (!is_readable(peek<tensor_handle>(stack[i])))
            return false;
        views[i] = read(peek<tensor_handle>(stack[i]), "a tensor");
        if (views[i].ndim != 4 || views[i].shape[1] == 0 || views[i].shape[3] == 0)
            return false;
    }
    const view &q = views[Q], &k = views[K], &v = views[V];
    const bool is_float = q.type == ATTNKIT_F32 || q.type == ATTNKIT_F16 || q.type == ATTNKIT_BF16;
    if (!is_float || k.type != q.type || v.type != q.type || peek<double>(stack[DROPOUT]) != 0)
        return false;
    if (k.shape[0] != q.shape[0] || k.shape[3] != q.shape[3] || q.shape[1] % k.shape[1] != 0 ||
        memcmp(k.shape, v.shape, sizeof k.shape) != 0)
        return false;
    const word *const mask = peek<const word *>(stack[MASK]);
    return !mask || (is_readable(peek<tensor_handle>(*mask)) &&
                     is_mask_for(read(peek<tensor_handle>(*mask), "attn_mask"), q, k));
}

// torch's backward op expects an lse of 0 for a row that sees no key.
void set_lse_of_empty_rows(const description &d)
{
    float *const lse = (float *)const_cast<void *>(d.args.lse.data);
    const int64_t rows = d.args.batch * d.args.q_heads * d.args.q_len;
    for (int64_t i = 0; i < rows; i++)
        if (lse[i] == -INFINITY)
            lse[i] = 0;
}

void compute(word *stack)
{
    tensors t;
    t.q = take_tensor(stack[Q]);
    t.k = take_tensor(stack[K]);
    t.v = take_tensor(stack[V]);
    tensor given = take_optional_tensor(stack[MASK]);
    double scale = 0;
    const bool is_scaled = take_optional_float(stack[SCALE], scale);
    const bool has_mask = given != nullptr;
    description d = {};
    mask m;
    describe_tensors(d, t, ROWS_FIRST);
    if (is_scaled) {
        d.args.flags |= ATTNKIT_SCALE_GIVEN;
        d.args.scale = scale;
    }
    if (peek<bool>(stack[CAUSAL])) {
        d.args.flags |= ATTNKIT_CAUSAL;
        d.args.align = ATTNKIT_ALIGN_UPPER_LEFT;
    }
    if (has_mask)
        m.add(d, std::move(given), NUMBERS, "attn_mask");
    run(d);
    if (has_mask || d.args.kv_len == 0)
        set_lse_of_empty_rows(d);
    stack[1] = word_of(std::move(t.lse));
    stack[0] = word_of(result(t));
}

} // namespace

void flash_attention(word *stack, uint64_t, uint64_t)
{
    if (is_ours(stack))
        compute(stack);
    else
        call(torch_op, stack);
}

} // namespace attnkit_torch
