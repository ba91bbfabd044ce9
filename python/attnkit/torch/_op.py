# SPDX-License-Identifier: Apache-2.0
"""attnkit's own op: the function with its checks, and the shapes of its results for tensors without data."""

from typing import Optional, Tuple, Union

import torch

from ._gradients import ARGUMENTS, backward, keep

ALIGN = {None: 0, "upper-left": 1, "bottom-right": 2}  # attnkit_align
OFFSETS = 3


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, mask: Optional[torch.Tensor] = None,
              bias: Optional[torch.Tensor] = None, causal: Union[None, bool, str] = None,
              q_offsets: Optional[torch.Tensor] = None, kv_lens: Optional[torch.Tensor] = None,
              window: Optional[Tuple[Optional[int], ...]] = None, softcap: Optional[float] = None,
              sinks: Optional[torch.Tensor] = None, alibi_slopes: Optional[torch.Tensor] = None,
              scale: Optional[float] = None, return_lse: bool = False, rows_first: bool = False,
              bf16_products: bool = False, short_weights: bool = False):
    """Attention as attnkit.attention computes it, on CPU tensors of torch.

    Shapes: q [batch, q_heads, q_len, head_dim], k [batch, kv_heads, kv_len, head_dim] and v [batch, kv_heads, kv_len,
    value_dim], of float32, float16 or bfloat16 each. q_heads is a multiple of kv_heads. mask (bool) and bias (numbers)
    repeat to [batch, q_heads, q_len, kv_len]; q_offsets and kv_lens are int32 or int64 [batch]; sinks and alibi_slopes
    are float32 [q_heads]. window is in keys. bf16_products and short_weights need q, k and v of bfloat16.
    help(attnkit.attention) explains each argument.

    Returns the result [batch, q_heads, q_len, value_dim] in the type of q. The result has the strides of q if value_dim
    is head_dim and q has no gaps and repeats no element. With rows_first, the result has the same shape, and lies in
    memory as [batch, q_len, q_heads, value_dim].
    With return_lse, returns a tuple of the result and the natural logarithm of the softmax's denominator, float32
    [batch, q_heads, q_len]. The op uses at most torch.get_num_threads() threads; the bits are the same for any number.

    Raises ValueError or RuntimeError for wrong arguments; the text names the argument. Raises RuntimeError if a tensor
    needs a gradient that PyTorch's own backward op does not give. PyTorch's op gives gradients of q, k and v that have
    the same type and value_dim = head_dim, with no other options than mask, bias, causal="upper-left", scale,
    return_lse and rows_first."""
    if q_offsets is not None and isinstance(causal, str):
        raise ValueError(f"causal is {causal!r}: with q_offsets it must be True, or not given")
    if q_offsets is None and causal is True:
        raise ValueError("causal is True: must be 'upper-left' or 'bottom-right', or come with q_offsets")
    if isinstance(causal, str) and causal not in ALIGN:
        raise ValueError(f"causal is {causal!r}: must be 'upper-left' or 'bottom-right'")
    align = OFFSETS if q_offsets is not None else ALIGN[causal or None]
    left, right, keep_first = _window(window, align)
    if alibi_slopes is not None and align == 0:
        raise ValueError("alibi_slopes needs to know where the rows are: give causal or q_offsets")
    out, lse = torch.ops.attnkit.attention.default(
        q, k, v, mask, bias, bool(causal), align, q_offsets, kv_lens, window is not None, left, right, keep_first,
        softcap or 0.0, sinks, alibi_slopes, scale, rows_first, bf16_products, short_weights)
    return (out, lse) if return_lse else out


def scaled_dot_product_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                                 attn_mask: Optional[torch.Tensor] = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, *, scale: Optional[float] = None,
                                 enable_gqa: bool = False) -> torch.Tensor:
    """Attention with the signature of torch.nn.functional.scaled_dot_product_attention, always by attnkit.

    This function also takes calls that activate() leaves to PyTorch: rows of value with another length than rows of
    query, and any number of dimensions.

    Shapes: query [..., heads, L, E], key [..., kv_heads, S, E], value [..., kv_heads, S, Ev], of at least 2 dimensions.
    The dimensions before L and S repeat as in PyTorch. attn_mask is bool, true where a row sees a key, or numbers that
    are added to the scores.

    Returns [..., heads, L, Ev]. A row that sees no key is 0. Raises NotImplementedError for dropout. Other wrong
    arguments, such as float64, raise what attention() raises."""
    if dropout_p != 0.0:
        raise NotImplementedError("dropout_p is not 0: attnkit.torch has no dropout")
    if attn_mask is not None and is_causal:
        raise ValueError("attn_mask: must be None if is_causal is true")
    ndim = max(3, query.ndim, key.ndim, value.ndim)
    q, k, v = (tensor[(None,) * (ndim - tensor.ndim)] for tensor in (query, key, value))
    own = 3 if enable_gqa else 2  # how many of the last dimensions do not repeat
    leading = torch.broadcast_shapes(*(tensor.shape[:-own] for tensor in (q, k, v)))
    q, k, v = (tensor.expand(*leading, *tensor.shape[-own:]) for tensor in (q, k, v))
    rows = q.shape[:-1]
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*rows, k.shape[-2]).reshape(-1, *rows[-2:], k.shape[-2])
    q, k, v = (tensor.reshape(-1, *tensor.shape[-3:]) for tensor in (q, k, v))
    is_bool = attn_mask is not None and attn_mask.dtype == torch.bool
    out = attention(q, k, v, mask=attn_mask if is_bool else None, bias=None if is_bool else attn_mask,
                    causal="upper-left" if is_causal else None, scale=scale)
    tensor = out.reshape(*rows, v.shape[-1])
    return tensor[0] if max(query.ndim, key.ndim, value.ndim) == 2 else tensor


def _window(window, align):
    """Returns a window as the op takes it: -1 means no bound."""
    if window is None:
        return -1, -1, 0
    if align == 0:
        raise ValueError("window needs to know where the rows are: give causal or q_offsets")
    if len(window) not in (2, 3):
        raise ValueError("window: must be (left, right) or (left, right, keep_first)")
    left, right = (-1 if bound is None else bound for bound in window[:2])
    return left, right, window[2] if len(window) == 3 else 0


def _fake(q, k, v, *options):
    for name, tensor in zip(ARGUMENTS, (q, k, v, *options)):
        if isinstance(tensor, torch.Tensor):
            text = f"attnkit: {name} is on the device {tensor.device}, and q on {q.device}"
            torch._check(tensor.device == q.device, lambda: text)
    torch._check(q.ndim == k.ndim == v.ndim == 4, lambda: "attnkit: q, k and v must be [batch, heads, rows, elements]")
    batch, heads, rows, _ = q.shape
    if dict(zip(ARGUMENTS[3:], options)).get("rows_first"):
        out = q.new_empty((batch, rows, heads, v.shape[3])).transpose(1, 2)
    else:
        out = torch.empty_like(q) if v.shape[3] == q.shape[3] else q.new_empty((batch, heads, rows, v.shape[3]))
    return out, q.new_empty(q.shape[:3], dtype=torch.float32)


torch.library.register_fake("attnkit::attention", _fake)
torch.library.register_autograd("attnkit::attention", backward, setup_context=keep)
