# SPDX-License-Identifier: Apache-2.0
"""Enters attnkit into transformers' interfaces of attention and masks, and takes it out again."""

from transformers import AttentionInterface, AttentionMaskInterface

from ._attention import attend
from ._bypassing import NAME, Patches
from ._mask import make_mask

patches = None  # while attnkit is registered


def register() -> None:
    """Makes attn_implementation="attnkit" known to transformers, for all models of this process.

    A second call does nothing."""
    global patches
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
    del AttentionInterface._global_mapping[NAME], AttentionMaskInterface._global_mapping[NAME]


def is_registered() -> bool:
    """Returns whether attn_implementation="attnkit" is known to transformers."""
    return patches is not None
