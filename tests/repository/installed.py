#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs a build into an empty folder, and uses the installed library as a user would. The script compiles and runs
examples/attention.c and, if there is a C++ compiler, examples/attention.cpp. The script compiles with the flags of
pkg-config, and links once with the shared and once with the static library. The shared library must export only names
that begin with attnkit_.

    tests/repository/installed.py BUILD_FOLDER MESON
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "attention"


def output_of(*command, **more):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          **more)
    if done.returncode != 0:
        sys.exit(f"installed.py: {' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def find(folder, name):
    found = [path for path in folder.rglob(name) if path.is_file()]
    if len(found) != 1:
        sys.exit(f"installed.py: {len(found)} files {name} were installed, 1 expected")
    return found[0]


def check_exports(library):
    lines = output_of("nm", "-D", "--defined-only", library).splitlines()
    symbols = [line.split()[-1] for line in lines if line.split()[-2] != "A"]  # symbols of type A are versions
    strangers = [name for name in symbols if not name.startswith("attnkit_")]
    if strangers or not symbols:
        sys.exit(f"installed.py: {library.name} exports {strangers or 'nothing'}")
    dynamic = output_of("readelf", "-d", library)
    if "[libattnkit.so.0]" not in dynamic:
        sys.exit(f"installed.py: {library.name} has no soname libattnkit.so.0")
    return symbols


def main():
    build, meson = Path(sys.argv[1]).resolve(), sys.argv[2]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        output_of(meson, "install", "-C", build, "--destdir", folder, "--no-rebuild")
        shared, static = find(folder, "libattnkit.so.0.*"), find(folder, "libattnkit.a")
        header, pc = find(folder, "attnkit.h"), find(folder, "attnkit.pc")
        find(folder, "attnkit")
        symbols = check_exports(shared)

        environment = dict(os.environ, PKG_CONFIG_PATH=str(pc.parent),
                           PKG_CONFIG_SYSROOT_DIR=name, LD_LIBRARY_PATH=str(shared.parent))
        compilers = {".c": [os.environ.get("CC", "cc")],
                     ".cpp": [os.environ.get("CXX", "c++"), "-std=c++17"]}
        for arguments in ([], ["--static"]):
            flags = output_of("pkg-config", "--cflags", "--libs", *arguments, "attnkit",
                              env=environment).split()
            if arguments:
                flags = [str(static) if flag == "-lattnkit" else flag for flag in flags]
            for suffix, compiler in compilers.items():
                if suffix != ".c" and not shutil.which(compiler[0]):
                    continue
                program = folder / "example"
                output_of(*compiler, EXAMPLE.with_suffix(suffix), "-o", program, *flags, "-lm")
                print(output_of(program, env=environment).strip())
        print(f"{header.name}, {shared.name}, {static.name}, {pc.name}: "
              f"{len(symbols)} symbols exported, all attnkit_*")


if __name__ == "__main__":
    main()
