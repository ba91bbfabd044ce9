# SPDX-License-Identifier: Apache-2.0
"""The steps that the checks of systems share: which programs they need, a build by meson, the hash that the program of
tests/consumers has to print, and the functions that a library has to export. The checks take helpers of other folders
from here, because this file says where they lie."""

import os
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
for folder in ("consumers", "emulators", "repository"):
    sys.path.insert(0, str(ROOT / "tests" / folder))

import consumers  # noqa: E402
from consumers import CCACHE, RESULT, Failed, compile_listed, output_of  # noqa: E402,F401
from debian_sources import NotAvailable, alone, cache_folder, download, mirrors  # noqa: E402,F401
from symbols import mapped_functions  # noqa: E402

ROOM = ROOT / "build-systems"
PROGRAM = consumers.HERE / "program.c"
PROBE = ROOT / "tests" / "emulators" / "cpu_model_probe.c"
LIBRARY_ALONE = ("-Dtests=false", "-Dtools=false", "-Dbench=disabled")
meson = []  # the command, as words


class Missing(Exception):
    """A program that this system lacks, and the package that has it."""


def need(*programs):
    """Raises Missing for the first of the programs, (name, package), that is not there."""
    for program, package in programs:
        if not shutil.which(program):
            raise Missing(f"no {program} (package {package})")


def build(name, *options, targets=()):
    """Builds with meson, without warnings, and returns the folder."""
    folder = ROOM / name
    if not (folder / "build.ninja").exists():
        shutil.rmtree(folder, ignore_errors=True)
        output_of(*meson, "setup", folder, ROOT, "--buildtype=release", "-Dwerror=true", "-Dsleef=disabled", *options,
                  env={key: value for key, value in os.environ.items() if key not in ("CC", "CXX")})
    output_of("ninja", "-C", folder, *targets)
    return folder


def check_program(command, **more):
    """Runs the program of tests/consumers, and returns the instruction sets that gave the right hash."""
    text = output_of(*command, **more).strip()
    expected, match = consumers.expected_hash(ROOM), RESULT.match(text)
    if not match or match[2] != expected:
        raise Failed(f"{command[-1]}: {text}, expected {expected}")
    return match[1].split()


def check_exports(names):
    """Compares exported names with dispatch/attnkit.map, and returns their number."""
    wanted = set(mapped_functions((ROOT / "dispatch" / "attnkit.map").read_text()))
    if set(names) != wanted:
        raise Failed(f"exported, but not in the map: {sorted(set(names) - wanted)}\n"
                     f"in the map, but not exported: {sorted(wanted - set(names))}")
    return len(wanted)


def version(compiler):
    """Returns the name and the first numbers of the compiler's version, such as "gcc 12.2"."""
    line = output_of(*compiler, "--version").splitlines()[0]
    number = re.search(r"(?:version |\) )(\d+(?:\.\d+)?)", line)[1]
    return f"{'clang' if 'clang' in line else 'gcc'} {number}"
