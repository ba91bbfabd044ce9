# SPDX-License-Identifier: Apache-2.0
"""Finds transformers. Raises ImportError if transformers is missing or too old."""

from .. import torch  # attnkit.torch: raises an error if PyTorch is missing  # noqa: F401

try:
    import transformers
except ImportError as error:
    raise ImportError("attnkit.transformers needs transformers: pip install transformers") from error

OLDEST = (5, 24)  # the first version whose masks and models are tested

if tuple(int(part) for part in transformers.__version__.split(".")[:2]) < OLDEST:
    raise ImportError(f"attnkit.transformers needs transformers 5.24 or newer; this is {transformers.__version__}")
