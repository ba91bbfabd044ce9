# SPDX-License-Identifier: Apache-2.0
"""Tests attnkit for Windows on x86-64. gcc and clang build the DLL and the static library. Programs that use the DLL or
the static library run under Wine."""

import os
import re
import shutil
import subprocess

from steps import HERE, LIBRARY_ALONE, PROBE, PROGRAM, ROOM, ROOT, Failed, Missing, build, check_exports, \
    check_program, consumers, meson, need, output_of, version

MINGW = ("x86_64-w64-mingw32-gcc", "gcc-mingw-w64-x86-64-win32")
WINDOWS_OWN = {"KERNEL32.dll", "msvcrt.dll"}
WINE = next((path for path in (shutil.which("wine64"), "/usr/lib/wine/wine64") if path and os.path.exists(path)), None)
WINESERVER = "/usr/lib/wine/wineserver64"


def tables(library):
    """Returns the names that a DLL exports, and the DLLs that it needs."""
    text = output_of("x86_64-w64-mingw32-objdump", "-p", library)
    exports = text.split("[Ordinal/Name Pointer] Table")[1].split("\n\n")[0]
    return re.findall(r"\] (?:\+base\[ *\d+\] +)?(?:[0-9a-f]+ )?(\w+)$", exports, re.M), \
        set(re.findall(r"DLL Name: (\S+)", text))


def run_under_wine(folder, program, probe, isas=None):
    """Runs `program` under Wine. The program must use all instruction sets of this CPU or, if `isas` is given, all that
    are also in `isas`. It must use no others. If `probe` is not None, also runs `probe` once on each of these
    instruction sets. The DLL is in `folder`. Returns the instruction sets that the program used."""
    environment = dict(os.environ, WINEPREFIX=str(ROOM / "wine"), WINEDEBUG="-all", WINEPATH=str(folder))
    wanted = [isa for isa in consumers.isas_here() if not isas or isa in isas]
    try:
        # In its first run, Wine makes its folder and prints messages. check_program expects only the program's line.
        output_of(WINE, program, env=environment)
        ran = check_program([WINE, program], env=environment)
        for isa in wanted if probe else ():
            output_of(WINE, probe, isa, env=dict(environment, ATTNKIT_ISA=isa))
    finally:
        if os.path.exists(WINESERVER):
            subprocess.run([WINESERVER, "-k"], env=environment, check=False)  # wineserver may have ended already
    if set(ran) != set(wanted):
        raise Failed(f"under Wine the program ran on {ran}, expected {wanted}")
    return ran


def windows(name, compiler, more=()):
    """Builds the library and two programs, checks the tables of exports and imports of the DLL, and runs the programs
    under Wine. Raises Missing if there is no Wine. Returns what was found, in words."""
    folder = build(name, "--cross-file", HERE / f"{name}.ini", *LIBRARY_ALONE)
    exports, imports = tables(folder / "dispatch" / "libattnkit-0.dll")
    count = check_exports(exports)
    if imports - WINDOWS_OWN:
        raise Failed(f"the DLL needs {sorted(imports - WINDOWS_OWN)}")
    command = [*compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-I", ROOT, "-I", ROOT / "include"]
    output_of(*command, PROGRAM, folder / "dispatch" / "libattnkit.dll.a", *more, "-o", folder / "program.exe")
    output_of(*command, PROBE, folder / "dispatch" / "libattnkit.a", *more, "-o", folder / "probe.exe")
    said = f"{version(compiler)}: built without warnings; the DLL exports the {count} functions of " \
        f"dispatch/attnkit.map, and needs {' and '.join(sorted(imports))}"
    if not WINE:
        raise Missing(f"{said}; not run: no Wine (package wine64)")
    ran = run_under_wine(folder / "dispatch", folder / "program.exe", folder / "probe.exe")
    return f"{said}; under Wine the DLL and the static library have the right hashes on {', '.join(ran)}"


def by_gcc():
    """Windows x86-64 by gcc: builds, runs under Wine"""
    need(MINGW)
    return windows("windows_gcc", ["x86_64-w64-mingw32-gcc"])


def by_cmake():
    """Windows x86-64 by gcc and CMake: installs the files that meson installs; find_package under Wine"""
    need(MINGW, ("cmake", "cmake"), *[] if WINE else [("wine64", "wine64")])
    folder = ROOM / "windows_cmake"
    meson_build = build("windows_scalar", "--cross-file", HERE / "windows_gcc.ini", *LIBRARY_ALONE, "-Disas=scalar")
    shutil.rmtree(folder / "meson", ignore_errors=True)
    output_of(*meson, "install", "-C", meson_build, "--no-rebuild", "--destdir", folder / "meson")
    shutil.rmtree(folder / "prefix", ignore_errors=True)
    cross = ["-G", "Ninja", "-DCMAKE_SYSTEM_NAME=Windows", "-DCMAKE_SYSTEM_PROCESSOR=AMD64",
             f"-DCMAKE_C_COMPILER={MINGW[0]}", "-DCMAKE_EXE_LINKER_FLAGS=-static-libgcc",
             "-DCMAKE_SHARED_LINKER_FLAGS=-static-libgcc"]
    output_of("cmake", "-S", ROOT, "-B", folder / "build", *cross, "-DATTNKIT_ISAS=scalar", "-DCMAKE_C_FLAGS=-Werror",
              f"-DCMAKE_INSTALL_PREFIX={folder / 'prefix'}")
    output_of("cmake", "--build", folder / "build")
    output_of("cmake", "--install", folder / "build")
    theirs, ours = (consumers.installed(consumers.one(folder / name, "attnkit.h").parents[1])
                    for name in ("prefix", "meson"))
    if theirs != ours or len(ours) < 10:
        raise Failed(f"meson alone: {sorted(ours - theirs)}\nCMake alone: {sorted(theirs - ours)}")
    output_of("cmake", "-S", consumers.HERE / "find_package", "-B", folder / "programs", *cross, "-DLANGUAGES=C",
              f"-Dattnkit_DIR={folder / 'prefix' / 'lib' / 'cmake' / 'attnkit'}")
    output_of("cmake", "--build", folder / "programs")
    for kind in ("shared", "static"):
        run_under_wine(folder / "prefix" / "bin", folder / "programs" / f"program_{kind}.exe", None, ["scalar"])
    return f"{version([MINGW[0]])}: CMake installs the {len(ours)} files that meson installs; under Wine, programs " \
        "that find_package links with the DLL and with the static library have the right hash on scalar"


def by_clang():
    """Windows x86-64 by clang: builds, runs under Wine"""
    need(("clang", "clang"), MINGW)
    libgcc = output_of("x86_64-w64-mingw32-gcc", "-print-libgcc-file-name").strip()
    return windows("windows_clang", ["clang", "--target=x86_64-w64-windows-gnu"], ["-L" + os.path.dirname(libgcc)])
