#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the processor time of a model with one attention, on one thread, by OpenVINO alone and with the extension.

A time is the smallest time of many runs. Runs without and with the extension take turns. The script does not fail,
however long the runs take.

    speed.py EXTENSION [--precision bf16] [--seconds N]
"""

import argparse
import tempfile
import time

import numpy as np
import openvino
from openvino import opset13 as op

HEADS, DIM = 8, 64
SIZES = (1, 1024), (3, 5), (128, 128), (512, 512), (2048, 2048)  # rows and keys; the first pair is left out if causal


def model(causal, masked):
    """Returns a model of one attention with any numbers of rows and keys."""
    inputs = [op.parameter([1, HEADS, -1, DIM], np.float32, name) for name in "qkv"]
    masks = [op.parameter([1, 1, 1, -1], bool, "mask")] if masked else []
    return openvino.Model([op.scaled_dot_product_attention(*inputs, *masks, causal=causal)], [*inputs, *masks], "one")


def requests(kind, options):
    """Returns an inference request of OpenVINO alone, and an inference request with the extension."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.xml"
        openvino.save_model(model(kind == "causal", kind == "masked"), path)
        made = []
        for extensions in ([], [options.extension]):
            core = openvino.Core()
            for extension in extensions:
                core.add_extension(extension)
            settings = {"INFERENCE_PRECISION_HINT": options.precision, "INFERENCE_NUM_THREADS": 1}
            made.append(core.compile_model(core.read_model(path), "CPU", settings).create_infer_request())
    return made


def times(pair, inputs, seconds):
    """Returns the smallest processor time of each request in microseconds."""
    best, began = [np.inf, np.inf], time.perf_counter()
    while time.perf_counter() - began < seconds:
        for i, request in enumerate(pair):
            start = time.process_time()
            request.infer(inputs, share_inputs=True, share_outputs=True)
            best[i] = min(best[i], time.process_time() - start)
    return [1e6 * seconds for seconds in best]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("extension")
    arguments.add_argument("--precision", default="f32", help="f32 or bf16, OpenVINO's INFERENCE_PRECISION_HINT")
    arguments.add_argument("--seconds", type=float, default=1.0, help="seconds of measuring for each line of the table")
    options = arguments.parse_args()
    rng = np.random.default_rng(0)
    print(f"{'kind':<8} {'rows':>5} {'keys':>5} {'OpenVINO us':>12} {'attnkit us':>12} {'faster':>7}")
    for kind in ("full", "masked", "causal"):
        pair = requests(kind, options)
        for rows, keys in SIZES[kind == "causal":]:
            inputs = [rng.standard_normal((1, HEADS, n, DIM), np.float32) for n in (rows, keys, keys)]
            if kind == "masked":
                inputs.append(np.arange(keys).reshape(1, 1, 1, -1) < 0.9 * keys)
            theirs, ours = times(pair, inputs, options.seconds)
            print(f"{kind:<8} {rows:>5} {keys:>5} {theirs:>12.0f} {ours:>12.0f} {theirs / ours:>6.2f}x", flush=True)


if __name__ == "__main__":
    main()
