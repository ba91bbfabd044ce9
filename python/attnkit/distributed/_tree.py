# SPDX-License-Identifier: Apache-2.0
"""Attention on all ranks at the same time. Each rank computes the result for its own keys. The ranks exchange these
results, and each rank merges them."""

from __future__ import annotations

from typing import Any

import numpy

from .. import _core
from ._group import Group
from ._problem import Problem

PART_TAG = 4


def tree_attention(q: Any, k: Any, v: Any, group: Group, *, return_lse: bool = False, **options: Any) -> Any:
    """Attention over the keys of all ranks. A call takes the time of attention over one rank's keys, and of some
    messages. Every rank gets the same bits. These bits depend on how the keys are spread over the ranks, and differ
    from the bits of one process. tree_attention is for few rows, as in decoding, because each rank receives the parts
    of all other ranks.

    Arguments and exceptions are as in chain_attention, which also has the arguments `everywhere` and `block_rows`. The
    result is in the type of q. With return_lse the function returns a tuple of result and lse.

    Error: the errors of the parts, and the error of one merge (attnkit_merge). Let u = 2^-24, n <= 1000 the number of
    ranks, w_i their weights (with the sum 1), A = sum_i w_i |out_i|, and let the part of rank i be off by e_i in out_i
    and by at most d in lse_i. The float32 result is then off by at most
    sum_i w_i e_i + (e^(2 d) - 1) A + 6 u A + n 2^-99 max |out_i| + 2^-149. A result in another type is
    rounded once more."""
    problem = Problem("tree_attention", group, (q, k, v), options, {"return_lse": bool(return_lse)})
    with group.whole_call():
        merged, total = _merged(problem)
    return (merged, total) if return_lse else merged


def _merged(problem: Problem) -> Any:
    count = int(numpy.prod(problem.rows))
    part = numpy.empty(count * (problem.value_dim + 1), numpy.float32)
    out, lse = _views(part, problem)
    if count:
        sinks = problem.options.get("sinks") if problem.group.rank == 0 else None  # sinks count once
        lse[...] = problem.attend(problem.whole(), out=out, sinks=sinks, return_lse=True)[1]
    parts = problem.group.all_gather(part, PART_TAG).view(numpy.float32)
    views = [_views(row, problem) for row in parts]
    merged, total = _core.merge([view[0] for view in views], [view[1] for view in views], return_lse=True,
                                threads=problem.options.get("threads"))
    return merged.astype(problem.result_type, copy=False), total


def _views(part: numpy.ndarray, problem: Problem) -> Any:
    count = int(numpy.prod(problem.rows))
    return part[count:].reshape(*problem.rows, problem.value_dim), part[:count].reshape(problem.rows)
