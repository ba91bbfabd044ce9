#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the wheels of the package by tools/wheels.py. Runs the tests of the package with each wheel, on each version
of Python that the wheel serves, in a new environment. Prints TAP.

    tests/python/wheels_suite.py BUILD

BUILD is a build of the library, as for suite.py. Python 3.9 to 3.12 must be there, because tools/wheels.py builds with
them. Later versions that this machine lacks are skipped."""

import os
import shutil
import sys
from pathlib import Path

from packaged import ROOT, Tap, run, run_tests

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))
import wheels  # noqa: E402


class Part:
    """A Tap for one version of Python. Another Tap prints the lines. Each line begins with the name of the version."""

    def __init__(self, tap, name):
        self.tap, self.name = tap, name

    def line(self, name, ok, output=""):
        return self.tap.line(f"{self.name}: {name}", ok, output)


def served(wheel):
    """Returns the versions of Python that a wheel serves, by its tag."""
    tag = wheel.name.split("-")[2]
    return wheels.STABLE if "-abi3-" in wheel.name else (f"3.{tag[3:]}",)


def test(tap, wheel, version, library):
    python = wheels.find(version)
    if not python:
        print(f"# no Python {version} here: {wheel.name} is not tested with it")
        return
    part, clean = Part(tap, f"Python {version}"), wheels.environment(python, f"test-{version}")
    ok, output = run(clean, "-m", "pip", "install", "--only-binary", ":all:", f"{wheel}[safetensors]")
    if part.line(f"pip installs {wheel.name}", ok, output):
        run_tests(part, clean, HERE, dict(os.environ, ATTNKIT_TEST_LIBRARY=str(library), PYTHONPATH=str(HERE)))


def build(tap, folder):
    """Builds the wheels and returns them. If a wheel cannot be built, returns the wheels that were built before it."""
    made = []
    try:
        for wheel in wheels.build_all(folder, wheels.default_pythons()):
            print(f"# {wheel.name}: {wheel.stat().st_size} bytes", flush=True)
            made.append(wheel)
    except wheels.Failed as problem:
        tap.line("wheels are built", False, str(problem))
        return made
    tags = sorted("-".join(wheel.name.split("-")[2:4]) for wheel in made)
    tap.line("a wheel for each version, and one for all from 3.12 on",
             tags == ["cp310-cp310", "cp311-cp311", "cp312-abi3", "cp39-cp39"], ", ".join(tags))
    return made


def main():
    library = Path(sys.argv[1]).resolve() / "dispatch" / "libattnkit.so"
    folder = wheels.WORK / "wheels"
    shutil.rmtree(folder, ignore_errors=True)
    tap = Tap()
    for wheel in build(tap, folder):
        for version in served(wheel):
            test(tap, wheel, version, library)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
