#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the Python package from this tree by pip, as a user does, into a new virtual environment, and runs its tests
there. Prints TAP.

    tests/python/suite.py BUILD

BUILD is a build of the library. Results of the package must have the bits of this build. The environment and meson's
build folder are kept in build-python/ of the tree. pip gets meson-python, meson, ninja, nanobind, NumPy,
ml_dtypes, safetensors and auditwheel from PyPI.
"""

import os
import re
import shutil
import sys
from pathlib import Path

from packaged import ROOT, Tap, build_wheel, run, run_tests

HERE = Path(__file__).resolve().parent
FOLDER = ROOT / "build-python"
PYTHON = FOLDER / "venv" / "bin" / "python"
MOST_BYTES = 1_500_000  # largest size of a wheel


def make_wheel(tap):
    """Makes a wheel of this tree by pip, and installs the wheel into a new environment. Returns the path of the wheel,
    or None after a failure."""
    shutil.rmtree(FOLDER / "venv", ignore_errors=True)
    ok, output = run(sys.executable, "-m", "venv", FOLDER / "venv")
    if not tap.line("a virtual environment", ok, output):
        return None
    wheel = build_wheel(tap, PYTHON, FOLDER)
    if not wheel:
        return None
    ok, output = run(PYTHON, "-m", "pip", "install", f"{wheel}[safetensors]", "auditwheel")
    return wheel if tap.line("pip installs the wheel", ok, output) else None


def check_wheel(tap, wheel):
    """Checks the size of the wheel, and that it can run on other distributions."""
    size = wheel.stat().st_size
    print(f"# {wheel.name}: {size} bytes")
    tap.line("the wheel is small", size < MOST_BYTES, f"{size} bytes")
    ok, output = run(PYTHON, "-m", "auditwheel", "show", wheel)
    tag = re.search(r'following platform\s+tag:\s+"(manylinux_2_\d+_\w+)"', output)
    own = re.search(r"(?s)consistent with.*?(manylinux_2_(\d+)_\w+)", output)
    print(f"# auditwheel: {(tag or own)[1] if tag or own else 'no tag of manylinux'}")
    tap.line("auditwheel has a tag of manylinux for it", ok and bool(tag or own), output)


def main():
    library = Path(sys.argv[1]).resolve() / "dispatch" / "libattnkit.so"
    tap = Tap()
    FOLDER.mkdir(exist_ok=True)
    wheel = make_wheel(tap)
    if wheel:
        check_wheel(tap, wheel)
        run_tests(tap, PYTHON, HERE, dict(os.environ, ATTNKIT_TEST_LIBRARY=str(library), PYTHONPATH=str(HERE)))
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
