#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares attnkit with PyTorch in float64, on every instruction set that this machine can run. Random cases of
attention, and a fixed list of layers, must agree within a derived bound. Where the two libraries differ on purpose,
recipes must give PyTorch's behaviour.

    tests/interop/pytorch/compare.py [BUILD] [--seed N] [--case NUMBER] [--isa NAME] ...

The first run makes a virtual environment with PyTorch in the user's cache folder, as tools/peers.py does. The first run
downloads 2.6 GB. The environment takes 4.3 GB on the disk. ATTNKIT_TEST_PYTORCH may name a Python that has the
packages. Prints TAP.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "tools" / "peers"))

import compare_options  # noqa: E402
import environment  # noqa: E402


def python_with_torch():
    """Returns the path of a Python with PyTorch: the Python that ATTNKIT_TEST_PYTORCH names, or else the Python of the
    virtual environment, which the first call makes."""
    python = os.environ.get("ATTNKIT_TEST_PYTORCH")
    if python:
        return python
    folder = compare_options.environment_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    return environment.complete(folder, ["torch", "flex", "compile"],
                                lambda _: "The first run needs PyPI, because it installs PyTorch.")


def main():
    compare_options.parse()
    python = python_with_torch()
    os.execv(python, [python, str(HERE / "main.py"), *sys.argv[1:]])


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
