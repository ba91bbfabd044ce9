#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of calls by callgrind, which gives figures without noise.

    tools/static/counts.py [BUILD_FOLDER]

Runs the public calls of bench/measure/counts.c under callgrind, in plain C and with AVX2, and counts the instructions
of one call of each row. The rows are prefill, decode, few rows, linear maps, layers, appends and other calls with small
shapes, and calls with little or nothing to do. callgrind does not know AVX-512, and NEON does not run on x86-64;
tools/static/loops.py covers these instruction sets.

Fails if a row has over 0.5 % more instructions than are stored in tools/static/counts/. Also fails if a row is missing
in the build or in tools/static/counts/. Prints every difference, even improvements. `tools/figures --write` stores the
new counts. The counts depend on the compiler and on glibc, whose memcpy follows the CPU that valgrind emulates. The
exit status is 77 if nothing is compared, for one of these reasons:

    - valgrind is missing, or the CPU lacks AVX2
    - the build has no bench/attnkit-counts, is instrumented, or is no release build without c_args
    - no counts are stored for this CPU family, compiler, glibc and valgrind"""

import argparse
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stored_figures import (ADVICE, SKIPPED, Difference, build_options, compiler, is_count,
                            is_instrumented, percent, print_differences, read, run)

ROOT = Path(__file__).resolve().parents[2]
STORE = Path(__file__).resolve().parent / "counts"
ISAS = ["scalar", "avx2"]
PROGRAM = Path("bench", "attnkit-counts")
COUNTED = "counted_call"  # the function of bench/measure/counts.c that makes the call
SLACK = 0.5  # percent
TIME_LIMIT = 900
# The environment is fixed, because its size decides where the stack starts, and so which path a memcpy takes. With
# MALLOC_MMAP_THRESHOLD_, glibc gives each array separate pages. Otherwise the address of an array would depend on the
# rows before.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "MALLOC_MMAP_THRESHOLD_": "0"}


class NothingToCount(Exception):
    """Instructions cannot be counted with this machine or build, or there are no counts to compare with. The message
    has the reason."""


class CountingFailed(Exception):
    """Counting failed. The message has the reason."""


# --------------------------------------------------------------------------------- the counting


def totals(folder, isa):
    """Yields the total of each dump of callgrind, in the order of the numbers at the ends of the dumps' names."""
    paths = sorted(folder.glob(f"{isa}.*"), key=lambda path: int(path.suffix[1:]))
    for path in paths:
        found = re.findall(r"^totals: (\d+)$", path.read_text(), re.M)
        if len(found) != 1:
            raise CountingFailed(f"{isa}: callgrind wrote no total into {path.name}")
        yield int(found[0])


def count(build, isa, folder):
    """Returns the libraries that the program names, and a dict: row -> number of instructions."""
    command = ["valgrind", "--tool=callgrind", f"--toggle-collect={COUNTED}",
               f"--dump-after={COUNTED}", f"--callgrind-out-file={folder / isa}", PROGRAM, isa]
    try:
        done = subprocess.run([str(word) for word in command], cwd=build, env=ENVIRONMENT,
                              capture_output=True, text=True, timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        raise CountingFailed(f"{isa}: not done after {TIME_LIMIT} s") from None
    if done.returncode != 0:
        raise CountingFailed(f"{isa}: exit status {done.returncode}\n{done.stderr.strip()}")
    lines = done.stdout.splitlines()
    names = [line for line in lines if not line.startswith("#")]
    counts = list(totals(folder, isa))
    if not names or len(names) != len(counts) or 0 in counts:
        raise CountingFailed(f"{isa}: {len(names)} rows, but {len(counts)} counts")
    return [line[2:] for line in lines if line.startswith("#")], dict(zip(names, counts))


def why_not(build):
    """Returns the reason why the instructions of this build cannot be counted here, or None."""
    options = build_options(build)
    if not shutil.which("valgrind"):
        return "no valgrind here"
    if is_instrumented(options):
        return "the build is instrumented, and releases are not"
    if not (build / PROGRAM).exists():
        return f"no {build / PROGRAM}, which a native build with the tests has"
    if (options.get("buildtype"), options.get("c_args")) != ("release", []):
        return "counts are of a release build without c_args"
    chosen = subprocess.run([build / PROGRAM, ISAS[-1], "none"], capture_output=True, text=True)
    if ISAS[-1] in chosen.stderr:
        return f"counts are of machines with AVX2: {chosen.stderr.strip()}"
    return None


def libraries_of(lines):
    return ", ".join([platform.machine(), *lines, run(["valgrind", "--version"]).strip()])


def count_all(build):
    """Returns (compiler, libraries, row -> instructions) of a build."""
    missing = why_not(build)
    if missing:
        raise NothingToCount(missing)
    objects = build / "kernels" / "libattnkit_scalar.a.p"
    built_by = compiler("objdump", next(objects.glob("*.o")))
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(lambda isa: count(build, isa, Path(name)), ISAS))
    return built_by, libraries_of(parts[0][0]), {k: v for _, rows in parts for k, v in rows.items()}


