# SPDX-License-Identifier: Apache-2.0
"""Tests the backend for ggml on 64-bit ARM. The cross compiler builds ggml, the backend and llama.cpp's own test of
operators. The check llamacpp_arm runs, under qemu, only a part of the test's cases of FLASH_ATTN_EXT: CASES cases,
which have all types of K and V. If these cases lack a value of a parameter, a further case with this value runs as
well. A further case has at most DEAREST multiply-adds. A value is left out if only cases with more multiply-adds have
the value. The check llamacpp_arm_all runs all cases, which takes hours. The sources of llama.cpp and the builds of ggml
are kept in the user's cache folder."""

import os
import re
import sys

from steps import CCACHE, HERE, LIBRARY_ALONE, ROOM, ROOT, Failed, build, need, output_of, version

sys.path[:0] = [str(ROOT / "tools" / "llamacpp"), str(ROOT / "tests" / "interop" / "llamacpp")]

import builds  # noqa: E402
import llamacpp  # noqa: E402
from ops import OP, PASSED, cases_in, part_of, values  # noqa: E402

CASES = 200
DEAREST = 3e8
LIMIT = 5400  # seconds, ten times as long as these cases take
PREFIX = "aarch64-linux-gnu-"
SYSROOT = "/usr/aarch64-linux-gnu"
# Without LD_LIBRARY_PATH, the loader of SYSROOT finds the C library of the package libc6:arm64 first if this package
# is installed. The loader does not work with a C library of another version: programs then hang in pthread_create.
QEMU = ["qemu-aarch64-static", "-cpu", "neoverse-n1", "-L", SYSROOT, "-E", f"LD_LIBRARY_PATH={SYSROOT}/lib"]
CROSS = ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", f"-DCMAKE_C_COMPILER={PREFIX}gcc",
         f"-DCMAKE_CXX_COMPILER={PREFIX}g++"]


def backend(library):
    """Builds the backend with the libattnkit.a of the build folder `library`. Returns the path of the backend."""
    folder = ROOM / "llamacpp_arm"
    launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={program}" for program in CCACHE]
    output_of("cmake", "-S", ROOT / "ggml", "-B", folder, "-G", "Ninja", *CROSS, *launcher,
              f"-DGGML_SOURCE={llamacpp.source() / 'ggml'}",
              f"-DATTNKIT_LIBRARY={library / 'dispatch' / 'libattnkit.a'}")
    output_of("cmake", "--build", folder)
    return folder / "libggml-attnkit.so"


def ops():
    """llama.cpp's test of operators with the backend on 64-bit ARM, under qemu: a part of the cases"""
    return run_ops(lambda cases: part_of(cases, CASES, DEAREST), LIMIT)


def all_ops():
    """llama.cpp's test of operators with the backend on 64-bit ARM, under qemu: all cases"""
    return run_ops(list, None)


def run_ops(choose, limit):
    """Runs the cases that `choose` takes from the list of all cases."""
    need((f"{PREFIX}g++", "g++-aarch64-linux-gnu"), ("qemu-aarch64-static", "qemu-user-static"), ("cmake", "cmake"))
    made = build("aarch64", "--cross-file", HERE.parent / "emulators" / "aarch64.ini", *LIBRARY_ALONE)
    folder = llamacpp.built("ggml", "aarch64", [*CROSS, "-DGGML_NATIVE=OFF"])
    program = ROOM / "llamacpp_arm" / "test-backend-ops"
    # By default, OpenMP's threads spin while they wait. ggml may start more threads than this machine has CPUs.
    environment = dict(os.environ, GGML_BACKEND_PATH=str(backend(made)), OMP_WAIT_POLICY="passive")
    builds.compile_program(program, [llamacpp.source() / "tests" / "test-backend-ops.cpp"], folder,
                           compiler=[f"{PREFIX}g++", *builds.COMPILER[1:]])
    run = [*QEMU, program]
    table = output_of(*run, "support", "-o", OP, "--output", "csv", "-b", "ATTNKIT", env=environment, timeout=limit)
    cases = cases_in(table[table.index('"backend_name"'):])  # the log stands before the table
    chosen = choose(cases)
    names = OP if len(chosen) == len(cases) else ",".join(f"{OP}({case})" for case, _ in chosen)
    text = output_of(*run, "test", "-o", names, "-b", "ATTNKIT", env=environment, timeout=limit)
    left_out, found = [case for case, supported in cases if not supported], PASSED.search(text)
    if left_out or not found or found.groups() != (str(len(chosen)), str(len(chosen))):
        raise Failed(f"not supported: {left_out}\n{text}")
    return f"{version([f'{PREFIX}g++'])}: all {len(cases)} cases of {OP} are supported, and {found[1]} were run and " \
        f"passed{untested(cases, chosen)}"


def untested(cases, chosen):
    """Returns a clause that names the values of parameters that no chosen case has, or "" if there are none."""
    def all_of(part):
        return set().union(*(values(case) for case, _ in part))
    missing = sorted(all_of(cases) - all_of(chosen))
    return f"; none of them has {' or '.join('='.join(pair) for pair in missing)}" if missing else ""
