# SPDX-License-Identifier: Apache-2.0
"""Tests the backend for ggml on 64-bit ARM. ggml, the backend and llama.cpp's own test of operators are built by the
cross compiler, and the test runs a part of its cases of FLASH_ATTN_EXT under qemu. The sources of llama.cpp and the
builds of ggml are kept in the user's cache folder."""

import os
import re
import sys

from steps import CCACHE, HERE, LIBRARY_ALONE, ROOM, ROOT, Failed, build, need, output_of, version

sys.path[:0] = [str(ROOT / "tools" / "llamacpp"), str(ROOT / "tests" / "interop" / "llamacpp")]

import builds  # noqa: E402
import llamacpp  # noqa: E402
from ops import OP, PASSED, cases_in, part_of  # noqa: E402

CASES = 200
PREFIX = "aarch64-linux-gnu-"
QEMU = ["qemu-aarch64-static", "-cpu", "neoverse-n1", "-L", "/usr/aarch64-linux-gnu"]
CROSS = ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", f"-DCMAKE_C_COMPILER={PREFIX}gcc",
         f"-DCMAKE_CXX_COMPILER={PREFIX}g++"]


def backend(library):
    """Builds the backend with the libattnkit.a of the build folder `library`."""
    folder = ROOM / "llamacpp_arm"
    launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={program}" for program in CCACHE]
    output_of("cmake", "-S", ROOT / "ggml", "-B", folder, "-G", "Ninja", *CROSS, *launcher,
              f"-DGGML_SOURCE={llamacpp.source() / 'ggml'}",
              f"-DATTNKIT_LIBRARY={library / 'dispatch' / 'libattnkit.a'}")
    output_of("cmake", "--build", folder)
    return folder / "libggml-attnkit.so"


def ops():
    """llama.cpp's test of operators with the backend on 64-bit ARM, under qemu"""
    need((f"{PREFIX}g++", "g++-aarch64-linux-gnu"), ("qemu-aarch64-static", "qemu-user-static"), ("cmake", "cmake"))
    made = build("aarch64", "--cross-file", HERE.parent / "emulators" / "aarch64.ini", *LIBRARY_ALONE)
    folder = llamacpp.built("ggml", "aarch64", [*CROSS, "-DGGML_NATIVE=OFF"])
    program = ROOM / "llamacpp_arm" / "test-backend-ops"
    environment = dict(os.environ, GGML_BACKEND_PATH=str(backend(made)))
    builds.compile_program(program, [llamacpp.source() / "tests" / "test-backend-ops.cpp"], folder,
                           compiler=[f"{PREFIX}g++", *builds.COMPILER[1:]])
    run = [*QEMU, program]
    table = output_of(*run, "support", "-o", OP, "--output", "csv", "-b", "ATTNKIT", env=environment)
    cases = part_of(cases_in(table[table.index('"backend_name"'):]), CASES)  # before the table stands the log
    left_out = [case for case, supported in cases if not supported]
    text = output_of(*run, "test", "-o", ",".join(f"{OP}({case})" for case, _ in cases), "-b", "ATTNKIT",
                     env=environment)
    found = PASSED.search(text)
    if left_out or not found or found.groups() != (str(CASES), str(CASES)):
        raise Failed(f"not supported: {left_out}\n{text}")
    types = {re.search(r"type_K=(\w+)", case)[1] for case, _ in cases}
    return f"{version([f'{PREFIX}g++'])}: {found[1]} of {CASES} cases of {OP} passed, over {len(types)} types of K"
