# SPDX-License-Identifier: Apache-2.0
"""Attention along a chain of ranks. Each rank adds its keys to the softmax state of a block of rows and passes the
state to the next rank, while the previous rank works on the next block. All sums have the order that they have in one
process."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, ContextManager, List, NamedTuple, Optional, Tuple

import numpy

from ._group import Group, Pending
from ._problem import Block, Problem, blocks_of

STATE_TAG, RESULT_TAG = 2, 3


class _Buffer(NamedTuple):
    """The state of a block in one piece of memory, which is one message. out comes first in memory, and max, whose
    elements are narrower, comes last, so that all three arrays are aligned. In `arrays` the order is max, sum, out."""
    bytes: numpy.ndarray
    arrays: Tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]


def _buffer(rows: Tuple[int, ...], value_dim: int) -> _Buffer:
    count = int(numpy.prod(rows))
    memory = numpy.empty(count * (8 * value_dim + 12), numpy.uint8)
    out, total, top = numpy.split(memory, [count * 8 * value_dim, count * (8 * value_dim + 8)])
    return _Buffer(memory, (top.view(numpy.float32).reshape(rows), total.view(numpy.float64).reshape(rows),
                            out.view(numpy.float64).reshape(*rows, value_dim)))


class _Chain:
    """The work of one rank on all blocks. The rank has two buffers for states that come and two for states that go, so
    that a message can be on its way while the rank computes."""

    def __init__(self, problem: Problem, blocks: List[Block]) -> None:
        self.problem, self.group, self.blocks = problem, problem.group, blocks
        self.is_last = self.group.rank == self.group.size - 1
        self.coming: List[Optional[_Buffer]] = [None, None]
        self.going: List[Optional[_Buffer]] = [None, None]
        self.sends: List[Optional[Pending]] = [None, None]

    def _rows(self, block: Block) -> Tuple[int, ...]:
        rows = (*self.problem.rows[:-1], block.rows.stop - block.rows.start)
        return (block.entries.stop - block.entries.start, *rows[1:]) if self.problem.cuts_batch else rows

    def _room(self, buffers: List[Optional[_Buffer]], i: int) -> _Buffer:
        """Returns a buffer for the state of block i. Blocks may differ in size."""
        rows, buffer = self._rows(self.blocks[i]), buffers[i % 2]
        if buffer is None or buffer.arrays[0].shape != rows:
            buffer = _buffer(rows, self.problem.value_dim)
            buffers[i % 2] = buffer
        return buffer

    def _await(self, i: int) -> Optional[Pending]:
        """Begins to receive the state of block i, if there is such a block and a previous rank."""
        if self.group.rank == 0 or i == len(self.blocks):
            return None
        return self.group.receive(self.group.rank - 1, self._room(self.coming, i).bytes, STATE_TAG)

    def _moving(self, arriving: Optional[Pending]) -> ContextManager[None]:
        return self.group.progress() if arriving or any(self.sends) else nullcontext()

    def _pass_on(self, i: int, before: Any, arriving: Optional[Pending]) -> None:
        """Adds this rank's keys to the state of block i, and begins to send the new state."""
        if self.sends[i % 2]:
            self.sends[i % 2].wait()  # the buffer still holds the state of block i - 2
        buffer = self._room(self.going, i)
        with self._moving(arriving):
            self.problem.attend(self.blocks[i], state_in=before, state_out=buffer.arrays)
        self.sends[i % 2] = self.group.send(self.group.rank + 1, buffer.bytes, STATE_TAG)

    def _finish(self, i: int, before: Any, out: Any, lse: Optional[numpy.ndarray]) -> None:
        block = self.blocks[i]
        at = (..., block.rows) if not self.problem.cuts_batch else (block.entries, slice(None), block.rows)
        place = out[(*at, slice(None))]
        result = self.problem.attend(block, state_in=before, out=place, sinks=self.problem.options.get("sinks"),
                                     return_lse=lse is not None)
        if lse is not None:
            lse[at] = result[1]

    def run(self, out: Any, lse: Optional[numpy.ndarray]) -> None:
        arriving = self._await(0)
        for i in range(len(self.blocks)):
            before = None
            if arriving:
                arriving.wait()
                before = self.coming[i % 2].arrays
            arriving = self._await(i + 1)
            if self.is_last:
                with self._moving(arriving):
                    self._finish(i, before, out, lse)
            else:
                self._pass_on(i, before, arriving)
        for pending in self.sends:
            if pending:
                pending.wait()


def chain_attention(q: Any, k: Any, v: Any, group: Group, *, return_lse: bool = False, everywhere: bool = True,
                    block_rows: Optional[int] = None, **options: Any) -> Any:
    """Attention over the keys of all ranks, with the bits of attention() in one process over all keys.

    All ranks make the call at the same time, with the same q and options. k and v hold the rank's own keys: rank 0 has
    the first keys. Every rank has a multiple of 512 keys, except the last rank that has keys.

    The options of attention() apply to the keys of all ranks: causal, q_offsets, kv_lens, window, softcap, sinks,
    alibi_slopes, scale, dropout, seeds, bf16_products and short_weights. mask and bias have a column for each key of
    the rank. threads may differ from rank to rank.

    everywhere     whether all ranks get the result; else the last rank gets the result, and the other ranks get None
    return_lse     whether to return the log-sum-exp, too, float32 [..., q_heads, q_len], as attention() does
    block_rows     rows of a block, whose states are passed along together; by default q_len / (8 * ranks), rounded up,
                   but at least 64, and with a single rank all rows

    Returns the result [..., q_heads, q_len, value_dim] in the type of q, or with return_lse a tuple of the result and
    the log-sum-exp.

    Raises what attention() raises if this rank's arguments are bad, and ValueError if another rank's arguments are bad
    or if the ranks disagree. Raises PeerError if another rank has ended, or sends nothing within the time-out of the
    group. After a PeerError the group cannot be used any more."""
    more = {"return_lse": bool(return_lse), "everywhere": bool(everywhere), "block_rows": block_rows}
    problem = Problem("chain_attention", group, (q, k, v), options, more)
    with group.whole_call():
        return _result(problem, _room_for(problem) if everywhere or group.rank == group.size - 1 else None)


def _room_for(problem: Problem) -> Tuple[numpy.ndarray, ...]:
    """Returns the memory of one message, and the arrays in this memory: the result and, if wanted, lse."""
    count = int(numpy.prod(problem.rows))
    out_bytes = count * problem.value_dim * problem.result_type.itemsize
    lse_at = -(-out_bytes // 4) * 4
    memory = numpy.empty(lse_at + (4 * count if problem.more["return_lse"] else 0), numpy.uint8)
    out = memory[:out_bytes].view(problem.result_type).reshape(*problem.rows, problem.value_dim)
    if not problem.more["return_lse"]:
        return memory, out
    return memory, out, memory[lse_at:].view(numpy.float32).reshape(problem.rows)


def _result(problem: Problem, room: Optional[Tuple[numpy.ndarray, ...]]) -> Any:
    group = problem.group
    out = room[1] if room else None
    lse = room[2] if room and len(room) > 2 else None
    blocks = blocks_of(problem.q.shape, group.size, problem.more["block_rows"])
    _Chain(problem, blocks).run(out, lse)
    if room and problem.more["everywhere"]:
        group.broadcast(room[0], group.size - 1, RESULT_TAG)
    return (out, lse) if lse is not None else out
