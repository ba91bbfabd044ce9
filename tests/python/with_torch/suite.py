#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the Python package from this tree by pip, and runs the tests of attnkit.torch with PyTorch. Also measures the
speed of calls. Prints TAP, the counts of PyTorch's own samples, and the speed.

    tests/python/with_torch/suite.py

tests/interop/pytorch/compare.py makes the virtual environment with PyTorch, in the first run. The package and compiled
programs are kept in build-torch/ of the tree.
"""

import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "interop" / "pytorch")]

import compare  # noqa: E402
from packaged import ROOT, Tap, build_wheel, notes, run, run_tests  # noqa: E402

FOLDER = ROOT / "build-torch"


def install(tap, python):
    """Installs the package into a folder of its own, so that the shared environment stays as it is. Returns whether pip
    has built and installed the package."""
    wheel = build_wheel(tap, python, FOLDER)
    if not wheel:
        return False
    shutil.rmtree(FOLDER / "site", ignore_errors=True)
    ok, output = run(python, "-m", "pip", "install", "--no-deps", "--target", FOLDER / "site", wheel)
    return tap.line("pip installs the wheel", ok, output)


def print_speed(tap, python, environment):
    ok, output = run(python, "-W", "ignore", HERE / "speed.py", env=environment)
    print(notes(output), end="")
    tap.line("speed.py ends well", ok, output)


def check_tiny_call(tap, python, environment):
    """Compares the cost of a tiny call with the cost of torch's call. bench/python/tiny_call.py has the limit."""
    ok, output = run(python, ROOT / "bench" / "python" / "tiny_call.py", env=environment)
    tap.line("the smallest call costs little beside torch's", ok, output)


def main():
    tap = Tap()
    FOLDER.mkdir(exist_ok=True)
    python = compare.python_with_torch()
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(FOLDER / "site"), str(HERE)]),
                       TORCHINDUCTOR_CACHE_DIR=str(FOLDER / "inductor"))
    if install(tap, python):
        run_tests(tap, python, HERE, environment)
        print_speed(tap, python, environment)
        check_tiny_call(tap, python, environment)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
