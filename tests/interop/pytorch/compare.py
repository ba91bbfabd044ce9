#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares attnkit with PyTorch in float64, on every instruction set that this machine can run. Random cases of
attention and layers must agree within a derived bound. Where the two differ on purpose, recipes must give PyTorch's
behaviour.

    tests/interop/pytorch/compare.py [BUILD] [--seed N] [--case NUMBER] [--isa NAME] ...

Like tools/peers.py, the first run makes a virtual environment with PyTorch in the user's cache folder. It downloads 2.6
GB and takes 4.3 GB on the disk. ATTNKIT_TEST_PYTORCH may name a Python that has the packages. Prints TAP.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "tools" / "peers"))

import compare_options  # noqa: E402
import environment  # noqa: E402


def main():
    compare_options.parse()
    python = os.environ.get("ATTNKIT_TEST_PYTORCH")
    folder = compare_options.environment_folder()
    if not python:
        folder.parent.mkdir(parents=True, exist_ok=True)
        python = environment.complete(
            folder, ["torch", "flex"], lambda _: "The first run needs PyPI, because it installs PyTorch.")
    os.execv(python, [python, str(HERE / "main.py"), *sys.argv[1:]])


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
