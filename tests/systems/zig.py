# SPDX-License-Identifier: Apache-2.0
"""Tests attnkit for macOS, Linux with musl, and Android. Zig's clang makes the builds for macOS and musl, and has the
headers and libraries of these systems. Another clang makes the build for Android, with Zig's headers of Linux and musl
in place of Android's. Zig is installed from PyPI into the user's cache."""

import os
import shutil
import sys

from steps import CCACHE, PROGRAM, ROOM, ROOT, Failed, alone, cache_folder, check_exports, check_program, \
    compile_listed, consumers, need, output_of, version

ZIG = "0.15.2"
STRICT = ("-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wshadow", "-Wundef", "-Wvla", "-Werror")
# Zig's clang does not take -march with features. It takes -mcpu with a CPU that has the features.
CPUS = {"-march=armv8.2-a+dotprod": "-mcpu=apple_m1", "-march=armv8.2-a+dotprod+i8mm": "-mcpu=apple_m2"}
# The functions that the library may import: functions of ISO C, and queries about the process and the CPU. The compiler
# for macOS replaces some calls by calls of the functions in the last line of this set.
MAY_IMPORT = {"fma", "fmaf", "fmaxf", "fminf", "getenv", "memcpy", "memmove", "memset", "snprintf", "sqrt", "strcmp",
              "strlen", "strncmp", "vsnprintf", "getauxval", "sysctlbyname", "getuid", "geteuid", "getgid", "getegid",
              "bzero", "memset_pattern16", "__memcpy_chk", "__memset_chk"}


def zig():
    """Returns the folder of Zig's package, which has the program and all headers. Installs the package if it is
    missing."""
    target = cache_folder() / f"ziglang-{ZIG}"
    with alone("ziglang"):
        if not target.exists():
            part = target.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            output_of(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile",
                      "--disable-pip-version-check", "--only-binary", ":all:", "--target", part, f"ziglang=={ZIG}")
            part.rename(target)
    os.environ["ZIG_GLOBAL_CACHE_DIR"] = str(ROOM / "zig-cache")
    os.environ["ZIG_LOCAL_CACHE_DIR"] = str(ROOM / "zig-cache")
    return target / "ziglang"


def compiler_for(target):
    return [zig() / "zig", "cc", "-target", target]


def symbols(library):
    """Returns the names that a library exports, and the names that it imports. Leaves out the first _ of a name, which
    macOS adds, and the names of macOS's dynamic linker."""
    found = []
    for kind in ("--defined-only", "--undefined-only"):
        lines = output_of("llvm-nm", "--extern-only", "--just-symbol-name", kind, library).split()
        found.append({line.removeprefix("_") for line in lines if not line.startswith("dyld_")})
    return found


def check_library(library):
    """Checks the exports and imports of a shared library. Returns a description of them."""
    exported, imported = symbols(library)
    count = check_exports(name for name in exported if name.startswith("attnkit_"))
    if imported - MAY_IMPORT or not imported & MAY_IMPORT:
        raise Failed(f"{library} imports {sorted(imported)}")
    return f"exports the {count} functions of dispatch/attnkit.map, and imports {', '.join(sorted(imported))}"


def macos():
    """macOS on ARM: compiled with the headers of macOS, linked, not run"""
    need(("llvm-nm", "llvm"))
    folder, compiler = ROOM / "macos", compiler_for("aarch64-macos.11.0")
    objects = compile_listed(folder, ROOT, compiler, ["--cpu", "aarch64"], *STRICT, instead=CPUS)
    library = folder / "libattnkit.dylib"
    output_of(*compiler, "-shared", *objects, "-o", library)
    output_of(*compiler, "-I", ROOT / "include", PROGRAM, library, "-o", folder / "program")
    return f"{version(compiler)} of Zig {ZIG}: no warning; the library {check_library(library)}; a program links; " \
        "not run"


def musl():
    """Linux with musl: compiled, linked statically, runs"""
    folder, compiler = ROOM / "musl", compiler_for(f"{os.uname().machine}-linux-musl")
    # The build has no AVX-512, because Zig's clang does not accept assembly with operands of 64 bytes.
    objects = compile_listed(folder, ROOT, compiler, ["--isas", consumers.NATIVE], *STRICT)
    output_of(*compiler, "-static", "-I", ROOT / "include", PROGRAM, *objects, "-o", folder / "program")
    ran = check_program([folder / "program"])
    return f"{version(compiler)} of Zig {ZIG}: no warning; a static program has the right hashes on {', '.join(ran)}"


def android():
    """Android on ARM: compiled with the headers of Linux and musl, linked without Android's C library, not run"""
    need(("clang", "clang"), ("ld.lld", "lld"), ("llvm-nm", "llvm"))
    folder, compiler = ROOM / "android", ["clang", "--target=aarch64-linux-android24"]
    headers = zig() / "lib" / "libc" / "include"
    found = [word for name in ("aarch64-linux-musl", "generic-musl", "aarch64-linux-any", "any-linux-any")
             for word in ("-isystem", headers / name)]
    objects = compile_listed(folder, ROOT, [*CCACHE, *compiler], ["--cpu", "aarch64"], *STRICT, "-nostdlibinc", *found)
    library = folder / "libattnkit.so"
    output_of(*compiler, "-shared", "-nostdlib", "-fuse-ld=lld",
              f"-Wl,--version-script={ROOT / 'dispatch' / 'attnkit.map'}", *objects, "-o", library)
    return f"{version(compiler)}: no warning; the library {check_library(library)}; not run"
