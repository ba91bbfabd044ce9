#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds Bochs 3.0, the x86-64 emulator with AVX-512, VNNI, BF16 and AMX, if it is missing, and prints its path.

    tests/emulators/bochs.py

Bochs is built once, from the source package of Debian trixie with the corrections of bochs_corrections.py. The hash of
the package is checked. Bochs is kept in ~/.cache/attnkit (or under $XDG_CACHE_HOME), and nothing is installed.
Debian 12's binary package is not used: its Bochs is older, and is slow because of a built-in debugger."""

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

import bochs_corrections
from debian_sources import NotAvailable, alone, cache_folder, download, must_run

NOT_AVAILABLE = 98
SOURCE = "pool/main/b/bochs/bochs_3.0+dfsg.orig.tar.xz"
SHA256 = "78f6c73d4a6472d5130a87ab9dc306d02c7c71ed8e25b3a8ef642e2a7acd282b"
# Without --disable-show-ips, a timer's signal handler writes to the log. The handler waits for ever if Bochs itself is
# writing a message to the log at that time.
OPTIONS = ("--enable-cpu-level=6 --enable-x86-64 --enable-avx --enable-evex --enable-amx "
           "--enable-all-optimizations --disable-plugins --disable-docbook --disable-show-ips --with-nogui").split()
FLAGS = "-O2 -w"
COMMANDS = ("g++", "make", "tar", "xz")


def path_of_bochs():
    """Returns the path of Bochs with these options and corrections, whether it is built or not."""
    recipe = " ".join([SHA256, FLAGS, *OPTIONS]).encode() + Path(bochs_corrections.__file__).read_bytes()
    return cache_folder() / f"bochs-3.0-{hashlib.sha256(recipe).hexdigest()[:12]}"


def build(folder, target):
    """Downloads, corrects and compiles Bochs. The finished program moves to `target` in one atomic step."""
    missing = [command for command in COMMANDS if not shutil.which(command)]
    if missing:
        raise NotAvailable(f"to build Bochs, missing: {' '.join(missing)} "
                           "(packages: g++ make tar xz-utils)")
    download(SOURCE, SHA256, folder / "bochs.tar.xz")
    must_run(["tar", "-xf", "bochs.tar.xz", "--strip-components=1"], folder)
    bochs_corrections.apply(folder)
    ccache = ["ccache"] if shutil.which("ccache") else []
    compilers = [f"{variable}={' '.join([*ccache, compiler])}"
                 for variable, compiler in (("CC", "gcc"), ("CXX", "g++"))]
    must_run(["./configure", *OPTIONS, *compilers, f"CFLAGS={FLAGS}", f"CXXFLAGS={FLAGS}"], folder)
    must_run(["make", f"-j{len(os.sched_getaffinity(0))}", "bochs"], folder)
    must_run(["strip", "bochs"], folder)
    (folder / "bochs").replace(target)


def get_bochs():
    """Returns the path of Bochs. Builds Bochs first if it is missing."""
    target = path_of_bochs()
    if target.exists():
        return target
    try:
        with alone("bochs"):
            if not target.exists():
                print("bochs.py: building Bochs 3.0, once", file=sys.stderr, flush=True)
                with tempfile.TemporaryDirectory(dir=target.parent, prefix="bochs.") as folder:
                    build(Path(folder), target)
    except OSError as error:
        raise NotAvailable(f"no Bochs: {error}") from error
    return target


def main():
    if len(sys.argv) > 1:
        print(__doc__)
        return 2
    try:
        print(get_bochs())
    except NotAvailable as error:
        print(f"bochs.py: not available: {error}", file=sys.stderr)
        return NOT_AVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
