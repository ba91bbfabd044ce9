# SPDX-License-Identifier: Apache-2.0
"""Measures calls of attnkit.distributed on 1, 2 and 4 ranks of this machine, over gloo and MPI, and computes the times
of the same calls by the cost model. Prints the table of docs/distributed.md.

    measure.py [gloo|mpi]

Without an argument this program starts the ranks. With an argument it runs as one rank. Between two calls of all ranks,
rank 0 alone calls attention() over all keys, so that the time of all ranks and the time of rank 0 alone are measured in
the same minutes. Ranks of one machine share its cores and its memory. So if more ranks compute at the same time than
there are cores, the model takes the time of rank 0 alone, multiplied by ranks / cores. In a chain of one block, only
one rank computes at any time."""

import json
import os
import sys
import time

import launch
import numpy as np

REPEATS = 7
# name: function, shape of q, KV heads, keys
CALLS = {
    "prefill, 2,048 rows, 8,192 keys": ("chain_attention", (1, 8, 2048, 128), 8, 8192),
    "decode, 65,536 keys": ("chain_attention", (1, 32, 1, 128), 8, 65536),
    "decode of 32 entries, 4,096 keys": ("chain_attention", (32, 8, 1, 128), 2, 4096),
    "decode, 65,536 keys, tree": ("tree_attention", (1, 32, 1, 128), 8, 65536),
}


def drawn(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def seconds_of(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure_call(group, function, shape, kv_heads, keys):
    """Returns the time of the slowest rank and the time of rank 0 alone, in seconds. Each time is the shortest of
    several calls, because other programs can only make a call slower. The first call, in new memory, does not count."""
    import attnkit
    from attnkit import distributed

    part = slice(group.rank * keys // group.size, (group.rank + 1) * keys // group.size)
    q = drawn(1, *shape)
    all_k, all_v = (drawn(seed, shape[0], kv_heads, keys, shape[-1]) for seed in (2, 3))
    k, v = (np.ascontiguousarray(x[:, :, part]) for x in (all_k, all_v))
    call = getattr(distributed, function)

    alone, together = [], []
    for _ in range(REPEATS + 1):
        alone.append(seconds_of(lambda: attnkit.attention(q, all_k, all_v)) if group.rank == 0 else 0.0)
        group.all_gather(np.zeros(1, np.uint8), 6)
        own = seconds_of(lambda: call(q, k, v, group))
        together.append(float(group.all_gather(np.array([own]), 6).view(np.float64).max()))
    return min(together[1:]), min(alone[1:])


def rank(transport):
    from attnkit.distributed import measure_link
    from ranks import begin

    group = begin(transport)
    link = measure_link(group)
    seconds = {name: measure_call(group, *call) for name, call in CALLS.items()}
    if group.rank == 0:
        print(json.dumps({"rank": 0, "link": [link.latency, min(link.bandwidth, 1e15)], "seconds": seconds}))


def row(transport, size, name, times, link):
    from attnkit.distributed import chain_cost, tree_cost

    function, shape, _, _ = CALLS[name]
    cost_of = {"chain_attention": chain_cost, "tree_attention": tree_cost}[function]
    seconds, one = times
    busy = size if function == "tree_attention" or cost_of(shape, 128, size, compute=1.0, link=link).blocks > 1 else 1
    compute = one * max(1.0, min(busy, size) / (os.cpu_count() or 1))
    cost = cost_of(shape, 128, size, compute=compute, link=link)
    return (f"| {name} | {transport} | {size} | {cost.blocks} | {cost.hop_bytes:,} | {cost.messages} | "
            f"{cost.bytes:,} | {1e3 * one:.1f} | {1e3 * seconds:.1f} | {1e3 * cost.seconds:.1f} |")


def start():
    from attnkit.distributed import Link

    print(f"{os.cpu_count()} cores")
    print("| call | over | ranks | blocks | bytes a hop | messages | bytes | one process, ms | ms | model, ms |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for transport, run in ("gloo", launch.over_gloo), ("mpi", launch.over_mpi):
        for size in 1, 2, 4:
            _, text = run(size, [sys.executable, "-W", "ignore", __file__, transport], 900)
            report = launch.reports(text)
            if 0 not in report:
                sys.exit(text)
            link = Link(*report[0]["link"])
            for name, times in report[0]["seconds"].items():
                print(row(transport, size, name, times, link), flush=True)
            if size > 1:
                print(f"{transport}, {size} ranks: latency {1e6 * link.latency:.0f} us, "
                      f"{link.bandwidth / 1e9:.2f} GB/s")


if __name__ == "__main__":
    rank(sys.argv[1]) if len(sys.argv) > 1 else start()
