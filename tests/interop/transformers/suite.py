#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the Python package from this tree by pip, and runs the tests of attnkit.transformers: models of sixteen
families, with random weights. Prints TAP, the errors of each family, and with --speed the times of speed.py.

    tests/interop/transformers/suite.py [--speed]

PyTorch comes from the Python that tests/interop/pytorch/compare.py uses. transformers and the package of attnkit are
kept in build-transformers/ of the tree. Nothing downloads a model.
"""

import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "tests" / "python"), str(HERE.parent / "pytorch")]

import compare  # noqa: E402
from packaged import Tap, build_wheel, notes, run, run_tests  # noqa: E402

FOLDER = ROOT / "build-transformers"
PACKAGES, SITE = FOLDER / "packages", FOLDER / "site"


def install_transformers(tap, python):
    """Installs the packages of requirements.txt for this Python, unless they are there."""
    stamp, wanted = PACKAGES / "installed.txt", f"{python}\n{(HERE / 'requirements.txt').read_text()}"
    if stamp.exists() and stamp.read_text() == wanted:
        return True
    shutil.rmtree(PACKAGES, ignore_errors=True)
    ok, output = run(python, "-m", "pip", "install", "--no-deps", "--only-binary", ":all:", "--target", PACKAGES,
                     "-r", HERE / "requirements.txt")
    if tap.line("pip installs transformers", ok, output):
        stamp.write_text(wanted)
    return ok


def install_attnkit(tap, python):
    wheel = build_wheel(tap, python, FOLDER)
    if not wheel:
        return False
    shutil.rmtree(SITE, ignore_errors=True)
    ok, output = run(python, "-m", "pip", "install", "--no-deps", "--target", SITE, wheel)
    return tap.line("pip installs attnkit", ok, output)


def main():
    tap = Tap()
    FOLDER.mkdir(exist_ok=True)
    python = compare.python_with_torch()
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(str(path) for path in (SITE, PACKAGES, HERE)),
                       HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", OMP_NUM_THREADS="1",
                       TORCHINDUCTOR_CACHE_DIR=str(FOLDER / "inductor"))
    if install_transformers(tap, python) and install_attnkit(tap, python):
        run_tests(tap, python, HERE, environment)
        if "--speed" in sys.argv:
            ok, output = run(python, "-W", "ignore", HERE / "speed.py", env=environment)
            print(notes(output), end="")
            tap.line("speed.py ends well", ok, output)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
