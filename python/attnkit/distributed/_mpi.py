# SPDX-License-Identifier: Apache-2.0
"""Messages over MPI, by mpi4py. A wait asks MPI again and again whether the message is complete, because MPI's own
wait has no time-out. MPI moves long messages only inside its own calls. So a thread calls MPI while a rank computes, if
MPI allows several threads."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import Any, Iterator

import numpy

from ._group import Group

EAGER_SECONDS = 200e-6  # how long a wait tests without a pause: on a fast network most messages are complete by then
PAUSE_SECONDS = 20e-6  # pause between two tests afterwards, so that another rank on this core can compute
PROGRESS_SECONDS = 100e-6  # pause between two tests while this rank computes


class _Message:
    def __init__(self, request: Any) -> None:
        self._request = request

    def wait(self, seconds: float) -> None:
        began = time.monotonic()
        while not self._request.Test():
            waited = time.monotonic() - began
            if waited > seconds:
                raise TimeoutError("the time-out is over")
            if waited > EAGER_SECONDS:
                time.sleep(PAUSE_SECONDS)


class _MPITransport:
    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        self._byte, self._may_thread = MPI.BYTE, MPI.Query_thread() == MPI.THREAD_MULTIPLE
        self._comm = (MPI.COMM_WORLD if comm is None else comm).Dup()  # keeps messages apart from the caller's messages
        self._comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()

    def send(self, to: int, data: numpy.ndarray, tag: int) -> _Message:
        return _Message(self._comm.Isend([data, self._byte], to, tag))

    def receive(self, source: int, data: numpy.ndarray, tag: int) -> _Message:
        return _Message(self._comm.Irecv([data, self._byte], source, tag))

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Moves messages while the caller computes, if MPI allows several threads. Otherwise messages wait for the next
        call of MPI, which makes a chain slower. mpi4py asks MPI to allow several threads."""
        if not self._may_thread:
            yield
            return
        over = threading.Event()

        def ask() -> None:
            while not over.wait(PROGRESS_SECONDS):
                self._comm.Iprobe()

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def mpi_group(comm: Any = None, timeout: float = 300.0) -> Group:
    """Returns the group of an intracommunicator of mpi4py; None is COMM_WORLD. All ranks of comm must call this
    function, which duplicates comm. timeout, in seconds, is the longest wait for a message. By default MPI ends the
    whole job when a rank dies. A rank gets a PeerError about a dead rank only if MPI is told to keep the job alive."""
    return Group(_MPITransport(comm), timeout)
