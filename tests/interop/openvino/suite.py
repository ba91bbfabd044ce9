#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the extension for OpenVINO with OpenVINO's package of PyPI, and runs the tests of the extension. Prints TAP,
and the times of speed.py.

    tests/interop/openvino/suite.py

build-openvino/ of the tree keeps the compiled files, and the virtual environment with the packages.
"""

import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))
from packaged import Tap, run, run_tests  # noqa: E402

FOLDER = ROOT / "build-openvino"
PYTHON = FOLDER / "venv" / "bin" / "python"
BUILD = FOLDER / "cmake"
EXTENSION = BUILD / "extension" / "libopenvino-attnkit.so"
WHERE = "from openvino.utils import get_cmake_path; print(get_cmake_path())"


def set_up(tap):
    """Makes the environment, unless it has the packages of requirements.txt already. Returns False on an error."""
    stamp, wanted = FOLDER / "venv" / "installed.txt", (HERE / "requirements.txt").read_text()
    if stamp.exists() and stamp.read_text() == wanted and PYTHON.exists():
        return True
    shutil.rmtree(FOLDER / "venv", ignore_errors=True)
    shutil.rmtree(BUILD, ignore_errors=True)
    ok, output = run(sys.executable, "-m", "venv", FOLDER / "venv")
    if ok:
        ok, output = run(PYTHON, "-m", "pip", "install", "--only-binary", ":all:", "-r", HERE / "requirements.txt")
    if tap.line("pip installs OpenVINO", ok, output):
        stamp.write_text(wanted)
    return ok


def build(tap):
    _, where = run(PYTHON, "-c", WHERE)
    ok, output = run("cmake", "-S", HERE, "-B", BUILD, f"-DOpenVINO_DIR={where.strip()}", "-DCMAKE_CXX_FLAGS=-Werror")
    if not tap.line("CMake configures the extension", ok, output):
        return False
    ok, output = run("cmake", "--build", BUILD, "--parallel", "2")
    return tap.line("the extension is built", ok, output)


def main():
    tap = Tap()
    FOLDER.mkdir(exist_ok=True)
    if set_up(tap) and build(tap):
        ok, output = run(BUILD / "replace_test")
        tap.line("the pass in a program in C++", ok, output)
        run_tests(tap, PYTHON, HERE, dict(os.environ, ATTNKIT_OPENVINO_EXTENSION=str(EXTENSION), PYTHONPATH=str(HERE)))
        ok, output = run(PYTHON, HERE / "speed.py", EXTENSION)
        print("\n".join(f"# openvino {line}" for line in output.splitlines()))
        tap.line("speed.py ends well", ok, output)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
