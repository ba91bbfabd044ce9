#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the Python package from this tree by pip, as a user does, into a new virtual environment, and runs its tests
there. Prints TAP.

    tests/python/suite.py BUILD

BUILD is a build of the library. Results of the package must have the bits of this build. The environment and the files
that meson compiles are kept in build-python/ of the tree. pip gets meson-python, nanobind, NumPy, ml_dtypes,
safetensors and auditwheel from PyPI.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLDER = ROOT / "build-python"
PYTHON = FOLDER / "venv" / "bin" / "python"
MOST_BYTES = 1_500_000  # largest size of a wheel


class Tap:
    """Prints a TAP line for each test, and the plan at the end."""

    def __init__(self):
        self.count = self.failures = 0

    def line(self, name, ok, output=""):
        self.count += 1
        self.failures += not ok
        if not ok:
            print("\n".join("# " + line for line in output.splitlines()[-40:]))
        print(f"{'ok' if ok else 'not ok'} {self.count} - {name}", flush=True)
        return ok

    def end(self):
        print(f"1..{self.count}")
        return 1 if self.failures else 0


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, **more)
    return done.returncode == 0, done.stdout


def make_wheel(tap):
    """Makes a wheel of this tree by pip, and installs it into a new environment."""
    shutil.rmtree(FOLDER / "venv", ignore_errors=True)
    shutil.rmtree(FOLDER / "wheel", ignore_errors=True)
    ok, output = run(sys.executable, "-m", "venv", FOLDER / "venv")
    if not tap.line("a virtual environment", ok, output):
        return None
    ok, output = run(PYTHON, "-m", "pip", "wheel", "--no-deps", ROOT, "-w", FOLDER / "wheel",
                     f"--config-settings=build-dir={FOLDER / 'meson'}")
    wheels = list((FOLDER / "wheel").glob("*.whl"))
    if not tap.line("pip builds a wheel", ok and len(wheels) == 1, output):
        return None
    ok, output = run(PYTHON, "-m", "pip", "install", f"{wheels[0]}[safetensors]", "auditwheel")
    return wheels[0] if tap.line("pip installs it", ok, output) else None


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


def run_tests(tap, python, settings, folder=HERE, prefix=""):
    """Runs the tests of a folder with an interpreter that has their packages, and with these environment variables. The
    names of TAP lines begin with `prefix`."""
    environment = {**os.environ, **settings, "PYTHONPATH": str(folder)}
    for test in sorted(folder.glob("test_*.py")):
        done = subprocess.run([str(python), "-W", "ignore", "-m", "unittest", "-v", test.stem], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, cwd=Path(python).parent,
                              env=environment)
        names = re.findall(r"^(test_\w+) \([^)]*\)(?:\n[^\n]*)? \.\.\. (ok|ERROR|FAIL|skipped.*)$", done.stdout, re.M)
        for name, result in names:
            tap.line(f"{prefix}{test.stem}: {name}", result == "ok", done.stdout)
        ran = re.search(r"^Ran (\d+) tests?", done.stdout, re.M)
        is_whole = ran and int(ran[1]) == len(names) > 0 and done.returncode == 0
        tap.line(f"{prefix}{test.stem}: all of its tests", bool(is_whole), done.stdout)


def main():
    library = Path(sys.argv[1]).resolve() / "dispatch" / "libattnkit.so"
    tap = Tap()
    FOLDER.mkdir(exist_ok=True)
    wheel = make_wheel(tap)
    if wheel:
        check_wheel(tap, wheel)
        run_tests(tap, PYTHON, {"ATTNKIT_TEST_LIBRARY": str(library)})
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
