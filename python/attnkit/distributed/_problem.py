# SPDX-License-Identifier: Apache-2.0
"""The arguments of a call over several ranks: what each rank checks and compares, the positions of the rows among the
keys of all ranks, and the arguments of the call over one rank's keys and some of the rows."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional

import numpy

from .. import _core
from .._state import CHUNK_KEYS
from ._agree import agree, array_of, checksum, kind, type_name
from ._group import Group

OPTIONS = ("mask", "bias", "causal", "q_offsets", "kv_lens", "window", "softcap", "sinks", "alibi_slopes", "scale",
           "dropout", "seeds", "bf16_products", "short_weights", "threads")
PER_KEY = ("mask", "bias")  # a rank gives the columns of its own keys
PER_ENTRY = ("q_offsets", "kv_lens", "seeds")  # one number, or one for each batch entry
SAME = ("window", "softcap", "alibi_slopes", "scale", "dropout", "bf16_products",
        "short_weights")  # these options are passed on unchanged


def _fact(value: Any) -> str:
    """Describes an option that is not an array. Equal numbers of different types have the same description."""
    if isinstance(value, (bool, str)):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return f"({', '.join('None' if n is None else str(int(n)) for n in value)})"
    return repr(float(value))


class Block(NamedTuple):
    """Some batch entries and some rows, whose states go from rank to rank together."""
    entries: slice
    rows: slice


class Problem:
    """The call of one rank. The constructor checks all that a rank can check by itself, then compares the calls of all
    ranks. The constructor raises an error on every rank or on no rank."""

    def __init__(self, name: str, group: Group, arrays: Any, options: Dict[str, Any], more: Dict[str, Any]) -> None:
        self.group, self.options = group, {key: value for key, value in options.items() if value is not None}
        self.q, self.k, self.v = arrays
        self.more = more
        facts: Dict[str, str] = {}
        keys, error = 0, None
        try:
            self._check()
            keys = int(self.k.shape[-2])
            facts = {"the function": name, "the version of attnkit": _core.__version__, **self._facts()}
        except Exception as raised:
            error = raised
        self.keys = agree(group, facts, keys, error)
        self.first = -(-sum(self.keys[:group.rank]) // CHUNK_KEYS) * CHUNK_KEYS
        self._check_keys()
        self._place_rows()

    @property
    def rows(self) -> tuple:
        """The shape of the rows: [..., heads, q_len]."""
        return tuple(int(n) for n in self.q.shape[:-1])

    @property
    def batch(self) -> int:
        return int(numpy.prod(self.q.shape[:-3], dtype=numpy.int64))

    @property
    def value_dim(self) -> int:
        return int(self.v.shape[-1])

    @property
    def result_type(self) -> numpy.dtype:
        if type_name(self.q) == "bfloat16":
            import ml_dtypes

            return numpy.dtype(ml_dtypes.bfloat16)
        return numpy.dtype(type_name(self.q))

    def _check(self) -> None:
        """Refuses what attention() would refuse, by a call with this rank's keys and no rows."""
        for name in self.options:
            if name not in OPTIONS:
                raise TypeError(f"{name} is not an option of attention over several ranks: the options are "
                                f"{', '.join(OPTIONS)}")
        rows = self.more.get("block_rows")
        if rows is not None and (not isinstance(rows, int) or rows < 1):
            raise ValueError(f"block_rows is {rows}: must be an integer, at least 1")
        for name, x in [*zip("qkv", (self.q, self.k, self.v)), *self._masks()]:
            if not hasattr(x, "shape"):
                raise TypeError(f"{name} is {type(x).__name__}: must be an array")
            if len(x.shape) < 2 and name in "qkv":
                raise ValueError(f"{name} has the shape {tuple(x.shape)}: must have at least 2 dimensions")
        for name, x in self._masks():
            if len(x.shape) > 1 and x.shape[-2] not in (1, self.rows[-1]):
                raise ValueError(f"{name} has {x.shape[-2]} rows: must have 1 or {self.rows[-1]}")
        self._read_numbers()
        none = slice(0, 0)
        result = numpy.empty((*self.rows[:-1], 0, self.value_dim), self.result_type)
        options = {name: value for name, value in self.options.items() if name not in PER_KEY and name != "kv_lens"}
        _core.attend_part(self.q[..., none, :], self.k, self.v, out=result, **self._columns(None, none), **options)

    def _masks(self) -> List[Any]:
        return [(name, self.options[name]) for name in PER_KEY if name in self.options]

    def _read_numbers(self) -> None:
        for name in PER_ENTRY:
            if name in self.options:
                numbers = array_of(self.options[name])
                if numbers.dtype.kind not in "iu" or numbers.ndim > 1:
                    raise TypeError(f"{name} must be an integer, or an array of one integer for each batch entry")
                if numbers.ndim == 1 and numbers.size != self.batch:
                    raise ValueError(f"{name} has {numbers.size} elements: must have one for each batch entry "
                                     f"({self.batch})")
                self.options[name] = numbers if numbers.ndim else int(numbers)

    def _facts(self) -> Dict[str, str]:
        """Returns what must be the same on all ranks. The number of keys of k, v, mask and bias may differ."""
        facts = {"q": kind(self.q), "the numbers of q": checksum(self.q)}
        for name, x in ("k", self.k), ("v", self.v):
            facts[name] = f"{kind(x, slice(0, -2))} x {int(x.shape[-1])}"
        for name, value in sorted(self.options.items()):
            if name in PER_KEY:
                facts[name] = kind(value, slice(0, -1))
            elif name in (*PER_ENTRY, "sinks", "alibi_slopes"):
                facts[name] = f"{kind(array_of(value))} {checksum(value)}"
            elif name != "threads":
                facts[name] = _fact(value)
        return {**facts, **{name: repr(value) for name, value in self.more.items()}}

    def _check_keys(self) -> None:
        """Checks the numbers of keys. All ranks know the numbers of all ranks, so all raise the same error."""
        total, seen = sum(self.keys), 0
        for rank, count in enumerate(self.keys):
            if count and seen % CHUNK_KEYS:
                raise ValueError(f"the ranks before rank {rank} hold {seen} keys: must be a multiple of {CHUNK_KEYS}, "
                                 f"because rank {rank} has more keys")
            seen += count
        for index, length in enumerate(numpy.atleast_1d(self.options.get("kv_lens", 0))):
            if not 0 <= length <= total:
                raise ValueError(f"kv_lens[{index}] is {length}: must be between 0 and the keys of all ranks ({total})")

    def _place_rows(self) -> None:
        """Sets _start to the position of row 0 of each batch entry, or to None if causal and q_offsets give no
        position."""
        causal, self._start = self.options.get("causal"), self.options.get("q_offsets")
        if causal == "upper-left":
            self._start = numpy.int64(0)
        elif causal == "bottom-right":
            self._start = numpy.asarray(self.options.get("kv_lens", sum(self.keys)), numpy.int64) - self.rows[-1]
        self._is_causal = causal is not None and causal is not False

    def _columns(self, entries: Optional[slice], rows: slice) -> Dict[str, Any]:
        """Returns mask and bias of some batch entries and some rows. None as entries means all batch entries."""
        parts = {}
        for name, x in self._masks():
            if len(x.shape) > 1 and (x.shape[-2] != 1 or rows.start == rows.stop):
                x = x[..., rows, :]
            if entries is not None and len(x.shape) == 4 and x.shape[0] != 1:
                x = x[entries]
            parts[name] = x
        return parts

    def _numbers(self, block: Block) -> Dict[str, Any]:
        """Returns the options with a number for each batch entry, and causal. The lengths count only this rank's keys.
        The positions count the keys of all ranks."""
        def of(x: Any) -> Any:
            return x[block.entries] if numpy.ndim(x) and self.cuts_batch else x

        numbers: Dict[str, Any] = {}
        if "kv_lens" in self.options:
            lens = numpy.asarray(of(self.options["kv_lens"]), numpy.int64) - self.first
            lens = numpy.clip(lens, 0, int(self.k.shape[-2]))
            numbers["kv_lens"] = numpy.ascontiguousarray(lens) if lens.ndim else int(lens)
        if self._start is not None:
            starts = numpy.asarray(of(self._start), numpy.int64) + block.rows.start
            numbers["q_offsets"] = numpy.ascontiguousarray(starts) if starts.ndim else int(starts)
            numbers["causal"] = True if self._is_causal else None
        if "seeds" in self.options:
            numbers["seeds"] = of(self.options["seeds"])
        return numbers

    @property
    def cuts_batch(self) -> bool:
        """Whether a block may have only some of the batch entries."""
        return len(self.q.shape) == 4

    def attend(self, block: Block, **more: Any) -> Any:
        """Attention of the block over this rank's keys. `more` has the states, sinks, outputs and return_lse."""
        q, k, v = self.q, self.k, self.v
        if self.cuts_batch:
            q, k, v = q[block.entries], k[block.entries], v[block.entries]
        options = {name: self.options[name] for name in (*SAME, "threads") if name in self.options}
        return _core.attend_part(q[..., block.rows, :], k, v, first_key=self.first, **options,
                                 **self._columns(block.entries if self.cuts_batch else None, block.rows),
                                 **self._numbers(block), **more)

    def whole(self) -> Block:
        return Block(slice(0, int(self.q.shape[0])), slice(0, self.rows[-1]))


def blocks_of(shape: Any, ranks: int, block_rows: Optional[int]) -> List[Block]:
    """Cuts the rows of q into blocks of block_rows rows. The wanted number of blocks is 8 for each rank, or one if
    there is one rank. By default block_rows is q_len / wanted, rounded up, but at least 64. The batch is cut, too, if
    the rows alone give at most half of the wanted number. The last block of the rows, or of the batch, may be smaller.
    All ranks get the same blocks."""
    q_len, batch = int(shape[-2]), int(shape[0]) if len(shape) == 4 else 1
    if 0 in shape[:-1]:
        return []
    wanted = 8 * ranks if ranks > 1 else 1
    rows = block_rows or max(64, -(-q_len // wanted))
    of_rows = -(-q_len // rows)
    entries = -(-batch // max(1, min(batch, wanted // of_rows)))
    return [Block(slice(entry, min(entry + entries, batch)), slice(row, min(row + rows, q_len)))
            for entry in range(0, batch, entries) for row in range(0, q_len, rows)]
