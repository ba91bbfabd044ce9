#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs attnkit on the cases of ONNX's operators Attention (opsets 23 to 25) and FlexAttention, on every instruction set
that this machine can run.

    tests/interop/onnx/conformance.py BUILD [WRAPPER]

If BUILD is for another machine, WRAPPER runs its programs. The package onnx makes the cases. The first run gets the
package from PyPI (50 MB), and keeps it in a virtual environment in the user's cache folder. Prints TAP. If all cases of
Attention pass, the last line begins with "# onnx attention: 93 of 93".
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
