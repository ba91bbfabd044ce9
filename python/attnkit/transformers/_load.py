# SPDX-License-Identifier: Apache-2.0
"""Finds transformers. Raises ImportError if it is missing, or lacks an interface that attnkit registers with."""

from .. import torch  # attnkit.torch; its errors say what is missing of PyTorch  # noqa: F401

try:
    import transformers
except ImportError as error:
    raise ImportError("attnkit.transformers needs transformers: pip install transformers") from error

try:
    from transformers import AttentionInterface, AttentionMaskInterface, masking_utils  # noqa: F401
    from transformers.masking_utils import create_bidirectional_sliding_window_mask, sdpa_mask  # noqa: F401
except ImportError as error:
    raise ImportError(f"attnkit.transformers needs transformers 5.24 or newer; this is {transformers.__version__}: "
                      f"{error}") from error
