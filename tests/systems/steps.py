# SPDX-License-Identifier: Apache-2.0
"""The steps that the checks of systems share. The steps look for needed programs, install programs from PyPI, and build
by meson. They also check the hash that the program of tests/consumers prints, and compare the functions that a library
exports with dispatch/attnkit.map. This file puts tests/consumers, tests/emulators and tests/repository on Python's
path. The checks import the helpers of these folders from this file."""

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
    """Something that this system lacks, usually a program, and the package that has it."""


def need(*programs):
    """Raises Missing for the first missing program. `programs` are pairs (name, package)."""
    for program, package in programs:
        if not shutil.which(program):
            raise Missing(f"no {program} (package {package})")


def from_pypi(name, version):
    """Returns the folder with the programs of a package of PyPI. Installs the package in a virtual environment in the
    user's cache if it is missing."""
    target = cache_folder() / f"{name}-{version}"
    with alone(name):
        if not (target / "complete").exists():
            shutil.rmtree(target, ignore_errors=True)
            output_of(sys.executable, "-m", "venv", target)
            output_of(target / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", f"{name}=={version}")
            (target / "complete").touch()
    return target / "bin"


def build(name, *options, targets=()):
    """Builds attnkit with meson in the folder `name` of ROOM. Any warning of the compiler is an error. A folder that is
    set up already keeps its old options. Returns the folder."""
    folder = ROOM / name
    if not (folder / "build.ninja").exists():
        shutil.rmtree(folder, ignore_errors=True)
        output_of(*meson, "setup", folder, ROOT, "--buildtype=release", "-Dwerror=true", "-Dsleef=disabled", *options,
                  env={key: value for key, value in os.environ.items() if key not in ("CC", "CXX")})
    output_of("ninja", "-C", folder, *targets)
    return folder


def check_program(command, **more):
    """Runs the program of tests/consumers, and checks its hash. Returns the instruction sets on which the program
    ran."""
    text = output_of(*command, **more).strip()
    expected, match = consumers.expected_hash(ROOM), RESULT.match(text)
    if not match or match[2] != expected:
        raise Failed(f"{command[-1]}: {text}, expected {expected}")
    return match[1].split()


def check_exports(names):
    """Compares exported names with dispatch/attnkit.map. Returns the number of names."""
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
