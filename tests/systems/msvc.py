# SPDX-License-Identifier: Apache-2.0
"""Tests attnkit for Windows with Microsoft's ABI and C library. clang-cl builds the library, lld-link links it. Debian
has no headers of Microsoft. The headers and import libraries of Wine stand in for them, because they follow the same
ABI."""

import glob
import re
from concurrent.futures import ThreadPoolExecutor

from steps import PROBE, PROGRAM, ROOM, ROOT, Failed, Missing, check_exports, need, output_of, version
from windows import WINE, run_under_wine

CLANG_CL = next(iter(sorted(glob.glob("/usr/bin/clang-cl-*"))), "clang-cl")
HEADERS = "/usr/include/wine/wine"
LIBRARIES = "/usr/lib/x86_64-linux-gnu/wine/x86_64-windows"
MICROSOFTS_OWN = {"ntdll.dll", "ucrtbase.dll", "KERNEL32.dll"}
# The headers of Wine 8 do not declare these functions of C99, and its library does not define the symbol that the
# compiler refers to where a file computes with floats.
DECLARED = "float fmaf(float, float, float);\ndouble fma(double, double, double);\n"
DEFINED = "int _fltused = 0;\n"


def compiler(folder):
    """Returns the command of clang-cl, without a file."""
    own = output_of("clang", "-print-resource-dir").strip()
    system = [word for path in (f"{own}/include", f"{HEADERS}/msvcrt", f"{HEADERS}/windows")
              for word in ("-imsvc", path)]
    return [CLANG_CL, "--target=x86_64-pc-windows-msvc", "/O2", "/GS-", "/W3", "/WX", "/X", *system,
            f"/FI{folder / 'declared.h'}", "-I.", "-Iinclude"]


def as_clang_cl(flag):
    """Returns a flag of sources.txt as clang-cl takes it."""
    if flag.startswith("-std="):
        return "/std:" + flag.removeprefix("-std=")
    return flag if flag.startswith(("-D", "-m")) else f"/clang:{flag}"


def compile_library(folder, command):
    """Compiles every file. Files that define exported functions are compiled a second time, for the DLL. Returns the
    objects of the static library and the objects of the DLL."""
    def compile_file(line):
        path, *flags = line.split()
        made = [folder / kind / (path.replace("/", "_") + ".obj") for kind in ("static", "dll")]
        flags = [as_clang_cl(flag) for flag in flags if "tree-" not in flag]  # clang-cl does not know -ftree-...
        output_of(*command, *flags, "/c", path, f"/Fo{made[0]}", cwd=ROOT)
        if not path.startswith("dispatch/"):
            return made[0], made[0]
        output_of(*command, "-DATTNKIT_EXPORTS", *flags, "/c", path, f"/Fo{made[1]}", cwd=ROOT)
        return made

    lines = output_of(ROOT / "tools" / "sources", "--cpu", "x86_64").splitlines()
    with ThreadPoolExecutor(2) as pool:
        return zip(*pool.map(compile_file, lines))


def link(folder, name, *words):
    libraries = [f"{LIBRARIES}/lib{library}.a" for library in ("ucrtbase", "ntdll", "kernel32", "winecrt0")]
    output_of("lld-link", "/nodefaultlib", f"/out:{folder / name}", *words, folder / "defined.obj", *libraries)
    return folder / name


def exports_and_imports(library):
    text = output_of("llvm-readobj", "--coff-exports", "--coff-imports", library)
    exported = re.findall(r"Export \{[^}]*?Name: (\w+)", text)
    return exported, set(re.findall(r"Import \{\s*Name: (\S+)", text))


def by_clang_cl():
    """Windows x86-64 by clang-cl, with Microsoft's ABI: builds, runs under Wine"""
    need((CLANG_CL, "clang-tools"), ("lld-link", "lld"), ("llvm-lib", "llvm"), ("llvm-readobj", "llvm"))
    if not glob.glob(f"{HEADERS}/msvcrt/*.h"):
        raise Missing("no headers of Wine (package libwine-dev)")
    folder = ROOM / "clang_cl"
    for kind in ("static", "dll", "dispatch"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    (folder / "declared.h").write_text(DECLARED)
    (folder / "defined.c").write_text(DEFINED)
    command = compiler(folder)
    static, shared = compile_library(folder, command)
    for source in (PROGRAM, PROBE, folder / "defined.c"):
        output_of(*command, "/c", source, f"/Fo{folder / source.stem}.obj", cwd=ROOT)
    if "/EXPORT" in output_of("llvm-readobj", "--coff-directives", *static).upper():
        raise Failed("objects of the static library export functions")
    library = folder / "attnkit.lib"
    output_of("llvm-lib", f"/out:{library}", *static)
    dll = link(folder, "dispatch/attnkit.dll", "/dll", "/noentry", f"/implib:{folder / 'of_dll.lib'}", *shared)
    exported, imported = exports_and_imports(dll)
    count = check_exports(exported)
    if imported - MICROSOFTS_OWN:
        raise Failed(f"the DLL needs {sorted(imported - MICROSOFTS_OWN)}")
    program = link(folder, "program.exe", "/subsystem:console", folder / "program.obj", folder / "of_dll.lib")
    probe = link(folder, "probe.exe", "/subsystem:console", folder / f"{PROBE.stem}.obj", library)
    said = f"{version([CLANG_CL])}: built without warnings with the headers of Wine; the DLL exports " \
        f"the {count} functions of dispatch/attnkit.map, and needs {' and '.join(sorted(imported))}; the " \
        "static library exports none"
    if not WINE:
        raise Missing(f"{said}; not run: no Wine (package wine64)")
    ran = run_under_wine(folder, program, probe)
    return f"{said}; under Wine the DLL and the static library have the right hashes on {', '.join(ran)}"
