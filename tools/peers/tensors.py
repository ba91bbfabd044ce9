# SPDX-License-Identifier: Apache-2.0
"""The tensors of attention, the float64 oracle and the error of an output against it. The same
seed gives the same tensors in every process, so that none of them travels through a pipe.
"""

import os
import zlib
from pathlib import Path

import numpy as np

LINE = 64                # every tensor begins at a cache line, for all candidates alike
MOST_PAIRS = 1 << 26     # of a query row and a key: beyond that the oracle takes a sample of rows
SAMPLE = 128             # query rows of each head
LEAST_COLD = 128 << 20   # bytes
WRONG = 1e-3             # relative to the largest element

# How arrays store the types. NumPy has no bfloat16: an array of uint16 is one of them.
STORED = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16),
          "bfloat16": np.dtype(np.uint16)}


def rounded(values, type):
    """float32 values as an array of the type, to nearest even."""
    if type != "bfloat16":
        return values.astype(STORED[type])
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widened(array):
    """The values of an array of any of the types."""
    if array.dtype != STORED["bfloat16"]:
        return array
    return (array.astype(np.uint32) << 16).view(np.float32)


def aligned(shape, dtype=np.float32, fill=None):
    """An array at a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + LINE, dtype=np.uint8)
    start = -memory.ctypes.data % LINE
    array = memory[start:start + size].view(dtype).reshape(shape)
    if fill is not None:
        array[...] = fill
    return array


def aligned_copy(array):
    return aligned(array.shape, array.dtype, array)


def last_level_cache():
    """Bytes of the largest cache that the kernel tells of; 0 where it tells of none."""
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]])
    return max(sizes)


def cold_copies(workload, mib=None):
    """Of what is in no cache before a call, so that none finds there what the one before has read; in
    so much memory, if that is given."""
    if not workload.cold_bytes:
        return 1
    memory = mib << 20 if mib else max(LEAST_COLD, 4 * last_level_cache())
    return -(-memory // workload.cold_bytes)


def generator(workload):
    """Of its random numbers."""
    return np.random.default_rng(zlib.crc32(workload.name.encode()))


class Output:
    """Of all kinds of workloads: out."""

    def forget_out(self):
        """All bits set are a NaN in every type."""
        self.out.view(np.uint8)[...] = 0xFF


class Tensors(Output):
    """q, out, and pairs of k and v: several equal ones for decode."""

    def __init__(self, workload, copies=1):
        random = generator(workload)
        q, k, v = (rounded(random.standard_normal(shape, dtype=np.float32), workload.type)
                   for shape in workload.shapes)
        self.q = aligned_copy(q)
        self.kv = [(aligned_copy(k), aligned_copy(v))
                   for _ in range(copies)]
        self.out = aligned(q.shape, q.dtype)


def sampled_rows(workload):
    """The query rows that are checked: all, or as many evenly spread ones, first and last included."""
    if workload.batch * workload.q_heads * workload.q_len * workload.kv_len <= MOST_PAIRS:
        return np.arange(workload.q_len)
    return np.linspace(0, workload.q_len - 1, SAMPLE).astype(int)


def head_oracle(q, k, v, positions):
    """Attention of some rows of a head in float64; a row sees the keys up to its position."""
    q, k, v = (widened(a).astype(np.float64) for a in (q, k, v))
    scores = q.shape[-1] ** -0.5 * (q @ k.T)
    scores[np.arange(len(k)) > positions[:, None]] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights @ v / weights.sum(axis=1, keepdims=True)


class Checked:
    """What an output is held against: `values` of the rows that are checked, in float64, and the
    largest element that errors are relative to."""

    def error(self, out):
        """The largest absolute error; infinite where a NaN is."""
        error = np.abs(widened(out[..., self.rows, :]) - self.values).max()
        return float(error) if np.isfinite(error) else float("inf")

    def is_wrong(self, error):
        return error > WRONG * self.largest


class Oracle(Checked):
    """Of attention; errors are relative to the largest |v|."""

    def __init__(self, workload):
        tensors = Tensors(workload)
        (k, v), = tensors.kv
        self.rows = sampled_rows(workload)
        self.largest = float(np.abs(widened(v)).max())
        positions = self.rows if workload.causal else np.full(len(self.rows), workload.kv_len)
        self.values = np.empty((workload.batch, workload.q_heads, len(self.rows), workload.dim))
        for b, n in enumerate(workload.kv_lens):
            for h in range(workload.q_heads):
                g = h // workload.group
                self.values[b, h] = head_oracle(tensors.q[b, h, self.rows], k[b, g, :n], v[b, g, :n],
                                                positions)


def cpu_name():
    """The processor's name, with family and model, for some machines hide it."""
    found = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), value.strip())
    name = found.get("model name", os.uname().machine)
    if "cpu family" in found:
        name += f" (family {found['cpu family']}, model {found['model']})"
    return name
