# SPDX-License-Identifier: Apache-2.0
"""The gradients of attnkit's op, by PyTorch's own backward op, which takes attnkit's result and log-sum-exp."""

import torch

ARGUMENTS = ("q", "k", "v", "mask", "bias", "causal", "align", "q_offsets", "kv_lens", "windowed", "window_left",
             "window_right", "keep_first", "softcap", "sinks", "alibi_slopes", "scale", "rows_first", "bf16_products",
             "short_weights")  # in the order of attention_schema in python/torch/attention.cpp


def _why_no_gradient(q, k, v, options):
    """Returns why torch's backward op does not give the gradients of a call, or None."""
    if not q.dtype == k.dtype == v.dtype:
        return "q, k and v of different types"
    if v.shape[3] != q.shape[3]:
        return "value_dim other than head_dim"
    if options["align"] == 2 and options["causal"]:
        return "causal='bottom-right'"
    if options["windowed"]:
        return "window"
    if options["softcap"] != 0.0:
        return "softcap"
    if options["bf16_products"]:
        return "bf16_products"
    for name in ("q_offsets", "kv_lens", "sinks", "alibi_slopes"):
        if options[name] is not None:
            return name
    if options["bias"] is not None and options["bias"].requires_grad:
        return "a bias that needs gradients itself"
    return None


def keep(ctx, inputs, output):
    """Keeps what backward() needs. Raises RuntimeError if torch's backward op does not give the gradients of a call."""
    q, k, v = inputs[:3]
    options = dict(zip(ARGUMENTS[3:], inputs[3:]))
    reason = _why_no_gradient(q, k, v, options)
    if reason:
        raise RuntimeError(f"attnkit: there is no gradient with {reason}; docs/pytorch.md lists the calls with "
                           "gradients. If you need no gradients, call attnkit under torch.no_grad()")
    ctx.set_materialize_grads(False)
    ctx.causal, ctx.scale = options["causal"], options["scale"]
    ctx.save_for_backward(q, k, v, options["mask"], options["bias"], *output)


def _added(mask, bias, q, k):
    """Returns what a mask and a bias add to the scores, in the form that torch's backward op takes, or None."""
    if mask is None and bias is None:
        return None
    added = q.new_zeros(()) if bias is None else bias.to(q.dtype)
    if mask is not None:
        added = torch.where(mask, added, -torch.inf)
    return added.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])


def _with_column(tensor, value):
    return torch.cat((tensor, torch.zeros_like(tensor[..., :1]) + value), dim=-1)


def backward(ctx, grad_out, grad_lse):
    """Returns the gradients that torch's own backward op gives for attnkit's results.

    torch's op takes no gradient of lse. The op subtracts the sum of grad_out * out over a row from the gradient of each
    weight of the row. The gradient of lse has to be added to these differences. One more column does this: grad_out has
    1 in this column, and out has -grad_lse."""
    q, k, v, mask, bias, out, lse = ctx.saved_tensors
    nothing = (None,) * (len(ARGUMENTS) - 3)
    if grad_out is None and grad_lse is None:
        return None, None, None, *nothing
    added, scale, head_dim = _added(mask, bias, q, k), ctx.scale, q.shape[3]
    lse = torch.where(lse == -torch.inf, 0.0, lse)  # as torch's own op has it for a row that sees no key
    if out.stride(-1) != 1:  # out may have the strides of q; torch's op reads rows of adjacent elements
        out = out.contiguous()
    if grad_out is None:
        grad_out = torch.zeros_like(out)
    dtype = q.dtype
    if grad_lse is not None:
        scale = head_dim ** -0.5 if scale is None else scale
        added = None if added is None else added.float()
        q, k, v = (_with_column(tensor.float(), 0) for tensor in (q, k, v))
        out, grad_out = _with_column(out.float(), -grad_lse[..., None]), _with_column(grad_out.float(), 1)
    gradients = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad_out, q, k, v, out, lse, 0.0, ctx.causal, attn_mask=added, scale=scale)
    return *(gradient[..., :head_dim].to(dtype) for gradient in gradients), *nothing
