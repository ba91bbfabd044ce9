# SPDX-License-Identifier: Apache-2.0
"""Tests attnkit for Windows with Microsoft's ABI and C library. clang-cl builds the library in three ways: from the
list that tools/sources prints, by meson, and by CMake. lld-link links the DLL and the programs. Debian has no headers
and libraries of Microsoft. The headers and import libraries of Wine take their place, because Wine follows Microsoft's
ABI."""

import glob
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

from steps import CCACHE, LIBRARY_ALONE, PROBE, PROGRAM, ROOM, ROOT, Failed, Missing, build, check_exports, consumers, \
    need, output_of, version
from windows import WINE, run_under_wine

CLANG_CL = next(iter(sorted(glob.glob("/usr/bin/clang-cl-*"))), "clang-cl")
HEADERS = "/usr/include/wine/wine"
LIBRARIES = "/usr/lib/x86_64-linux-gnu/wine/x86_64-windows"
LINKED = ("ucrtbase", "ntdll", "kernel32", "winecrt0")
# CMake links each program and each DLL with these libraries.
BY_CMAKE = ("kernel32", "user32", "gdi32", "winspool", "shell32", "ole32", "oleaut32", "uuid", "comdlg32", "advapi32")
MICROSOFTS_OWN = {"ntdll.dll", "ucrtbase.dll", "KERNEL32.dll"}
# The headers of Wine 8 do not declare these functions of C99. The libraries of Wine lack two symbols: the symbol that
# clang-cl puts into each object that computes with floats, and the function that Windows calls when it loads a DLL.
DECLARED = "float fmaf(float, float, float);\ndouble fma(double, double, double);\n"
DEFINED = "int _fltused = 0;\n" \
    "int __stdcall _DllMainCRTStartup(void *dll, unsigned reason, void *reserved)\n{\n    return 1;\n}\n"
# clang-cl mistakes a path such as /www/file.c for the option /w, unless the path comes after the word --.
COMPILER = """#!/bin/bash
words=() files=()
for word in "$@"; do
    case $word in --) ;; /*.c) files+=("$word") ;; *) words+=("$word") ;; esac
done
exec {command} "${{words[@]}}" ${{files:+--}} "${{files[@]}}"
"""
MESON = """[binaries]
c = '{compiler}'
ar = 'llvm-lib'
strip = 'llvm-strip'

[built-in options]
c_args = ['/GS-']
c_winlibs = [] # in place of the libraries of Windows that meson links by default; Debian has none of them
c_link_args = {link}

[properties]
needs_exe_wrapper = true

[host_machine]
system = 'windows'
cpu_family = 'x86_64'
cpu = 'x86_64'
endian = 'little'
"""


def write_once(path, text):
    """Writes the file only if its text changes. Otherwise the time of the file stays, so that ninja rebuilds
    nothing."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


class Tools:
    """The command `clang-cl` with the headers of Wine, and the arguments that make lld-link use Wine's libraries."""

    def __init__(self):
        need((CLANG_CL, "clang-tools"), ("lld-link", "lld"), ("llvm-lib", "llvm"), ("llvm-readobj", "llvm"))
        if not glob.glob(f"{HEADERS}/msvcrt/*.h"):
            raise Missing("no headers of Wine (package libwine-dev)")
        folder = ROOM / "clang_cl"
        folder.mkdir(parents=True, exist_ok=True)
        write_once(folder / "declared.h", DECLARED)  # every object depends on this file
        (folder / "defined.c").write_text(DEFINED)
        own = output_of("clang", "-print-resource-dir").strip()
        headers = [f"-imsvc {path}" for path in (f"{own}/include", f"{HEADERS}/msvcrt", f"{HEADERS}/windows")]
        self.compiler = folder / "clang-cl"
        self.compiler.write_text(COMPILER.format(command=" ".join(
            [CLANG_CL, "--target=x86_64-pc-windows-msvc", "/X", *headers, f"/FI{folder / 'declared.h'}"])))
        self.compiler.chmod(0o755)
        defined = folder / "defined.obj"
        output_of(self.compiler, "/O2", "/GS-", "/c", folder / "defined.c", f"/Fo{defined}")
        self.link = ["/nodefaultlib", str(defined), *(f"{LIBRARIES}/lib{name}.a" for name in LINKED)]

    def libraries(self):
        """Returns a folder that has the libraries of BY_CMAKE under the names that they have on Windows."""
        folder = self.compiler.parent / "libraries"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in BY_CMAKE:
            (folder / f"{name}.lib").symlink_to(f"{LIBRARIES}/lib{name}.a")
        return folder

    def compile(self, path, target, *flags):
        output_of(self.compiler, "/O2", "/GS-", "/W3", "/WX", "-I.", "-Iinclude", *flags, "/c", path, f"/Fo{target}",
                  cwd=ROOT)
        return target

    def program(self, source, library):
        """Builds a program in the folder of `library`, and links it with `library`: a static library or the import
        library of a DLL."""
        objects = self.compile(source, library.parent / f"{source.stem}.obj")
        target = objects.with_suffix(".exe")
        output_of("lld-link", f"/out:{target}", "/subsystem:console", objects, library, *self.link)
        return target


def as_clang_cl(flag):
    """Returns a flag of sources.txt in the form that clang-cl takes."""
    if flag.startswith("-std="):
        return "/std:" + flag.removeprefix("-std=")
    return flag if flag.startswith(("-D", "-m")) else f"/clang:{flag}"


