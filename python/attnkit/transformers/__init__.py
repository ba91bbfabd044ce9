# SPDX-License-Identifier: Apache-2.0
"""attnkit in Hugging Face transformers, for models on the CPU.

After register(), and until restore(), attn_implementation="attnkit" lets a model compute attention by attnkit.
docs/transformers.md says which models and options are supported, and which raise an error."""

from . import _load  # first: its errors say what is missing  # noqa: F401
from ._mask import Mask
from ._registry import NAME, is_registered, register, restore

__all__ = ["NAME", "Mask", "is_registered", "register", "restore"]
