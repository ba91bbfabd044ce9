# SPDX-License-Identifier: Apache-2.0
"""The types of the functions that are written in C++. help(attnkit.attention) and so on describe the functions."""

from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from numpy.typing import NDArray

__version__: str

Array = Any  # an array of NumPy, or of any library that has DLPack
Ints = Union[int, Sequence[int], Array]
Window = Tuple[Optional[int], ...]

def attention(q: Array, k: Array, v: Array, *, mask: Optional[Array] = None, bias: Optional[Array] = None,
              causal: Union[None, bool, str] = None, q_offsets: Optional[Ints] = None,
              kv_lens: Optional[Ints] = None, window: Optional[Window] = None,
              softcap: Optional[float] = None, sinks: Optional[Array] = None,
              alibi_slopes: Optional[Array] = None, scale: Optional[float] = None,
              dropout: Optional[float] = None, seeds: Optional[Union[int, Array]] = None,
              return_lse: bool = False, return_weights: Union[bool, str] = False,
              out: Optional[Array] = None, threads: Optional[int] = None) -> Any: ...
def scaled_dot_product_attention(query: Array, key: Array, value: Array, attn_mask: Optional[Array] = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, *,
                                 scale: Optional[float] = None, enable_gqa: bool = False,
                                 out: Optional[Array] = None, threads: Optional[int] = None) -> Any: ...
def attention_varlen(q: Array, k: Array, v: Array, cu_seqlens_q: Union[Sequence[int], Array],
                     cu_seqlens_kv: Union[Sequence[int], Array], *, causal: Union[None, bool, str] = None,
                     q_offsets: Optional[Ints] = None, window: Optional[Window] = None,
                     softcap: Optional[float] = None, sinks: Optional[Array] = None,
                     alibi_slopes: Optional[Array] = None, scale: Optional[float] = None,
                     dropout: Optional[float] = None, seeds: Optional[Union[int, Array]] = None,
                     return_lse: bool = False, out: Optional[Array] = None,
                     threads: Optional[int] = None) -> Any: ...
def merge(outs: List[Array], lses: List[Array], *, return_lse: bool = False,
          threads: Optional[int] = None) -> Any: ...
def info() -> Dict[str, Any]: ...
def attend_cache(q: Array, cache: Tuple[Any, ...], **options: Any) -> Any: ...
def attend_part(q: Array, k: Array, v: Array, **options: Any) -> Any: ...
def append(cache: Tuple[Any, ...], k: Array, v: Array, starts: NDArray[Any], lens: Optional[NDArray[Any]] = None,
           threads: Optional[int] = None) -> None: ...
def pack(w: Array, type: int, memory: Optional[NDArray[Any]] = None) -> int: ...
def linear(x: Array, packed: NDArray[Any], type: int, out_dim: int, in_dim: int, bias: Optional[Array] = None,
           out: Optional[Array] = None, threads: Optional[int] = None) -> Any: ...
def layer_pack(**weights: Any) -> int: ...
def layer(x: Array, packed: NDArray[Any], **options: Any) -> Any: ...
def copied_bytes() -> int: ...
