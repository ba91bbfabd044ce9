# SPDX-License-Identifier: Apache-2.0
"""Attention for CPUs: the same bits with every instruction set and any number of threads.

Functions on arrays: attention, scaled_dot_product_attention (with torch's signature), attention_varlen, merge and
linear. Classes: KVCache, State, Layer and Matrix. An array is a NumPy array, which may have the type bfloat16 of
ml_dtypes, or a CPU array of any library that supports DLPack. New arrays are NumPy arrays. A call releases the global
interpreter lock while it computes. Only the constructor of Layer keeps the lock."""

from pathlib import Path

from . import _core
from ._cache import KVCache
from ._core import attention, attention_varlen, enable, info, merge, scaled_dot_product_attention
from ._layer import Layer
from ._linear import Matrix, linear
from ._state import State

__all__ = ["KVCache", "Layer", "Matrix", "State", "attention", "attention_varlen", "enable", "get_include",
           "info", "linear", "merge", "scaled_dot_product_attention"]
__version__: str = _core.__version__


def get_include() -> str:
    """Returns the folder of attnkit.h, for C code that is loaded into the same process. The functions that attnkit.h
    declares are in the library attnkit._core.__file__. C code finds these functions by dlsym, Python code by ctypes."""
    return str(Path(__file__).parent / "include")