def compile_library(tools, folder):
    """Compiles every file that tools/sources lists. The files of dispatch/, which define the exported functions, are
    compiled a second time, for the DLL. Returns the objects of the static library and the objects of the DLL."""
    def compile_file(line):
        path, *flags = line.split()
        made = [folder / kind / (path.replace("/", "_") + ".obj") for kind in ("static", "dll")]
        flags = [as_clang_cl(flag) for flag in flags]
        tools.compile(path, made[0], *flags)
        if not path.startswith("dispatch/"):
            return made[0], made[0]
        tools.compile(path, made[1], "-DATTNKIT_EXPORTS", *flags)
        return made

    lines = output_of(ROOT / "tools" / "sources", "--cpu", "x86_64").splitlines()
    with ThreadPoolExecutor(2) as pool:
        return zip(*pool.map(compile_file, lines))


def exports_and_imports(library):
    text = output_of("llvm-readobj", "--coff-exports", "--coff-imports", library)
    exported = re.findall(r"Export \{[^}]*?Name: (\w+)", text)
    return exported, set(re.findall(r"Import \{\s*Name: (\S+)", text))


def check_libraries(tools, dll, of_dll, static, isas=None):
    """Checks what the DLL exports and needs, and that the static library exports nothing. Builds one program with the
    DLL and one with the static library, and runs them under Wine. Raises Missing if there is no Wine. `of_dll` is the
    import library of the DLL. run_under_wine explains `isas`. Returns what was found, in words."""
    if "/EXPORT" in output_of("llvm-readobj", "--coff-directives", static).upper():
        raise Failed("objects of the static library export functions")
    exported, imported = exports_and_imports(dll)
    count = check_exports(exported)
    if imported - MICROSOFTS_OWN:
        raise Failed(f"the DLL needs {sorted(imported - MICROSOFTS_OWN)}")
    program, probe = tools.program(PROGRAM, of_dll), tools.program(PROBE, static)
    said = f"{version([CLANG_CL])}: built without warnings with the headers of Wine; the DLL exports " \
        f"the {count} functions of dispatch/attnkit.map, and needs {' and '.join(sorted(imported))}; the " \
        "static library exports none"
    if not WINE:
        raise Missing(f"{said}; not run: no Wine (package wine64)")
    ran = run_under_wine(dll.parent, program, probe, isas)
    return f"{said}; under Wine the DLL and the static library have the right hashes on {', '.join(ran)}"


def by_list():
    """Windows x86-64 by clang-cl, with Microsoft's ABI, from the list of tools/sources: builds, runs under Wine"""
    tools, folder = Tools(), ROOM / "clang_cl"
    for kind in ("static", "dll"):
        (folder / kind).mkdir(exist_ok=True)
    static, shared = compile_library(tools, folder)
    library, dll, of_dll = folder / "libattnkit.a", folder / "attnkit-0.dll", folder / "attnkit.lib"
    output_of("llvm-lib", f"/out:{library}", *static)
    output_of("lld-link", "/dll", f"/out:{dll}", f"/implib:{of_dll}", *shared, *tools.link)
    return check_libraries(tools, dll, of_dll, library)


def by_meson():
    """Windows x86-64 by clang-cl, with Microsoft's ABI, by meson: builds, runs under Wine"""
    tools = Tools()
    settings = ROOM / "clang_cl" / "meson.ini"
    settings.write_text(MESON.format(compiler=tools.compiler, link=tools.link))
    made = build("clang_cl_meson", "--cross-file", settings, *LIBRARY_ALONE) / "dispatch"
    return check_libraries(tools, made / "attnkit-0.dll", made / "attnkit.lib", made / "libattnkit.a")


def by_cmake():
    """Windows x86-64 by clang-cl, with Microsoft's ABI, by CMake with AVX2: installs, runs under Wine"""
    need(("cmake", "cmake"), ("llvm-rc", "llvm"), ("llvm-mt", "llvm"))
    tools, folder = Tools(), ROOM / "clang_cl_cmake"
    prefix = folder / "prefix"
    shutil.rmtree(prefix, ignore_errors=True)
    link = " ".join([*tools.link, f"/libpath:{tools.libraries()}", "/manifest:no"])
    launcher = [f"-DCMAKE_C_COMPILER_LAUNCHER={program}" for program in CCACHE]
    output_of("cmake", "-S", ROOT, "-B", folder / "build", "-G", "Ninja", "-DCMAKE_SYSTEM_NAME=Windows",
              "-DCMAKE_SYSTEM_PROCESSOR=AMD64", f"-DCMAKE_C_COMPILER={tools.compiler}", "-DCMAKE_LINKER=lld-link",
              "-DCMAKE_RC_COMPILER=llvm-rc", "-DCMAKE_MT=llvm-mt", f"-DCMAKE_AR={shutil.which('llvm-lib')}",
              "-DCMAKE_C_FLAGS=/GS- /W3 /WX", f"-DCMAKE_EXE_LINKER_FLAGS={link}",
              f"-DCMAKE_SHARED_LINKER_FLAGS={link}", f"-DCMAKE_INSTALL_PREFIX={prefix}",
              f"-DATTNKIT_ISAS={consumers.NATIVE}", *launcher)
    output_of("cmake", "--build", folder / "build")
    output_of("cmake", "--install", folder / "build")
    dll = prefix / "bin" / "attnkit-0.dll"
    return check_libraries(tools, dll, prefix / "lib" / "attnkit.lib", prefix / "lib" / "libattnkit.a",
                           ("scalar", consumers.NATIVE))
