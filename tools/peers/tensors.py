# SPDX-License-Identifier: Apache-2.0
"""The tensors of attention, the float64 oracle, and the difference of an output from the oracle. The same seed gives
the same tensors in every process, so that no tensor is sent through a pipe."""

import os
import zlib
from pathlib import Path

import numpy as np

LINE = 64                # every tensor begins at a cache line, for all libraries alike
MOST_PAIRS = 1 << 26     # pairs of a query row and a key; with more pairs, the oracle computes only a sample of rows
SAMPLE = 128             # number of sampled query rows of each head
LEAST_COLD = 128 << 20   # bytes

BLOCK = 32               # elements of a row in a block of Q8_0

# The dtypes of arrays that store the types. NumPy has neither bfloat16 nor ggml's Q8_0: an array of uint16 stands for
# bfloat16, and a block of Q8_0 is a record.
STORED = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16),
          "bfloat16": np.dtype(np.uint16),
          "q8_0": np.dtype([("scale", np.float16), ("integers", np.int8, BLOCK)])}


def blocks(values):
    """Converts float32 rows to Q8_0. The element of a block with the largest magnitude becomes 127 or -127."""
    values = values.reshape(*values.shape[:-1], -1, BLOCK)
    array = np.empty(values.shape[:-1], STORED["q8_0"])
    array["scale"] = np.abs(values).max(axis=-1) / 127
    scales = array["scale"].astype(np.float32)[..., None]
    quotients = np.divide(values, scales, out=np.zeros_like(values), where=scales > 0)
    array["integers"] = np.clip(np.rint(quotients), -127, 127)
    return array


def rounded(values, type):
    """Converts float32 values to an array of the type, rounded to nearest even."""
    if type == "q8_0":
        return blocks(values)
    if type != "bfloat16":
        return values.astype(STORED[type])
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widened(array):
    """Returns the values of an array of any type. Arrays of float32 and float16 are returned unchanged."""
    if array.dtype == STORED["q8_0"]:
        values = array["integers"] * array["scale"].astype(np.float32)[..., None]
        return values.reshape(*array.shape[:-1], -1)
    if array.dtype != STORED["bfloat16"]:
        return array
    return (array.astype(np.uint32) << 16).view(np.float32)


def aligned(shape, dtype=np.float32, fill=None):
    """Makes an array that begins at a cache line."""
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
    """Returns the size in bytes of the first processor's largest cache, or 0 if Linux reports no cache."""
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]])
    return max(sizes)


