#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures llama.cpp with attnkit's backend for ggml, and stock llama.cpp with -fa on and with -fa off. Prints a table.

    tools/llamacpp_speed.py [BUILD] [--depths 0,4096] [--threads 1,2] [--kv f16,q8_0] [--layers 2]
    tools/llamacpp_speed.py --write     also puts the table and a plot in docs/llamacpp.md and README.md

The model has random weights, and 8 query heads and 2 KV heads of 64 elements. A depth is a number of tokens in the
cache. At each depth, a candidate prefills 512 tokens and decodes 16 tokens. Each candidate runs in its own process. The
candidates take turns, in a new random order in each round. The table has medians: of processor time for one thread, and
of wall clock time for several threads. docs/llamacpp.md says how to get the backend. If this Python has no matplotlib,
--write continues in the virtual environment of tools/peers.py."""

import argparse
import itertools
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "llamacpp"))

import builds  # noqa: E402
import environment  # noqa: E402
import speed_table  # noqa: E402

# A dict: title of the candidate -> (whether it has the backend, whether -fa is on). If the depth is not 0, the first
# candidate with -fa on writes a file of the cache, and the second candidate with -fa on reads this file. The candidate
# with -fa off writes another file, which no candidate reads. At depth 0, the cache is empty, and there are no files.
CANDIDATES = {"attnkit": (True, 1), "fa on": (False, 1), "fa off": (False, 0)}


class Candidate:
    """The process of a candidate. The process reads its cache from a file if the file exists. Otherwise the process
    computes the cache and, if the depth is not 0, writes the file."""

    def __init__(self, program, library, flash, options, cache):
        environment = {"LD_LIBRARY_PATH": str(builds.libraries()), "PATH": "/usr/bin:/bin"}
        if library:
            environment["GGML_BACKEND_PATH"] = str(library)
        layers, depth, threads, kv = options
        self.process = subprocess.Popen([program, str(layers), str(depth), str(threads), str(flash), kv,
                                         str(cache)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, env=environment)
        self.clock = 1 if threads == 1 else 0
        if self.process.stdout.readline() != "ready\n":
            sys.exit(f"llamacpp_speed.py: {' '.join(map(str, self.process.args))} failed")

    def turn(self, what):
        """Lets the process prefill or decode for a while, as `what` says. Returns the time of a prompt or token in
        milliseconds. Waits first, because the threads of the process that was measured before still spin for some
        milliseconds."""
        time.sleep(0.02)
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline().split()[self.clock])

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def measure(program, library, options, rounds):
    """Returns a dict: "prefill" or "decode" -> title of the candidate -> list of its times in ms. With a quantised V,
    there is no candidate with -fa off, because stock llama.cpp then needs -fa on."""
    with tempfile.TemporaryDirectory() as folder:
        candidates = {title: Candidate(program, library if ours else None, flash, options, Path(folder) / str(flash))
                      for title, (ours, flash) in CANDIDATES.items() if flash or options[3] in ("f16", "f32", "bf16")}
    times = {what: {title: [] for title in candidates} for what in ("prefill", "decode")}
    for _, (what, of_each) in itertools.product(range(rounds + 1), times.items()):
        for title in random.sample(list(candidates), len(candidates)):
            of_each[title].append(candidates[title].turn(what))
    for candidate in candidates.values():
        candidate.end()
    # The time of the first round is left out, because this round is a warm-up.
    return {what: {title: turns[1:] for title, turns in of_each.items()}
            for what, of_each in times.items()}


def numbers(text):
    return [int(word) for word in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("build", nargs="?", type=Path, default=builds.ROOT / "build",
        help="folder of attnkit's build; build/ by default")
    add("--depths", type=numbers, default=[0, 4096, 16384, 32768], help="tokens in the cache")
    add("--threads", type=numbers, default=[1, 2])
    add("--kv", type=lambda text: text.split(","), default=["f16", "q8_0"], help="types of the cache")
    add("--layers", type=int, default=2)
    add("--rounds", type=int, default=7)
    add("--write", action="store_true", help="also put the table and a plot in the pages")
    return parser.parse_args()


def main():
    options = parse()
    if options.write:
        environment.take_matplotlib(options.build / "peers-venv")
    program = builds.model_program(options.build, "tools/llamacpp/speed.cpp")
    library = builds.backend(options.build)
    print(speed_table.heading(), flush=True)
    rows = []
    for kv, threads, depth in itertools.product(options.kv, options.threads, options.depths):
        measured = measure(program, library, (options.layers, depth, threads, kv), options.rounds)
        for what, of_each in measured.items():
            rows.append(speed_table.Row(kv, threads, depth, what, of_each))
            print(rows[-1].line(), flush=True)
    if options.write:
        import speed_pages  # needs matplotlib, which may be only in the environment
        speed_pages.write(rows)


if __name__ == "__main__":
    main()
