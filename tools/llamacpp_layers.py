#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what a layer of llama.cpp costs with the backend for ggml, beside stock llama.cpp, and prints a table.

    tools/llamacpp_layers.py [BUILD] [--layers 48] [--depths 0] [--threads 1,2] [--kv f16] [--tokens 1] [--also LIBRARY]

The candidates are contexts of stock llama.cpp, with -fa on and -fa off, and of llama.cpp with the backend. With a
quantised cache, there is no candidate with -fa off. All candidates are in one process, and share one model and the
threads. They take short turns in a random order. The table has a row for each candidate: the median of its time, and
the median and the quartiles of the difference from stock llama.cpp with -fa on. The medians and the quartiles are taken
over the rounds, in microseconds per layer. "fa on again" is another context of the same stock llama.cpp, and shows how
small a difference the measurement can resolve. All layers have the same weights, which stay in the processor's caches.
--tokens is the number of tokens of a step: 1 is decoding, and more are prefill. --also adds a build of the backend."""

import argparse
import itertools
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent / "llamacpp"))

import builds  # noqa: E402

HEADING = """| KV | threads | depth | tokens | | µs a layer | more than fa on, µs | quartiles |
| --- | ---: | ---: | ---: | --- | ---: | ---: | ---: |"""


def measure(program, options, case):
    """Returns a dict: title of the candidate -> list of its times of a layer in microseconds, one for each round."""
    kv, threads, depth = case
    candidates = {"fa on": "on", "fa on again": "on", "attnkit": builds.backend(options.build)}
    if kv in ("f32", "f16", "bf16"):  # stock llama.cpp has a quantised V only with -fa on
        candidates["fa off"] = "off"
    candidates.update({str(path): path.resolve() for path in options.also})
    status, out, log = builds.output(program, options.layers, depth, threads, kv, options.tokens, options.rounds,
                                     options.places, *candidates.values(), LD_LIBRARY_PATH=str(builds.libraries()))
    if status:
        sys.exit(f"llamacpp_layers.py: failed\n{log}")
    rounds = [[float(word) / options.layers for word in line.split()] for line in out.splitlines()]
    return dict(zip(candidates, zip(*rounds)))


def line(case, tokens, title, times, stock):
    """Returns a row of the table."""
    kv, threads, depth = case
    differences = sorted(own - theirs for own, theirs in zip(times, stock))
    first, third = (differences[len(differences) * quarter // 4] for quarter in (1, 3))
    return f"| {kv} | {threads} | {depth} | {tokens} | {title} | {median(times):.1f} | {median(differences):+.2f} | " \
        f"{first:+.2f} .. {third:+.2f} |"


def numbers(text):
    return [int(word) for word in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("build", nargs="?", type=Path, default=builds.ROOT / "build",
        help="folder of attnkit's build; build/ by default")
    add("--layers", type=int, default=48)
    add("--depths", type=numbers, default=[0], help="tokens in the cache")
    add("--threads", type=numbers, default=[1, 2])
    add("--kv", type=lambda text: text.split(","), default=["f16"], help="types of the cache")
    add("--tokens", type=int, default=1, help="tokens of a step, from 1 (decoding) to 512")
    add("--rounds", type=int, default=40, help="rounds with one set of contexts")
    add("--places", type=int, default=4, help="sets of contexts, each in other memory")
    add("--also", type=Path, action="append", default=[], metavar="LIBRARY", help="a further build of the backend")
    return parser.parse_args()


def main():
    options = parse()
    program = builds.model_program(options.build, "tools/llamacpp/layers.cpp")
    print(HEADING, flush=True)
    for case in itertools.product(options.kv, options.threads, options.depths):
        times = measure(program, options, case)
        for title, of_one in times.items():
            print(line(case, options.tokens, title, of_one, times["fa on"]), flush=True)


if __name__ == "__main__":
    main()
