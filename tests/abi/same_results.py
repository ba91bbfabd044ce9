#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs builds of client.c on each instruction set that can run. The first build has the current headers and library. In
the other builds, the headers or the library have another version, or the program has functions with SLEEF's names. All
builds must print the output of the first build. The results must also be the same on all instruction sets.

    tests/abi/same_results.py CLIENT...
"""

import os
import re
import subprocess
import sys
from pathlib import Path

LEAST_LINES = 12


def run(client, isa):
    return subprocess.run([client], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "ATTNKIT_ISA": isa})


def results(text):
    """Returns the lines of an output without the lines about instruction sets."""
    return [line for line in text.splitlines() if not line.startswith("isa ")]


def main():
    clients = sys.argv[1:]
    first = run(clients[0], "scalar").stdout
    isas = re.findall(r"^isa (\w+): 1 1,", first, re.MULTILINE)
    bad = 0
    for isa in isas:
        expected = run(clients[0], isa).stdout
        for client in clients:
            done = run(client, isa)
            right = done.returncode == 0 and done.stdout == expected
            right = right and results(done.stdout) == results(first)
            print(f"{Path(client).name}, {isa}: {'the same results' if right else 'WRONG'}")
            if not right:
                print(f"exit status {done.returncode}\n{done.stdout}")
            bad += not right
    return 1 if bad or len(clients) < 2 or len(results(first)) < LEAST_LINES else 0


if __name__ == "__main__":
    sys.exit(main())