def cold_copies(workload, mib=None):
    """The cold data of a workload are the data that must be in no CPU cache when a call begins (`cold_bytes` in
    workloads.py). Returns how many copies of them are needed, if each call takes the next copy. With `mib`, returns how
    many copies fill `mib` MiB."""
    if not workload.cold_bytes:
        return 1
    memory = mib << 20 if mib else max(LEAST_COLD, 4 * last_level_cache())
    return -(-memory // workload.cold_bytes)


def generator(workload):
    """Returns the generator of a workload's random numbers."""
    return np.random.default_rng(zlib.crc32(workload.name.encode()))


class Output:
    """The output `out`, which all kinds of workloads have."""

    def forget_out(self):
        """Sets all bits of out, which makes every element a NaN in every type."""
        self.out.view(np.uint8)[...] = 0xFF


def heads_within_tokens(array):
    """Copies [batch, heads, keys, dim] to memory in the order [batch, keys, heads, dim], and returns a view [batch,
    heads, keys, dim] of this memory."""
    return aligned_copy(array.swapaxes(1, 2)).swapaxes(1, 2)


class Tensors(Output):
    """q, out, and `copies` equal pairs of k and v."""

    def __init__(self, workload, copies=1):
        random = generator(workload)
        kv_type, place = workload.type, heads_within_tokens if workload.token else aligned_copy
        q, k, v = (rounded(random.standard_normal(shape, dtype=np.float32), type)
                   for shape, type in zip(workload.shapes, (workload.q_type, kv_type, kv_type)))
        self.q = aligned_copy(q)
        self.kv = [(place(k), place(v)) for _ in range(copies)]
        self.out = aligned(q.shape, q.dtype)


def sampled_rows(workload):
    """Returns the query rows that are checked: all rows, or SAMPLE evenly spread rows, with the first and the last row
    among them."""
    if workload.batch * workload.q_heads * workload.q_len * workload.kv_len <= MOST_PAIRS:
        return np.arange(workload.q_len)
    return np.linspace(0, workload.q_len - 1, SAMPLE).astype(int)


def up_to(positions, keys):
    """Returns which keys each row sees, as [rows, keys]. A row sees the keys up to its position."""
    return np.arange(keys) <= positions[:, None]


def drafts(count):
    """Returns which rows of a binary tree each row sees. A row sees itself and its ancestors."""
    sees = np.eye(count, dtype=bool)
    for row in range(1, count):
        sees[row] |= sees[(row - 1) // 2]
    return sees


def seen(workload, rows=None):
    """Returns which keys each query row sees, as [rows, keys], for the given rows or for all rows. Assumes that
    every batch entry has kv_len keys."""
    rows = np.arange(workload.q_len) if rows is None else rows
    first = workload.kv_len - workload.q_len  # the key at the position of the first row
    if workload.mask == "cells":
        return np.arange(workload.kv_len) % workload.q_len == rows[:, None]
    if workload.mask == "tree":
        return np.hstack([np.ones((len(rows), first), bool), drafts(workload.q_len)[rows]])
    if workload.causal or workload.mask == "half":
        return up_to(first + rows, workload.kv_len)
    return np.ones((len(rows), workload.kv_len), bool)


def additive(workload, dtype):
    """Returns seen() as a mask [1, 1, rows, keys] of 0 and -inf that is added to scores."""
    mask = aligned((1, 1, workload.q_len, workload.kv_len), dtype, 0)
    mask[0, 0][~seen(workload)] = -np.inf
    return mask


def head_oracle(q, k, v, sees):
    """Computes attention of some rows of a head in float64. `sees` is [rows, keys]."""
    q, k, v = (widened(a).astype(np.float64) for a in (q, k, v))
    scores = q.shape[-1] ** -0.5 * (q @ k.T)
    scores[~sees] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights @ v / weights.sum(axis=1, keepdims=True)


class Checked:
    """The common part of the oracles. `rows` has the indices of the checked rows, and `values` has these rows of the
    true output, in float64. The error of a correct output is at most `tolerance` times
    `largest`, a magnitude that each oracle defines."""

    def error(self, out):
        """Returns the largest absolute error, or infinity if there is a NaN."""
        error = np.abs(widened(out[..., self.rows, :]) - self.values).max()
        return float(error) if np.isfinite(error) else float("inf")

    def is_wrong(self, error):
        return error > self.tolerance * self.largest


class Oracle(Checked):
    """The oracle of attention. `largest` is the largest |v|."""

    def __init__(self, workload):
        tensors = Tensors(workload)
        (k, v), = tensors.kv
        self.rows, self.tolerance = sampled_rows(workload), workload.tolerance
        self.largest = float(np.abs(widened(v)).max())
        sees = seen(workload, self.rows)
        self.values = np.empty((workload.batch, workload.q_heads, len(self.rows), workload.dim))
        for b, n in enumerate(workload.kv_lens):
            for h in range(workload.q_heads):
                g = h // workload.group
                self.values[b, h] = head_oracle(tensors.q[b, h, self.rows], k[b, g, :n], v[b, g, :n],
                                                sees[:, :n])


def cpu_name():
    """Returns the processor's name. On x86, the numbers of family and model follow, because some machines hide the
    name."""
    found = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), value.strip())
    name = found.get("model name", os.uname().machine)
    if "cpu family" in found:
        name += f" (family {found['cpu family']}, model {found['model']})"
    return name
