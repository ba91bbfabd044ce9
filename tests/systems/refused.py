#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that meson and CMake refuse a CPU that attnkit does not support. The configuration must stop with an error that
names the reason.

    tests/systems/refused.py

Prints TAP. The library is not compiled, only the small programs by which meson and CMake check the compiler. The
compiler is clang, which can compile for every CPU in WHY.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MESON = shutil.which("meson") or ROOT / ".venv" / "bin" / "meson"  # tools/set_up can install meson in .venv
# The programs that a pair of a builder and a CPU needs besides clang. A pair that is not listed needs its builder.
NEEDS = {("meson", "i386"): [], ("meson", "s390x"): ["ld.lld"]}
WHY = {"i386": "attnkit needs a CPU of 64 bits", "s390x": "attnkit needs a little-endian CPU"}


def command(builder, cpu, folder):
    if builder == "meson":
        return [MESON, "setup", folder, ROOT, "--cross-file", HERE / f"{cpu}.ini"]
    return ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_SYSTEM_NAME=Linux",
            f"-DCMAKE_SYSTEM_PROCESSOR={cpu}", "-DCMAKE_C_COMPILER=clang",
            f"-DCMAKE_C_COMPILER_TARGET={cpu}-linux-gnu", "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY"]


def is_refused(builder, cpu):
    """Returns whether the configuration ends with the error of WHY, and the output of the configuration."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command(builder, cpu, folder), text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    return done.returncode != 0 and WHY[cpu] in " ".join(done.stdout.split()), done.stdout


def main():
    failed = 0
    pairs = [(builder, cpu) for builder in ("meson", "cmake") for cpu in WHY]
    print(f"1..{len(pairs)}")
    for number, (builder, cpu) in enumerate(pairs, 1):
        name = f"{number} - {builder}, {cpu}: {WHY[cpu]}"
        missing = [program for program in ("clang", *NEEDS.get((builder, cpu), [builder])) if not shutil.which(program)]
        if missing:
            print(f"ok {name} # SKIP no {missing[0]}")
            continue
        ok, output = is_refused(builder, cpu)
        failed += not ok
        print(f"{'ok' if ok else 'not ok'} {name}")
        if not ok:
            print("\n".join("# " + line for line in output.splitlines()[-20:]), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
