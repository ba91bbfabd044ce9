#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the speed of attnkit, PyTorch, ONNX Runtime, OpenVINO, llama.cpp and NumPy in a table and a plot.

    tools/peers.py [BUILD] [--quick] [--only attnkit,numpy] ...

Makes a virtual environment with the versions of tools/peers/requirements.txt, then measures in this environment. With
--no-venv, measures in this Python. PyTorch's wheel does not load without the CUDA libraries. With PyTorch, 2.6 GB are
downloaded and 4.4 GB of disk are used. Without PyTorch, 0.3 GB are downloaded and 0.5 GB of disk are used. llama.cpp is
built, which takes five minutes on two processors. tools/peers/measure.py describes how the speed is measured."""

import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent / "peers"
sys.path.insert(0, str(HERE))

import environment  # noqa: E402
import options as command_line  # noqa: E402


def main():
    options = command_line.complete(command_line.parser(__doc__.splitlines()[0]).parse_args())
    python = sys.executable
    if options.no_venv and not importlib.util.find_spec("numpy"):
        environment.fail(f"{python} has no NumPy", "Leave out --no-venv, or take a Python that has NumPy.")
    if not options.no_venv:
        python = environment.complete(options.venv, options.only)
    os.execv(python, [python, str(HERE / "main.py"), *sys.argv[1:]])


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
