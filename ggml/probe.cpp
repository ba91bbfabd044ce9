// SPDX-License-Identifier: Apache-2.0
//
// Makes one op whose sizes and parameters all differ. If a field that the probe reads lies at
// another offset in the loaded ggml than in the headers of this build, the probe reads a wrong
// number.
#include "ggml/probe.h"

#include "ggml/op.h"

#include <cstring>

namespace attnkit_ggml
{

namespace
{

ggml_tensor *make_op(ggml_context *context)
{
    ggml_tensor *const q = ggml_new_tensor_4d(context, GGML_TYPE_F32, 64, 5, 6, 2),
                       *const k = ggml_new_tensor_4d(context, GGML_TYPE_F16, 64, 7, 3, 2),
                       *const v = ggml_new_tensor_4d(context, GGML_TYPE_Q8_0, 32, 7, 3, 2),
                       *const mask = ggml_new_tensor_4d(context, GGML_TYPE_F16, 7, 5, 1, 1);
    return ggml_flash_attn_ext(context, q, k, v, mask, 0.25f, 0, 30);
}

bool is_that_op(const ggml_tensor *op)
{
    if (op->op != GGML_OP_FLASH_ATTN_EXT || !why_not(op).empty())
        return false;
    op_shape shape;
    describe(op, shape);
    const attnkit_attention_args &a = shape.args;
    return a.batch == 2 && a.q_heads == 6 && a.kv_heads == 3 && a.q_len == 5 && a.kv_len == 7 &&
           a.head_dim == 64 && a.value_dim == 32 && a.scale == 0.25 && a.k.type == ATTNKIT_F16 &&
           a.v.type == ATTNKIT_Q8_0 && a.v.strides[1] == 7 * 34 && a.out.strides[1] == 32 * 4 &&
           shape.scores.softcap == 30 && shape.scores.bias.strides[2] == 7 * 2;
}

} // namespace

bool is_built_for_this_ggml()
{
    if (std::strcmp(ggml_op_name(GGML_OP_FLASH_ATTN_EXT), "FLASH_ATTN_EXT") != 0)
        return false;
    ggml_context *const context = ggml_init({16 * ggml_tensor_overhead(), nullptr, true});
    const bool is_same = context && is_that_op(make_op(context));
    ggml_free(context);
    return is_same;
}

} // namespace attnkit_ggml
