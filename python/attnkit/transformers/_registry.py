# SPDX-License-Identifier: Apache-2.0
"""Enters attnkit into transformers' interfaces of attention and masks, and takes it out again."""

from transformers import AttentionInterface, AttentionMaskInterface

from ._attention import arithmetic, attend
from ._bypassing import NAME, Patches
from ._mask import make_mask

patches = None  # the Patches while attnkit is registered, else None


def register(*, bf16_products: bool = False, short_weights: bool = False) -> None:
    """Makes attn_implementation="attnkit" known to transformers, for all models of this process.

    bf16_products multiplies q, k and v in groups of 32 products, and short_weights rounds each weight to a single
    bfloat16, as in attnkit.torch.attention. short_weights needs bf16_products. With bf16_products, a model in another
    type than bfloat16 raises RuntimeError when it is called, and so does a model that needs gradients. A second call of
    register() only sets these two options."""
    global patches
    arithmetic.update(bf16_products=bf16_products, short_weights=short_weights)
    if patches is not None:
        return
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, make_mask)
    patches = Patches()


def restore() -> None:
    """Makes attn_implementation="attnkit" unknown again. Does nothing if attnkit is not registered.

    A model that still has attn_implementation="attnkit" raises KeyError when it is called."""
    global patches
    if patches is None:
        return
    patches.remove()
    patches = None
    arithmetic.clear()
    del AttentionInterface._global_mapping[NAME], AttentionMaskInterface._global_mapping[NAME]


def is_registered() -> bool:
    """Returns whether attn_implementation="attnkit" is known to transformers."""
    return patches is not None
