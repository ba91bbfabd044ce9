# SPDX-License-Identifier: Apache-2.0
"""One rank of a test of attnkit.distributed, over gloo or MPI.

    ranks.py gloo|mpi TASK[,TASK ...] [ARGUMENT ...]

suite.py starts this program once for each rank of a test. For gloo, the environment has RANK, WORLD_SIZE and MEETING,
the path of a file by which the ranks find each other. A rank prints one line of JSON, in which `failed` lists what was
wrong. A rank that the test kills or stops prints nothing.
"""

import datetime
import functools
import json
import os
import signal
import sys
import time

import numpy as np
from attnkit.distributed import (Link, PeerError, chain_attention, chain_cost, mpi_group, torch_group, tree_attention,
                                 tree_cost)
from distributed_cases import CASES, chain_has_the_bits, drawn, make, on_rank, same, spread, tree_error

TAGS = {"agreement": 1, "state": 2, "result": 3, "part": 4}


@functools.lru_cache(maxsize=None)
def begin(transport, timeout=60.0):
    if transport == "mpi":
        return mpi_group(timeout=timeout)
    from torch import distributed

    distributed.init_process_group("gloo", init_method=f"file://{os.environ['MEETING']}",
                                   rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]),
                                   timeout=datetime.timedelta(seconds=600))
    return torch_group(timeout=timeout)


def task_bits(transport):
    """chain_attention must give the bits of attention() in one process. tree_attention must give numbers near the
    numbers of attention()."""
    group = begin(transport)
    failed = [f"chain: {name}" for name in CASES if not chain_has_the_bits(group, name)]
    for name, case in CASES.items():
        if max(tree_error(group, name)) > (3e-6 if case[4] is np.float32 else 0.02):
            failed.append(f"tree: {name}")
    return {"failed": failed, "cases": 2 * len(CASES)}


def task_costs(transport):
    """Compares the numbers of messages and bytes that all ranks send with the numbers of the cost model."""
    group, sums = begin(transport), []
    for function, name in ((chain_attention, "prefill of a prompt"), (chain_attention, "decode"),
                           (tree_attention, "decode")):
        before = np.array([group.sent_messages, group.sent_bytes])
        q, k, v, options = make(name)
        keys = spread(k.shape[-2], group.size, group.rank)
        function(q, k[..., keys, :], v[..., keys, :], group, **on_rank(options, keys))
        sent = np.array([group.sent_messages, group.sent_bytes]) - before
        total = group.all_gather(sent, 6).view(sent.dtype).sum(axis=0)
        model = {chain_attention: chain_cost, tree_attention: tree_cost}[function]
        cost = model(q.shape, v.shape[-1], group.size, compute=1.0, link=Link(0.0, 1.0))
        sums.append([function.__name__, name, total.tolist(), [cost.messages, cost.bytes]])
    return {"failed": [row for row in sums if row[2] != row[3]], "sums": sums}


def task_tensors(transport):
    """chain_attention and tree_attention take torch's tensors, also in bfloat16, and must return the same bits as for
    NumPy's arrays."""
    import torch

    group, failed = begin(transport), []
    for name in ("prefill", "bfloat16"):
        q, k, v, options = make(name)
        keys = spread(k.shape[-2], group.size, group.rank)
        is_bf16 = q.dtype != np.float32
        tensors = [torch.from_numpy(np.ascontiguousarray(x).view(np.uint16 if is_bf16 else x.dtype))
                   for x in (q, k[..., keys, :], v[..., keys, :])]
        if is_bf16:
            tensors = [x.view(torch.bfloat16) for x in tensors]
        arrays = (q, k[..., keys, :], v[..., keys, :])
        for function in chain_attention, tree_attention:
            if not same(function(*tensors, group, **options), function(*arrays, group, **options)):
                failed.append(f"{function.__name__}: {name}")
    return {"failed": failed}


