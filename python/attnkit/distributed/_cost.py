# SPDX-License-Identifier: Apache-2.0
"""The cost model of docs/distributed.md: what a call over several ranks sends, and about how long the call takes."""

from __future__ import annotations

import time
from typing import NamedTuple, Optional, Sequence

import numpy

from ._agree import RECORD_BYTES
from ._group import MOST_BYTES, Group
from ._problem import blocks_of

LINK_TAG = 5


class Link(NamedTuple):
    """The connection of two ranks: the seconds of a message without content, and the bandwidth in bytes a second."""
    latency: float
    bandwidth: float

    def seconds(self, size: float) -> float:
        return self.latency + size / self.bandwidth


class Cost(NamedTuple):
    """blocks is the number of blocks of rows. hop_bytes is the size of the state of the largest block or, for
    tree_attention, the size of a rank's result with its lse. With a single rank, hop_bytes is 0. messages and bytes are
    what all ranks together send. If hop_bytes is more than 2^30, messages can be too high, because each block is
    counted with as many pieces as the largest block. seconds is the time of the call. fill is the part of this time in
    which the last rank waits for its first block."""
    blocks: int
    hop_bytes: int
    messages: int
    bytes: int
    fill: float
    seconds: float


def _there_and_back(group: Group, data: numpy.ndarray) -> float:
    """Returns the seconds of a message from rank 0 to rank 1 and back. Only the result on rank 0 counts."""
    began = time.perf_counter()
    if group.rank == 0:
        group.send(1, data, LINK_TAG).wait()
        group.receive(1, data, LINK_TAG).wait()
    elif group.rank == 1:
        group.receive(0, data, LINK_TAG).wait()
        group.send(0, data, LINK_TAG).wait()
    return time.perf_counter() - began


def measure_link(group: Group, size: int = 1 << 20, repeats: int = 21) -> Link:
    """Returns the link between rank 0 and rank 1, from the shortest times of messages of 8 bytes and of `size` bytes.
    All ranks of the group call this function, and all get the same numbers. A group of one rank has a link without
    cost."""
    if group.size == 1:
        return Link(0.0, float("inf"))
    short, long = (min(_there_and_back(group, numpy.zeros(length, numpy.uint8)) for _ in range(repeats)) / 2
                   for length in (8, size))
    link = numpy.array([short, size / max(long - short, 1e-9)])
    group.broadcast(link, 0, LINK_TAG)
    return Link(float(link[0]), float(link[1]))


def _rounds(ranks: int) -> int:
    return (ranks - 1).bit_length()


def _count(shape: Sequence[int]) -> int:
    """Returns the number of rows of q in all heads and batch entries."""
    rows = 1
    for n in shape[:-1]:
        rows *= int(n)
    return rows


def _gather_seconds(ranks: int, size: int, link: Link) -> float:
    return _rounds(ranks) * link.latency + (ranks - 1) * size / link.bandwidth


def chain_cost(q_shape: Sequence[int], value_dim: int, ranks: int, *, compute: float, link: Link, itemsize: int = 4,
               return_lse: bool = False, everywhere: bool = True, block_rows: Optional[int] = None) -> Cost:
    """Returns the cost of chain_attention. compute is the seconds of the same call in one process. itemsize is the
    bytes of an element of q. The model assumes that all ranks have equal work, and that each rank has a processor of
    its own."""
    blocks, rows = blocks_of(q_shape, ranks, block_rows), _count(q_shape)
    row_bytes, heads = 8 * value_dim + 12, int(q_shape[-3]) if len(q_shape) > 2 else 1
    other = 1 if len(q_shape) == 4 else rows // max(1, heads * int(q_shape[-2]))
    largest = max((heads * other * (b.entries.stop - b.entries.start) * (b.rows.stop - b.rows.start) for b in blocks),
                  default=0)
    hop_bytes = largest * row_bytes
    result = -(-rows * value_dim * itemsize // 4) * 4 + (4 * rows if return_lse else 0)
    messages, sent = ranks * _rounds(ranks), ranks * (ranks - 1) * RECORD_BYTES
    messages += (ranks - 1) * len(blocks) * -(-hop_bytes // MOST_BYTES)
    sent += (ranks - 1) * rows * row_bytes
    seconds = _gather_seconds(ranks, RECORD_BYTES, link)
    stage, hop = compute / (ranks * max(1, len(blocks))), link.seconds(hop_bytes)
    fill = (ranks - 1) * (stage + hop)
    seconds += fill + stage + (len(blocks) - 1) * (max(stage, hop) if ranks > 1 else stage)
    if everywhere:
        messages += (ranks - 1) * -(-result // MOST_BYTES)
        sent += (ranks - 1) * result
        seconds += _rounds(ranks) * link.seconds(result)
    return Cost(len(blocks), hop_bytes if ranks > 1 else 0, messages, sent, fill, seconds)


def tree_cost(q_shape: Sequence[int], value_dim: int, ranks: int, *, compute: float, link: Link) -> Cost:
    """Returns the cost of tree_attention. The arguments mean the same as in chain_cost."""
    part = 4 * _count(q_shape) * (value_dim + 1)
    seconds = _gather_seconds(ranks, RECORD_BYTES, link) + compute / ranks + _gather_seconds(ranks, part, link)
    rounds, have = 0, 1
    while have < ranks:
        count = min(have, ranks - have)
        rounds += -(-count * part // MOST_BYTES)
        have += count
    return Cost(1, part if ranks > 1 else 0, ranks * (_rounds(ranks) + rounds),
                ranks * (ranks - 1) * (RECORD_BYTES + part), 0.0, seconds)
