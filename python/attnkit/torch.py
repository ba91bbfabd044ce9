# SPDX-License-Identifier: Apache-2.0
"""attnkit in PyTorch, on CPU tensors.

activate() lets torch.nn.functional.scaled_dot_product_attention run on attnkit, until restore(). attention() is an op
of its own with attnkit's options. docs/pytorch.md says which calls are reached, and which are left to torch."""

import sys
from pathlib import Path
from typing import Optional, Tuple, Union

from . import _core

try:
    import torch
except ImportError as error:
    raise ImportError("attnkit.torch needs PyTorch: pip install torch") from error

from torch.nn import attention as _registry

__all__ = ["activate", "attention", "calls", "is_active", "restore"]

_NAME = "attnkit"
_FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_ALIGN = {None: 0, "upper-left": 1, "bottom-right": 2}
_OFFSETS = 3


def _load() -> None:
    if not hasattr(_registry, "restore_flash_attention_impl"):
        raise ImportError(f"attnkit.torch needs PyTorch 2.11 or newer; this is {torch.__version__}")
    name = "libtorch_cpu.dylib" if sys.platform == "darwin" else "libtorch_cpu.so"
    try:
        _core.torch_load(str(Path(torch.__file__).parent / "lib" / name))
    except ImportError as error:
        raise ImportError(f"attnkit.torch does not fit PyTorch {torch.__version__}: {error}") from None


# ---------------------------------------------------------------------------------- the registry

_of_torch = None  # torch's own function, while attnkit's is in its place


class _Override:
    """The handle that torch's registry keeps while attnkit is active."""

    def __init__(self):
        global _of_torch
        _of_torch = torch.library.get_kernel(_FLASH, "CPU")
        _core.torch_override(True)

    def remove(self) -> None:
        _core.torch_override(False)


def _call_torch(keys, *arguments, **options):
    return _of_torch.call_boxed(keys, *arguments, **options)


def activate() -> None:
    """Lets scaled_dot_product_attention of PyTorch run on attnkit, for CPU tensors of float32, float16 and bfloat16.

    This is torch.nn.attention.activate_flash_attention_impl("attnkit"): it holds for the whole process, and ends the
    activation of another implementation. Gradients are those of torch's own backward op."""
    _registry.activate_flash_attention_impl(_NAME)


def restore() -> None:
    """Lets scaled_dot_product_attention run on PyTorch's own functions again. Does nothing if attnkit is not active."""
    if is_active():
        _registry.restore_flash_attention_impl()


def is_active() -> bool:
    """Returns whether scaled_dot_product_attention runs on attnkit."""
    return _registry.current_flash_attention_impl() == _NAME


def calls() -> int:
    """Returns how many attentions attnkit has computed for PyTorch in this process. Two numbers, from before and after
    a call of a model, show whether the model runs on attnkit."""
    return _core.torch_runs()


# ---------------------------------------------------------------------------------------- the op

def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, mask: Optional[torch.Tensor] = None,
              bias: Optional[torch.Tensor] = None, causal: Union[None, bool, str] = None,
              q_offsets: Optional[torch.Tensor] = None, kv_lens: Optional[torch.Tensor] = None,
              window: Optional[Tuple[Optional[int], ...]] = None, softcap: Optional[float] = None,
              sinks: Optional[torch.Tensor] = None, alibi_slopes: Optional[torch.Tensor] = None,
              scale: Optional[float] = None, return_lse: bool = False):
    """Attention with the arguments of attnkit.attention, on CPU tensors of torch.

    Shapes: q [batch, q_heads, q_len, head_dim], k [batch, kv_heads, kv_len, head_dim] and v [batch, kv_heads, kv_len,
    value_dim], of float32, float16 or bfloat16 each. q_heads is a multiple of kv_heads. mask (bool) and bias (numbers)
    repeat to [batch, q_heads, q_len, kv_len]; q_offsets and kv_lens are int32 or int64 [batch]; sinks and alibi_slopes
    are float32 [q_heads]. window is in keys. help(attnkit.attention) says what each of them means.

    Returns the result [batch, q_heads, q_len, value_dim] in the type of q, with the strides of q if value_dim is
    head_dim. With return_lse, returns it with the natural logarithm of the softmax's denominator, float32 [batch,
    q_heads, q_len]. The op uses torch.get_num_threads() threads; the bits are the same for any number.

    Raises RuntimeError for wrong arguments, and for gradients that torch's backward op does not give: calls whose
    tensors need gradients have one type, one length of rows, and of the options only mask, bias, causal="upper-left"
    and scale."""
    if q_offsets is not None and isinstance(causal, str):
        raise ValueError(f"causal is {causal!r}: with q_offsets it must be True, or not given")
    if q_offsets is None and causal is True:
        raise ValueError("causal is True: must be 'upper-left' or 'bottom-right', or come with q_offsets")
    if isinstance(causal, str) and causal not in _ALIGN:
        raise ValueError(f"causal is {causal!r}: must be 'upper-left' or 'bottom-right'")
    align = _OFFSETS if q_offsets is not None else _ALIGN[causal or None]
    left, right, keep_first = _window(window, align)
    if alibi_slopes is not None and align == 0:
        raise ValueError("alibi_slopes needs to know where the rows are: give causal or q_offsets")
    out, lse = torch.ops.attnkit.attention.default(
        q, k, v, mask, bias, bool(causal), align, q_offsets, kv_lens, window is not None, left, right, keep_first,
        softcap or 0.0, sinks, alibi_slopes, scale)
    return (out, lse) if return_lse else out


