# SPDX-License-Identifier: Apache-2.0
"""Before a rank reads its keys, the rank sends a record of its call to all ranks: shapes, types, options, and the
number of its keys. If records differ in anything but the number of keys, every rank raises an error. If a rank has
refused its arguments, every rank raises an error, too. After such an error the group can be used again."""

from __future__ import annotations

import json
import zlib
from typing import Any, Dict, List, Optional

import numpy

from ._group import Group

RECORD_BYTES = 2048
HEADER = numpy.dtype([("keys", "<i8"), ("is_error", "<i4"), ("length", "<i4")])
TAG = 1


def array_of(x: Any) -> numpy.ndarray:
    """Returns an array of NumPy, without a copy if x is an array in the memory of the CPU. The elements of torch's
    bfloat16, which NumPy does not know, become integers of 16 bits with the same bits."""
    if hasattr(x, "element_size") and type_name(x) == "bfloat16":
        import torch  # can be imported, because x is a tensor of torch

        x = x.view(torch.int16)
    return numpy.asarray(x)


def type_name(x: Any) -> str:
    return str(x.dtype).split(".")[-1]


def kind(x: Any, dims: slice = slice(None)) -> str:
    """Returns a text with the type of x, and with the shape of x in the given dimensions."""
    return f"{type_name(x)} {list(map(int, x.shape[dims]))}"


def checksum(x: Any) -> str:
    """Returns a checksum of the numbers of an array, whatever its strides."""
    bytes_of = numpy.ascontiguousarray(array_of(x)).reshape(-1).view(numpy.uint8)
    return f"{zlib.crc32(bytes_of):08x}"


def _record(facts: Dict[str, str], keys: int, error: Optional[BaseException]) -> numpy.ndarray:
    text = f"{type(error).__name__}: {error}" if error else json.dumps(facts)
    data, room = text.encode(), RECORD_BYTES - HEADER.itemsize
    is_error = error is not None or len(data) > room
    if not error and is_error:
        data = b"ValueError: the options are too long to be compared"
    record = numpy.zeros(RECORD_BYTES, numpy.uint8)
    record[:HEADER.itemsize].view(HEADER)[0] = (keys, is_error, min(len(data), room))
    record[HEADER.itemsize:HEADER.itemsize + len(data)] = numpy.frombuffer(data, numpy.uint8)[:room]
    return record


def _text(record: numpy.ndarray) -> str:
    length = record[:HEADER.itemsize].view(HEADER)["length"][0]
    return record[HEADER.itemsize:HEADER.itemsize + length].tobytes().decode(errors="replace")


def _difference(first: Dict[str, str], other: Dict[str, str], rank: int) -> str:
    """Describes the first fact in which rank 0 and another rank differ."""
    for name in [*first, *other]:
        left, right = first.get(name, "none"), other.get(name, "none")
        if left != right:
            return f"the ranks disagree on {name}: {left} on rank 0, {right} on rank {rank}"
    raise AssertionError("records that differ have the same facts")


def agree(group: Group, facts: Dict[str, str], keys: int, error: Optional[BaseException]) -> List[int]:
    """Returns the number of keys of each rank. Raises this rank's own error if there is one. Otherwise raises
    ValueError if another rank has an error or if facts differ. If one rank raises such an error, every rank raises an
    error."""
    records = group.all_gather(_record(facts, keys, error), TAG)
    if error:
        raise error
    headers = records[:, :HEADER.itemsize].copy().view(HEADER)[:, 0]
    for rank in numpy.flatnonzero(headers["is_error"]):
        raise ValueError(f"rank {rank} refuses the call: {_text(records[rank])}")
    texts = records[:, HEADER.itemsize:]
    for rank in range(1, group.size):
        if not numpy.array_equal(texts[0], texts[rank]):
            raise ValueError(_difference(json.loads(_text(records[0])), json.loads(_text(records[rank])), rank))
    return [int(count) for count in headers["keys"]]
