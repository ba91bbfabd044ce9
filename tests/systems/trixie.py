# SPDX-License-Identifier: Apache-2.0
"""Tests that gcc and clang of Debian trixie build the library, the command and the tests without warnings, and that
golden hashes are right. mmdebstrap unpacks the packages of trixie once into a folder of the user's cache. bubblewrap
runs the compilers with this folder as the root, because the compilers need trixie's C library."""

import hashlib
import re
import shutil

from steps import ROOM, ROOT, Failed, alone, cache_folder, consumers, mirrors, need, output_of

PACKAGES = "base-files,coreutils,dash,gcc,g++,clang,libc6-dev,meson,ninja-build,pkgconf,libcmocka-dev"


def root():
    """Returns the folder into which the packages are unpacked. Unpacks them if they are missing."""
    need(("mmdebstrap", "mmdebstrap"), ("bwrap", "bubblewrap"))
    target = cache_folder() / f"trixie-{hashlib.sha256(PACKAGES.encode()).hexdigest()[:12]}"
    with alone("trixie"):
        if not target.exists():
            part = target.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            mirror = next(url for url in mirrors() if "security" not in url)
            output_of("mmdebstrap", "--quiet", "--variant=extract", f"--include={PACKAGES}", "trixie", part, mirror)
            part.rename(target)
    return target


def inside(folder, *command, **variables):
    """Runs a command in the file system of trixie's packages, with this tree as /source and `folder` as /build. Returns
    the output of the command."""
    settings = [word for name, value in variables.items() for word in ("--setenv", name, value)]
    return output_of("bwrap", "--bind", root(), "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
                     "--ro-bind", ROOT, "/source", "--bind", folder, "/build", "--chdir", "/build", "--clearenv",
                     "--setenv", "PATH", "/usr/bin", "--setenv", "LANG", "C.UTF-8", *settings, *command)


def trixie(compiler, cxx):
    """Builds the library, the command and the tests, and checks a sample of the golden hashes. Returns what was found,
    in words."""
    folder = ROOM / f"trixie_{compiler}"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "build.ninja").exists():
        inside(folder, "meson", "setup", "/build", "/source", "--buildtype=release", "-Dwerror=true",
               "-Dsleef=disabled", "-Dbench=disabled", CC=compiler, CXX=cxx)
    inside(folder, "ninja")
    text = inside(folder, "tests/golden", "/source/tests/promises/golden.txt", "--every", "9")
    right = re.findall(r"^# (\w+): (\d+) cases, 0 differ$", text, re.M)
    missing = {"reference", *consumers.isas_here()} - {name for name, _ in right}
    if missing:
        raise Failed(f"no golden hashes of {sorted(missing)}\n{text[-3000:]}")
    said = inside(folder, compiler, "--version").splitlines()[0]
    return f"{said}: library, command and tests built without warnings; golden hashes are right, " + \
        ", ".join(f"{name} {count}" for name, count in right)


def by_gcc():
    """gcc of Debian trixie: no warning, right golden hashes"""
    return trixie("gcc", "g++")


def by_clang():
    """clang of Debian trixie: no warning, right golden hashes"""
    return trixie("clang", "clang++")
