#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests attnkit with other compilers and for other systems than this machine has. Each check builds attnkit, then runs
as much as the emulators of this machine allow, and prints what it has tested. Most checks fail if there is a warning.
docs/systems.md has a table of the results.

    tests/systems/systems.py BUILD_FOLDER MESON [CHECK...]

attnkit is built in build-systems/. Most checks keep their build there, so that another run compiles only the files that
have changed. Files from Debian and PyPI, and builds of other projects, are kept in ~/.cache/attnkit (or under
$XDG_CACHE_HOME). A check is skipped if a program or a header that it needs is missing. Its line of TAP then names the
package to install. A check is also skipped if a source from Debian cannot be downloaded. The check llamacpp_arm_all
runs only if it is named, because it takes hours. Prints TAP.
"""

import subprocess
import sys
import traceback
from pathlib import Path

import archive
import debian
import llamacpp_arm
import msvc
import oldest_cmake
import packagers
import riscv64
import steps
import trixie
import windows
import zig
from steps import Failed, Missing, NotAvailable

CHECKS = {"windows_gcc": windows.by_gcc, "windows_clang": windows.by_clang, "windows_cmake": windows.by_cmake,
          "clang_cl": msvc.by_list, "clang_cl_meson": msvc.by_meson, "clang_cl_cmake": msvc.by_cmake,
          "riscv64": riscv64.under_qemu,
          "macos": zig.macos, "android": zig.android, "musl": zig.musl,
          "trixie_gcc": trixie.by_gcc, "trixie_clang": trixie.by_clang, "archive": archive.of_meson,
          "debian": debian.packages, "conan": packagers.conan, "vcpkg": packagers.vcpkg,
          "cmake_oldest": oldest_cmake.oldest,
          "llamacpp_arm": llamacpp_arm.ops}
BY_NAME = {"llamacpp_arm_all": llamacpp_arm.all_ops}


def main():
    steps.consumers.BUILD = Path(sys.argv[1]).resolve()
    steps.meson[:] = [sys.argv[2]]
    steps.ROOM.mkdir(exist_ok=True)
    checks = CHECKS | BY_NAME
    names, failed = sys.argv[3:] or list(CHECKS), 0
    print(f"1..{len(names)}")
    for number, name in enumerate(names, 1):
        title = f"{number} - {checks[name].__doc__}"
        try:
            said = checks[name]()
            print(f"ok {title}\n# {name}: {said}", flush=True)
        except (Missing, NotAvailable) as missing:
            print(f"ok {title} # SKIP {' '.join(str(missing).split())}", flush=True)
        except (Failed, OSError, subprocess.TimeoutExpired):
            failed += 1
            print(f"not ok {title}")
            print("\n".join("# " + line for line in traceback.format_exc().splitlines()[-40:]), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