def task_subgroup(transport):
    """Uses a group of all ranks but rank 0. Over gloo, rank 0 is refused. Over MPI, rank 0 has a group of its own."""
    if transport == "mpi":
        from mpi4py import MPI

        rank = MPI.COMM_WORLD.rank
        group = mpi_group(MPI.COMM_WORLD.Split(rank > 0, rank))
        ok = chain_has_the_bits(group, "prefill")
        return {"failed": [] if ok and group.size == (MPI.COMM_WORLD.size - 1 if rank else 1) else ["bits"]}
    whole = begin(transport)
    from torch import distributed

    part = distributed.new_group(list(range(1, whole.size)), backend="gloo")
    try:
        group = torch_group(part, timeout=60.0)
    except ValueError as error:
        return {"failed": [] if whole.rank == 0 and "not in the process group" in str(error) else [str(error)]}
    ok = whole.rank > 0 and group.size == whole.size - 1 and chain_has_the_bits(group, "prefill")
    return {"failed": [] if ok else ["bits"]}


def call(group, function=chain_attention, rows=200, **options):
    q, k, v = drawn(1, 1, 4, rows, 16), drawn(2, 1, 2, 512, 16), drawn(3, 1, 2, 512, 16)
    return function(q, k, v, group, **options)


def task_disagree(transport):
    """Rank 1 has another shape, option or function than the other ranks, or a number of threads that is refused. Every
    rank must then get an error, and afterwards the group must work."""
    group, failed = begin(transport), []
    for text, other in {"disagree on q: float32 [1, 4, 200, 16] on rank 0, float32 [1, 4, 9, 16]": {"rows": 9},
                        "disagree on scale": {"scale": 0.5}, "disagree on causal": {"causal": "upper-left"},
                        "disagree on sinks": {"sinks": np.zeros(4, np.float32)},
                        "disagree on the function": {"function": tree_attention},
                        "threads is 5000": {"threads": 5000}}.items():
        try:
            call(group, **(other if group.rank == 1 else {}))
            failed.append(f"no error: {text}")
        except ValueError as error:
            if text not in str(error):
                failed.append(f"{error} instead of {text}")
        if not chain_has_the_bits(group, "decode"):
            failed.append(f"the group does not work after: {text}")
    return {"failed": failed}


def task_die(transport, how, what, timeout):
    """Makes one call that works. In the next calls, rank 1 is killed or stopped just before it sends or receives a
    message of the kind `what`. The other ranks print their error and how long they waited. They stay alive after the
    error, so that each rank has to notice by itself that rank 1 is gone. A rank may have its result before rank 1 ends,
    and then meets the error in its next call."""
    group = begin(transport, float(timeout))
    function = tree_attention if what == "part" else chain_attention
    call(group, function)
    if group.rank == 1:
        end_at(group._transport, TAGS[what], signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    began = time.monotonic()
    try:
        call(group, function)
        call(group, function)
        report = {"failed": ["no error"]}
    except PeerError as error:
        report = {"failed": [], "error": str(error)}
    report["seconds"] = time.monotonic() - began
    print(json.dumps({"rank": group.rank, **report}), flush=True)
    time.sleep(2 * float(timeout))
    os._exit(0)  # a normal exit would wait for rank 1 in MPI


def end_at(transport, tag, signal_number):
    for name in "send", "receive":
        def start(other, data, given, whole=getattr(transport, name)):
            if given == tag:
                os.kill(os.getpid(), signal_number)
            return whole(other, data, given)
        setattr(transport, name, start)


def main():
    transport, task, *arguments = sys.argv[1:]
    report = {"failed": []}
    for name in task.split(","):
        more = globals()[f"task_{name}"](transport, *arguments)
        report = {**report, **more, "failed": report["failed"] + more["failed"]}
    if transport == "mpi":
        from mpi4py import MPI

        rank = MPI.COMM_WORLD.rank
    else:
        rank = int(os.environ["RANK"])
    print(json.dumps({"rank": rank, **report}), flush=True)


if __name__ == "__main__":
    main()