def _window(window, align):
    """Returns a window as the op takes it: -1 is no bound."""
    if window is None:
        return -1, -1, 0
    if align == 0:
        raise ValueError("window needs to know where the rows are: give causal or q_offsets")
    if len(window) not in (2, 3):
        raise ValueError("window: must be (left, right) or (left, right, keep_first)")
    left, right = (-1 if bound is None else bound for bound in window[:2])
    return left, right, window[2] if len(window) == 3 else 0


def _fake(q, k, v, *options):
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        torch._check(tensor.ndim == 4, lambda: f"attnkit: {name} must be [batch, heads, rows, elements]")
    out = torch.empty_like(q) if v.shape[3] == q.shape[3] else q.new_empty((*q.shape[:3], v.shape[3]))
    return out, q.new_empty(q.shape[:3], dtype=torch.float32)


# -------------------------------------------------------------------------------------- gradients

_OPTIONS = ("mask", "bias", "causal", "align", "q_offsets", "kv_lens", "windowed", "window_left", "window_right",
            "keep_first", "softcap", "sinks", "alibi_slopes", "scale")  # as in the schema


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
    for name in ("q_offsets", "kv_lens", "sinks", "alibi_slopes"):
        if options[name] is not None:
            return name
    if options["bias"] is not None and options["bias"].requires_grad:
        return "a bias that needs gradients itself"
    return None


def _keep(ctx, inputs, output):
    q, k, v = inputs[:3]
    options = dict(zip(_OPTIONS, inputs[3:]))
    reason = _why_no_gradient(q, k, v, options)
    if reason:
        raise RuntimeError(f"attnkit: there is no gradient with {reason}; docs/pytorch.md lists what has one. Without "
                           "gradients, call it under torch.no_grad()")
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


def _backward(ctx, grad_out, grad_lse):
    if grad_lse is not None:
        raise RuntimeError("attnkit: there is no gradient through lse")
    nothing = (None,) * len(_OPTIONS)
    if grad_out is None:
        return None, None, None, *nothing
    q, k, v, mask, bias, out, lse = ctx.saved_tensors
    lse = torch.where(lse == -torch.inf, 0.0, lse)  # as torch's own op has it for a row that sees no key
    gradients = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad_out, q, k, v, out, lse, 0.0, ctx.causal, attn_mask=_added(mask, bias, q, k), scale=ctx.scale)
    return *gradients, *nothing


_load()
_of = torch.library.Library("attnkit", "FRAGMENT")
_of.define("flash_attention_of_torch(Tensor query, Tensor key, Tensor value, float dropout_p=0.0, "
           "bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor, Tensor)")
_of.impl("flash_attention_of_torch", _call_torch, "CPU", with_keyset=True)
torch.library.register_fake("attnkit::attention", _fake)
torch.library.register_autograd("attnkit::attention", _backward, setup_context=_keep)
_registry.register_flash_attention_impl(_NAME, register_fn=_Override)