# ------------------------------------------------------------------------------------ the files


def path_of(built_by):
    return STORE / (built_by.replace(" ", "-") + ".json")


def is_sound(stored):
    rows = stored.get("instructions")
    return (isinstance(stored.get("with"), str) and isinstance(rows, dict) and
            all(map(is_count, rows.values())))


def stored_counts(built_by, libraries):
    """Returns the stored counts as a dict: row -> instructions. Raises NothingToCount if there are none for this
    compiler and these libraries."""
    stored = read(path_of(built_by), is_sound)
    if not stored:
        raise NothingToCount(f"no counts are stored for {built_by}")
    if stored["with"] != libraries:
        raise NothingToCount(f"counts are stored with {stored['with']}; this machine has {libraries}")
    return stored["instructions"]


def write(built_by, libraries, now):
    """Writes one line for each row, so that a diff shows the changed rows."""
    lines = [f"  {json.dumps(name)}: {value}" for name, value in now.items()]
    STORE.mkdir(exist_ok=True)
    path_of(built_by).write_text(f'{{\n "with": {json.dumps(libraries)},\n "instructions": {{\n' +
                                 ",\n".join(lines) + "\n }\n}\n", encoding="utf-8")


# -------------------------------------------------------------------------------------- the run


def differences(now, stored):
    return [Difference(name, stored.get(name), now.get(name))
            for name in dict.fromkeys([*now, *stored]) if now.get(name) != stored.get(name)]


def is_wrong(difference):
    return percent(difference) > SLACK


def check(now, stored):
    """Prints the differences from the stored counts. Returns whether a difference is an error."""
    changed = differences(now, stored)
    wrong = sum(map(is_wrong, changed))
    print(f"{len(now)} rows: {len(changed)} differ; {wrong} of these have over {SLACK} % more instructions, are new, "
          "or are gone")
    print_differences(changed)
    if wrong:
        print(f"WRONG: rows with more instructions than stored, new rows, or stored rows that are gone.\n{ADVICE}")
    elif any(percent(difference) < -SLACK for difference in changed):
        print("Better: tools/figures --write stores the lower counts, so that a later increase is noticed.")
    return wrong > 0


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("build", type=Path, metavar="BUILD_FOLDER", nargs="?",
                           default=ROOT / "build")
    wish = arguments.parse_args()
    try:
        built_by, libraries, now = count_all(wish.build.resolve())
        print(f"{built_by}, {libraries}")
        return 1 if check(now, stored_counts(built_by, libraries)) else 0
    except NothingToCount as reason:
        print(f"counts.py: not compared: {reason}")
        return SKIPPED
    except CountingFailed as problem:
        print(f"counts.py: {problem}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
