# SPDX-License-Identifier: Apache-2.0
"""Finds PyTorch's library in this process, and defines attnkit's op in it. Raises ImportError if PyTorch is missing,
or is a version that lacks functions that attnkit calls."""

import sys
from pathlib import Path

from .. import _core

try:
    import torch
    from torch.nn import attention as registry
except ImportError as error:
    raise ImportError("attnkit.torch needs PyTorch: pip install torch") from error


def load() -> None:
    if not hasattr(registry, "restore_flash_attention_impl"):
        raise ImportError(f"attnkit.torch needs PyTorch 2.11 or newer; this is {torch.__version__}")
    name = "libtorch_cpu.dylib" if sys.platform == "darwin" else "libtorch_cpu.so"
    try:
        _core.torch_load(str(Path(torch.__file__).parent / "lib" / name))
    except ImportError as error:
        raise ImportError(f"attnkit.torch does not fit PyTorch {torch.__version__}: {error}") from None


load()
