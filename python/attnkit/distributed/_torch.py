# SPDX-License-Identifier: Apache-2.0
"""Messages over torch.distributed, by its backend gloo, which is for CPUs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy

from ._group import Group

FIRST_TAG = 0x61746E00  # no other user of the process group is likely to have tags from here on


class _Message:
    def __init__(self, work: Any) -> None:
        self._work = work

    def wait(self, seconds: float) -> None:
        try:
            self._work.wait(timedelta(seconds=seconds))
        except RuntimeError as error:  # gloo's only type of error
            if "Timed out" in str(error):
                raise TimeoutError(str(error)) from error
            if "closed" in str(error) or "reset" in str(error):
                raise ConnectionError("the other rank's process has closed the connection, or has ended") from error
            raise


class _TorchTransport:
    def __init__(self, process_group: Any) -> None:
        import torch
        from torch import distributed

        if not distributed.is_initialized():
            raise ValueError("torch.distributed is not initialised: call init_process_group('gloo', ...) first")
        if process_group is distributed.GroupMember.NON_GROUP_MEMBER:
            raise ValueError("this process is not in the process group")
        backend = distributed.get_backend(process_group)
        if "gloo" not in str(backend):
            raise NotImplementedError(f"the backend of the process group is {backend}: must be gloo")
        self._torch, self._distributed, self._group = torch, distributed, process_group
        self.rank = distributed.get_rank(process_group)
        self.size = distributed.get_world_size(process_group)

    def _start(self, how: Any, other: int, data: numpy.ndarray, tag: int) -> _Message:
        if self._group is not None:
            other = self._distributed.get_global_rank(self._group, other)
        return _Message(how(self._torch.from_numpy(data), other, group=self._group, tag=FIRST_TAG + tag))

    def send(self, to: int, data: numpy.ndarray, tag: int) -> _Message:
        return self._start(self._distributed.isend, to, data, tag)

    def receive(self, source: int, data: numpy.ndarray, tag: int) -> _Message:
        return self._start(self._distributed.irecv, source, data, tag)


def torch_group(process_group: Any = None, timeout: float = 300.0) -> Group:
    """Returns the group of a process group of torch.distributed, whose backend must be gloo. None is the default
    process group. timeout, in seconds, is the longest wait for a message. Raises ValueError if torch.distributed is not
    initialised or this process is not in the group, NotImplementedError for another backend."""
    return Group(_TorchTransport(process_group), timeout)
