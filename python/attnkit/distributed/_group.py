# SPDX-License-Identifier: Apache-2.0
"""A group of ranks, over any transport: messages with a time-out, and the two collectives that attention needs. All
messages go from one rank to one other rank. Every wait ends within the time-out, whatever the other ranks do."""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext
from typing import Any, ContextManager, Dict, Iterator, List, Optional

import numpy

# Pending messages of broken groups. The list keeps their memory alive, because a late message may still write to it.
_abandoned: List[Any] = []
MOST_BYTES = 1 << 30  # of a message; a longer message is sent in pieces, because MPI counts bytes in 32 bits


class PeerError(RuntimeError):
    """Another rank has ended, or has sent nothing within the time-out. The group cannot be used any more."""


class Pending:
    """A message that is on its way. The group keeps this object, which holds the message's memory, until
    wait() has returned."""

    def __init__(self, group: "Group", data: numpy.ndarray, pieces: List[Any], what: str) -> None:
        self._group, self._data, self._pieces, self._what = group, data, pieces, what

    def wait(self) -> None:
        """Returns when the message is complete. Raises PeerError after the time-out, or if the other rank is gone."""
        deadline = time.monotonic() + self._group.timeout
        for piece in self._pieces:
            try:
                piece.wait(max(deadline - time.monotonic(), 1e-3))
            except Exception as error:
                self._group.give_up(self._what, error, isinstance(error, TimeoutError) or time.monotonic() >= deadline)
        self._pieces = []
        self._group.forget(self)


class Group:
    """The ranks of a call, and the transport of their messages.

    The transport is an object with `rank`, `size`, send(to, data, tag) and receive(source, data, tag). send and receive
    start a message, whose data is an array of bytes, and return an object with wait(seconds). wait returns when the
    message is complete, and raises an exception if the message fails or takes longer than `seconds`. Messages with the
    same tag between two ranks arrive in order. If messages move only inside calls of the transport, the transport also
    has progress(), a context in which messages move by themselves.

    timeout is in seconds. A wait that takes longer ends with PeerError. The timeout has to cover the longest time in
    which another rank computes before it sends. sent_messages and sent_bytes count what this rank has sent. A message
    that is sent in pieces counts once for each piece."""

    def __init__(self, transport: Any, timeout: float = 300.0) -> None:
        if not timeout > 0:
            raise ValueError(f"timeout is {timeout}: must be more than 0 seconds")
        self.rank, self.size, self.timeout = int(transport.rank), int(transport.size), float(timeout)
        self.sent_messages = self.sent_bytes = 0
        self._transport = transport
        self._broken: Optional[str] = None
        self._open: Dict[int, Pending] = {}

    def forget(self, pending: Pending) -> None:
        """Removes a complete message from the messages on their way."""
        self._open.pop(id(pending), None)

    def _break(self, why: str) -> None:
        self._broken = self._broken or why
        _abandoned.extend(self._open.values())
        self._open.clear()

    def give_up(self, what: str, error: Exception, is_late: bool) -> None:
        """Raises PeerError. All later calls raise PeerError, too. Otherwise a message that is still on its way could be
        taken for a message of a later call."""
        why = f"nothing came or went within {self.timeout:g} s" if is_late else str(error).strip() or repr(error)
        text = f"rank {self.rank} {what}: {why}"
        self._break(text)
        raise PeerError(text) from error

    @contextmanager
    def whole_call(self) -> Iterator[None]:
        """A context for the part of a call after agree() of _agree.py. If an exception ends this part on this rank,
        other ranks may still send messages to this rank, so the group cannot be used any more."""
        try:
            yield
        except BaseException as error:
            self._break(f"rank {self.rank} ended a call by {error!r}")
            raise

    def _start(self, how: Any, other: int, data: numpy.ndarray, tag: int, what: str) -> Pending:
        if self._broken:
            raise PeerError(f"the group cannot be used after an error: {self._broken}")
        data = data.reshape(-1).view(numpy.uint8)
        pieces: List[Any] = []
        try:
            for at in range(0, data.size, MOST_BYTES):
                pieces.append(how(other, data[at:at + MOST_BYTES], tag))
        except Exception as error:
            self.give_up(what, error, False)
        pending = Pending(self, data, pieces, what)
        self._open[id(pending)] = pending
        return pending

    def send(self, to: int, data: numpy.ndarray, tag: int) -> Pending:
        pending = self._start(self._transport.send, to, data, tag, f"sends to rank {to}")
        self.sent_messages += -(-data.nbytes // MOST_BYTES)
        self.sent_bytes += data.nbytes
        return pending

    def receive(self, source: int, data: numpy.ndarray, tag: int) -> Pending:
        return self._start(self._transport.receive, source, data, tag, f"waits for rank {source}")

    def progress(self) -> ContextManager[None]:
        """Returns a context in which messages move while this rank computes."""
        move = getattr(self._transport, "progress", None)
        return move() if move else nullcontext()

    def all_gather(self, data: numpy.ndarray, tag: int) -> numpy.ndarray:
        """Returns the data of all ranks, [size, bytes]. The function takes log2(size) rounds, rounded up. In each round
        a rank passes on all data that it has or, in the last round, the data that the receiver still needs."""
        gathered = numpy.empty((self.size, data.nbytes), numpy.uint8)
        gathered[0] = data.reshape(-1).view(numpy.uint8)
        have = 1
        while have < self.size:
            count = min(have, self.size - have)
            receives = self.receive((self.rank + have) % self.size, gathered[have:have + count], tag)
            sends = self.send((self.rank - have) % self.size, gathered[:count], tag)
            receives.wait()
            sends.wait()
            have += count
        return numpy.roll(gathered, self.rank, axis=0)  # row 0 of `gathered` has this rank's data

    def broadcast(self, data: numpy.ndarray, root: int, tag: int) -> None:
        """Copies data of root to data of all ranks, along a binomial tree: log2(size) rounds, rounded up."""
        place, step = (self.rank - root) % self.size, 1
        while step < self.size and not place & step:
            step *= 2
        if place:
            self.receive((place - step + root) % self.size, data, tag).wait()
        sends = []
        while step > 1:
            step //= 2
            if place + step < self.size:
                sends.append(self.send((place + step + root) % self.size, data, tag))
        for pending in sends:
            pending.wait()
