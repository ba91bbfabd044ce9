#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs attnkit on the cases of ONNX's Attention operator, opsets 23 to 25, on every instruction set that this
machine can run.

    tests/interop/onnx/conformance.py BUILD [WRAPPER]

WRAPPER runs the programs of a build for another machine.
The cases are made by the package onnx, which the first run gets from PyPI (50 MB) and keeps in a
virtual environment in the user's cache folder. Prints TAP; the last line is "onnx attention: 93 of 93".
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import environment  # noqa: E402


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    python = environment.complete()
    os.execv(python, [python, str(HERE / "main.py"), *sys.argv[1:]])


if __name__ == "__main__":
    main()
