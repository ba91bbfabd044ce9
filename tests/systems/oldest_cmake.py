# SPDX-License-Identifier: Apache-2.0
"""Builds, installs and uses attnkit with CMake 3.14, the oldest version that attnkit's CMakeLists.txt allows. This
CMake is installed from PyPI into the user's cache."""

import shutil

from steps import CCACHE, ROOM, ROOT, Failed, check_program, consumers, from_pypi, need, output_of

CMAKE = "3.14.4"
PROJECTS = ROOT / "tests" / "consumers"


def build(cmake, folder, project, *options, targets=()):
    launcher = [f"-DCMAKE_{language}_COMPILER_LAUNCHER={program}" for program in CCACHE for language in ("C", "CXX")]
    shutil.rmtree(folder, ignore_errors=True)
    output_of(cmake, "-S", project, "-B", folder, "-G", "Ninja", f"-DATTNKIT_TREE={ROOT}", *launcher, *options)
    output_of(cmake, "--build", folder)
    for target in targets:
        output_of(cmake, "--build", folder, "--target", target)


def oldest():
    """CMake 3.14: add_subdirectory, and find_package of the package that it installed; static, shared, C++"""
    need(("ninja", "ninja-build"))
    cmake, folder = from_pypi("cmake", CMAKE) / "cmake", ROOM / "cmake-oldest"
    found = output_of(cmake, "--version").split()[2]
    if found != CMAKE:
        raise Failed(f"cmake --version says {found}")
    build(cmake, folder / "add_subdirectory", PROJECTS / "add_subdirectory")
    prefix = folder / "installed"
    shutil.rmtree(prefix, ignore_errors=True)
    build(cmake, folder / "attnkit", ROOT, f"-DATTNKIT_ISAS={consumers.NATIVE}", f"-DCMAKE_INSTALL_PREFIX={prefix}",
          targets=["install"])
    build(cmake, folder / "find_package", PROJECTS / "find_package", f"-DCMAKE_PREFIX_PATH={prefix}")
    possible = {"scalar", consumers.NATIVE} & set(consumers.isas_here())
    for used, isas in (("add_subdirectory", {"scalar"}), ("find_package", possible)):
        for kind in ("attnkit", "static", "shared", "cpp"):
            ran = check_program([folder / used / f"program_{kind}"])
            if set(ran) != isas:
                raise Failed(f"{used}: program_{kind} ran on {ran}")
    return f"CMake {CMAKE}: add_subdirectory and find_package, static, shared and C++, have the right hash"
