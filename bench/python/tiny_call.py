#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a tiny call of attnkit takes at most MOST times as long as torch's scaled_dot_product_attention. Almost
all of the time of a tiny call is overhead, such as checks of arguments and arrays.

    bench/python/tiny_call.py          needs attnkit, NumPy and torch

attnkit and torch take turns on one thread. A turn is CALLS calls. A disturbance that lasts for a whole pair of turns
affects both libraries. The ratio of a round is the median of the ratios of BURSTS pairs of turns. The exit status is 0
as soon as the ratio of a round is at most MOST. It is 1 if all ROUNDS rounds have larger ratios, or if the results
differ. It is 77 without torch. The ratios mean something only if the machine is otherwise idle."""

import statistics
import sys
import time

import attnkit
import numpy as np

MOST = 0.28  # the largest allowed ratio of the time of attnkit to the time of torch
BATCH, HEADS, ROWS, KEYS, DIM = 2, 8, 3, 5, 64
ROUNDS, BURSTS, CALLS = 5, 101, 100


def microseconds(call):
    """Returns the time of a call, in microseconds, as the mean over CALLS calls."""
    begin = time.perf_counter_ns()
    for _ in range(CALLS):
        call()
    return (time.perf_counter_ns() - begin) / CALLS / 1000


def main():
    try:
        import torch
    except ImportError:
        print("no torch: nothing to compare with")
        return 77
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((BATCH, HEADS, n, DIM), np.float32) for n in (ROWS, KEYS, KEYS))
    tensors = [torch.from_numpy(x) for x in (q, k, v)]
    theirs = torch.nn.functional.scaled_dot_product_attention
    with torch.no_grad():
        error = np.abs(attnkit.attention(q, k, v) - theirs(*tensors).numpy()).max()
        if error > 1e-5:
            sys.exit(f"the results differ by {error}")
        for _ in range(ROUNDS):
            pairs = [(microseconds(lambda: attnkit.attention(q, k, v)), microseconds(lambda: theirs(*tensors)))
                     for _ in range(BURSTS)]
            ratio = statistics.median(ours / other for ours, other in pairs)
            ours, other = (statistics.median(times) for times in zip(*pairs))
            print(f"tiny call: attnkit {ours:.2f} us, torch {other:.2f} us, ratio {ratio:.3f}, at most {MOST}")
            if ratio <= MOST:
                return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
