# SPDX-License-Identifier: Apache-2.0
"""Tests the recipe of Conan and the port of vcpkg. The recipe and the port each make a package with the static library
and a package with the shared library. A project of CMake uses each package. Conan is installed from PyPI into the
user's cache. Neither Debian nor PyPI has a package of vcpkg, so vcpkg.cmake stands in for vcpkg."""

import os
import shutil

from steps import HERE, ROOM, ROOT, Failed, check_program, consumers, from_pypi, need, output_of

CONAN = "2.34.0"
CONSUMER = ROOT / "tests" / "consumers" / "find_package"
PORT = ROOT / "packaging" / "vcpkg"
ALL_PARTS = "append;linear;layer;integers;products"


def consume(folder, *options, **more):
    """Builds and runs a program with the package that find_package finds. Returns the instruction sets on which
    the program ran."""
    shutil.rmtree(folder, ignore_errors=True)
    output_of("cmake", "-S", CONSUMER, "-B", folder, "-G", "Ninja", "-DKINDS=attnkit", "-DLANGUAGES=C",
              "-DCMAKE_BUILD_TYPE=Release", *options)
    output_of("cmake", "--build", folder)
    return check_program([folder / "program_attnkit"], **more)


def conan():
    """The recipe of Conan: conan create, a static and a shared package, and a program with each package"""
    need(("cmake", "cmake"), ("ninja", "ninja-build"))
    command, folder, ran = from_pypi("conan", CONAN) / "conan", ROOM / "conan", {}
    shutil.rmtree(folder, ignore_errors=True)
    environment = dict(os.environ, CONAN_HOME=str(folder / "home"))
    output_of(command, "profile", "detect", env=environment)
    for kind, isas, parts in (("static", consumers.NATIVE, ALL_PARTS), ("shared", "scalar", "")):
        options = ["-c", "tools.cmake.cmaketoolchain:generator=Ninja"]
        options += [word for option in (f"shared={kind == 'shared'}", f"isas={isas}", f"parts={parts}")
                   for word in ("-o", f"attnkit/*:{option}")]
        output_of(command, "create", ROOT / "packaging" / "conan", *options, env=environment)
        made = folder / kind
        output_of(command, "install", "--requires=attnkit/0.1.0", *options, "-g", "CMakeDeps", "-of", made,
                  env=environment)
        ran[kind] = consume(folder / f"program_{kind}", f"-DCMAKE_PREFIX_PATH={made}")
    possible = {"scalar", consumers.NATIVE} & set(consumers.isas_here())
    if set(ran["static"]) != possible or ran["shared"] != ["scalar"]:
        raise Failed(f"the programs ran on {ran}")
    return f"Conan {CONAN}: conan create makes a static package with all parts, and a shared package with attention " \
        "alone; programs that find them by CMakeDeps have the right hash"


def check_package(package, kind):
    """Checks the files of a package of vcpkg."""
    files = {str(path.relative_to(package)) for path in package.rglob("*") if not path.is_dir()}
    libraries = {name for name in files if ".so" in name or name.endswith(".a")}
    wanted = {"libattnkit.a"} if kind == "static" else {"libattnkit.so", "libattnkit.so.0", "libattnkit.so.0.1.0"}
    needed = {"share/attnkit/copyright", "share/attnkit/attnkit-config.cmake", "include/attnkit.h",
              "lib/pkgconfig/attnkit.pc", "debug/lib/pkgconfig/attnkit.pc"}
    misplaced = {name for name in files if name.startswith(("debug/include/", "debug/share/", "debug/lib/cmake/",
                                                            "lib/cmake/"))}
    if misplaced or not needed <= files or libraries != {f"{lib}/{name}" for lib in ("lib", "debug/lib")
                                                         for name in wanted}:
        raise Failed(f"{kind}: misplaced {sorted(misplaced)}, missing {sorted(needed - files)}, {sorted(libraries)}")


def vcpkg():
    """The port of vcpkg, with a stand-in for vcpkg: a static and a shared package, and a program with each package"""
    need(("cmake", "cmake"), ("ninja", "ninja-build"))
    folder = ROOM / "vcpkg"
    launcher = [f"-DCMAKE_C_COMPILER_LAUNCHER={program}" for program in consumers.CCACHE]
    for kind, linkage, features in (("static", "static", "append"), ("shared", "dynamic", ALL_PARTS)):
        package = folder / f"package_{kind}"
        shutil.rmtree(package, ignore_errors=True)
        options = ";".join(["-DATTNKIT_ISAS=scalar", *launcher])
        output_of("cmake", f"-DCURRENT_PORT_DIR={PORT}", f"-DCURRENT_PACKAGES_DIR={package}",
                  f"-DCURRENT_BUILDTREES_DIR={folder / kind}", f"-DFEATURES={features}",
                  f"-DVCPKG_LIBRARY_LINKAGE={linkage}", f"-DOPTIONS={options}", "-P", HERE / "vcpkg.cmake")
        check_package(package, kind)
        consume(folder / f"program_{kind}", f"-Dattnkit_DIR={package / 'share' / 'attnkit'}")
    return "the port builds and installs by CMake's own calls in place of vcpkg's functions; programs that find the " \
        "static and the shared package have the right hash; not run by vcpkg"
