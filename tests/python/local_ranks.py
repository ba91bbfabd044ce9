# SPDX-License-Identifier: Apache-2.0
"""Ranks that are threads of one process, and send their messages over queues. With these ranks, whole calls of
attnkit.distributed can be tested without MPI and without torch. A rank can be silent, as if its process had ended."""

import queue
import threading

from attnkit.distributed import Group


class Message:
    def __init__(self, source=None, data=None):
        self.source, self.data = source, data

    def wait(self, seconds):
        if self.source is not None:
            sent = self.source.get(timeout=seconds)
            if len(sent) != self.data.nbytes:
                raise ValueError(f"{len(sent)} bytes came, {self.data.nbytes} were expected")
            self.data[:] = memoryview(sent)


class Transport:
    def __init__(self, rank, size, queues):
        self.rank, self.size, self.queues = rank, size, queues

    def _queue(self, source, to, tag):
        return self.queues.setdefault((source, to, tag), queue.Queue())

    def send(self, to, data, tag):
        self._queue(self.rank, to, tag).put(data.tobytes())
        return Message()

    def receive(self, source, data, tag):
        return Message(self._queue(source, self.rank, tag), data)


def run_ranks(size, work, timeout=60.0, silent=()):
    """Calls work(group) on each rank. Returns a list of the results. If work() raised an exception on a rank, the
    exception is the result of the rank. The ranks in `silent` do nothing, and their result is None."""
    queues, results = {}, [None] * size
    groups = [Group(Transport(rank, size, queues), timeout) for rank in range(size)]

    def begin(rank):
        try:
            results[rank] = work(groups[rank])
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=begin, args=(rank,)) for rank in range(size) if rank not in silent]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
