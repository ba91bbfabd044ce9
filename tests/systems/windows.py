# SPDX-License-Identifier: Apache-2.0
"""Tests attnkit for Windows on x86-64. The DLL and the static library are built by gcc and by clang. Programs that use
them run under Wine."""

import os
import re
import shutil
import subprocess

from steps import HERE, LIBRARY_ALONE, PROBE, PROGRAM, ROOM, ROOT, Failed, Missing, build, check_exports, \
    check_program, consumers, need, output_of, version

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


def run_under_wine(folder, program, probe):
    """Runs both programs on every instruction set of this CPU. Returns the instruction sets."""
    environment = dict(os.environ, WINEPREFIX=str(ROOM / "wine"), WINEDEBUG="-all",
                       WINEPATH=str(folder / "dispatch"))
    try:
        output_of(WINE, program, env=environment)  # the first run of Wine also prints that it makes its folder
        ran = check_program([WINE, program], env=environment)
        for isa in consumers.isas_here():
            output_of(WINE, probe, isa, env=dict(environment, ATTNKIT_ISA=isa))
    finally:
        if os.path.exists(WINESERVER):
            subprocess.run([WINESERVER, "-k"], env=environment, check=False)  # wineserver may have ended already
    if set(ran) != set(consumers.isas_here()):
        raise Failed(f"under Wine it ran on {ran} only")
    return ran


def windows(name, compiler, more=()):
    """Builds the library and two programs, checks the tables of exports and imports of the DLL, and runs the
    programs."""
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
    ran = run_under_wine(folder, folder / "program.exe", folder / "probe.exe")
    return f"{said}; under Wine the DLL and the static library have the right hashes on {', '.join(ran)}"


def by_gcc():
    """Windows x86-64 by gcc: builds, runs under Wine"""
    need(MINGW)
    return windows("windows_gcc", ["x86_64-w64-mingw32-gcc"])


def by_clang():
    """Windows x86-64 by clang: builds, runs under Wine"""
    need(("clang", "clang"), MINGW)
    libgcc = output_of("x86_64-w64-mingw32-gcc", "-print-libgcc-file-name").strip()
    return windows("windows_clang", ["clang", "--target=x86_64-w64-windows-gnu"], ["-L" + os.path.dirname(libgcc)])
