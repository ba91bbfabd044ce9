# SPDX-License-Identifier: Apache-2.0
"""attnkit as an implementation of flash attention in the registry of torch.nn.attention.

While attnkit is active, its function is in the place of PyTorch's CPU function inside scaled_dot_product_attention.
PyTorch's function is still there as a separate op, to which attnkit passes the calls that it does not compute."""

import torch
from torch.nn import attention as registry

from .. import _core

NAME = "attnkit"
FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default

of_torch = None  # PyTorch's function; None until attnkit becomes active for the first time


class _Override:
    """The handle that PyTorch's registry keeps while attnkit is active."""

    def __init__(self):
        global of_torch
        of_torch = torch.library.get_kernel(FLASH, "CPU")
        _core.torch_override(True)

    def remove(self) -> None:
        _core.torch_override(False)


def _call_torch(keys, *arguments, **options):
    return of_torch.call_boxed(keys, *arguments, **options)


def activate() -> None:
    """Lets scaled_dot_product_attention of PyTorch run on attnkit, for CPU tensors of float32, float16 and bfloat16.

    Does the same as torch.nn.attention.activate_flash_attention_impl("attnkit"): attnkit is then active in the whole
    process, in the place of any other implementation. PyTorch's own backward op computes the gradients."""
    registry.activate_flash_attention_impl(NAME)


def restore() -> None:
    """Lets scaled_dot_product_attention run on PyTorch's own functions again. Does nothing if attnkit is not active."""
    if is_active():
        registry.restore_flash_attention_impl()


def is_active() -> bool:
    """Returns whether scaled_dot_product_attention runs on attnkit."""
    return registry.current_flash_attention_impl() == NAME


def calls() -> int:
    """Returns how many attentions attnkit has computed for PyTorch in this process. Two numbers, from before and after
    a call of a model, show whether the model runs on attnkit."""
    return _core.torch_runs()


library = torch.library.Library("attnkit", "FRAGMENT")
library.define("flash_attention_of_torch(Tensor query, Tensor key, Tensor value, float dropout_p=0.0, "
               "bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor, Tensor)")
library.impl("flash_attention_of_torch", _call_torch, "CPU", with_keyset=True)
registry.register_flash_attention_impl(NAME, register_fn=_Override)
