# SPDX-License-Identifier: Apache-2.0
"""attnkit in PyTorch, on CPU tensors.

After activate(), and until restore(), torch.nn.functional.scaled_dot_product_attention runs on attnkit. attention() is
a separate op with attnkit's options. docs/pytorch.md says which calls attnkit computes, and which it leaves to
PyTorch."""

from . import _load  # first: its errors say what is missing  # noqa: F401
from ._op import attention, scaled_dot_product_attention
from ._registry import activate, calls, is_active, restore

__all__ = ["activate", "attention", "calls", "is_active", "restore", "scaled_dot_product_attention"]
