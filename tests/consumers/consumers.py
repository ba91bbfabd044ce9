#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that projects outside the tree can use attnkit by CMake, pkg-config, meson and plain lists of files. Each
project compiles program.c, as C or as C++, and this test runs the program. All programs must print the same hash.
The projects see only the folders and build files of the library. In addition, CMake and meson must compile the same
files and install the same files.

    tests/consumers/consumers.py BUILD_FOLDER MESON

All files are made in build-consumers/. In a later run, CMake and meson compile only the files that have changed.
Prints TAP.
"""

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
ROOM = ROOT / "build-consumers"
TREE = ROOM / "tree"
PROJECTS = ROOM / "projects"
PREFIX = ROOM / "prefix"  # CMake installs here
STAGE = ROOM / "stage"  # meson installs here
LIBRARY = ("CMakeLists.txt", "meson.build", "meson_options.txt", "sources.txt", "cmake", "dispatch", "include",
           "kernels")
NATIVE = {"x86_64": "avx2", "aarch64": "neon"}.get(platform.machine(), "scalar")
COMPILER = shlex.split(os.environ.get("CC", "cc"))
CXX = shlex.split(os.environ.get("CXX", "c++"))
CCACHE = ["ccache"] if shutil.which("ccache") else []
RESULT = re.compile(r"^attnkit \d+\.\d+\.\d+:((?: \w+)+) ([0-9a-f]{16})$")


class Failed(Exception):
    """A check has failed. The text of the exception says why."""


def output_of(*command, **more):
    command = [str(word) for word in command]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, **more)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}\n{done.stdout}")
    return done.stdout


def copy_changed(source, target):
    """Makes `target` a copy of the folder `source`. Of ROOT, only the files and folders in LIBRARY are copied.
    Unchanged files keep their times, so that they are not compiled again."""
    wanted = {}
    for name in LIBRARY if source == ROOT else [path.name for path in source.iterdir()]:
        paths = [source / name] if (source / name).is_file() else (source / name).rglob("*")
        wanted |= {target / path.relative_to(source): path for path in paths if path.is_file()}
    for path in list(target.rglob("*")):
        if path.is_file() and path not in wanted and "subprojects" not in path.parts:
            path.unlink()
    for path, origin in wanted.items():
        if not path.exists() or path.read_bytes() != origin.read_bytes():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(origin, path)


def run_program(program, *isas, **more):
    """Runs the program and returns the hash that it prints. The program must have run on the instruction sets `isas`,
    as far as the CPU has them."""
    text = output_of(program, **more).strip()
    match = RESULT.match(text)
    if not match:
        raise Failed(f"{program}: {text}")
    ran = match[1].split()
    possible = {name for name in isas if name == "scalar" or name in isas_here()}
    if set(ran) != possible:
        raise Failed(f"{program} ran on {ran}, expected {sorted(possible)}")
    return match[2]


def isas_here():
    listing = output_of(BUILD / "tools" / "attnkit", "info")
    return re.findall(r"^(\w+) +yes +yes ", listing, re.M)


def expected_hash(folder):
    """Returns the hash that the program prints with the library of BUILD. The program is compiled into `folder`."""
    program = folder / "program"
    library = BUILD / "dispatch" / "libattnkit.a"
    output_of(*COMPILER, "-I", ROOT / "include", HERE / "program.c", library, "-lm", "-o", program)
    return run_program(program, *isas_here())


# ------------------------------------------------------------------------------------- consumers


def cmake_build(folder, project, *options):
    launcher = [f"-DCMAKE_C_COMPILER_LAUNCHER={program}" for program in CCACHE]
    output_of("cmake", "-S", project, "-B", folder, "-G", "Ninja", "-DFETCHCONTENT_FULLY_DISCONNECTED=ON",
              f"-DATTNKIT_TREE={TREE}", *launcher, *options)
    output_of("cmake", "--build", folder)


def programs_in(folder, names, *isas):
    return [run_program(folder / name, *isas) for name in names]


def add_subdirectory():
    """CMake, add_subdirectory: attention and scalar alone; static, shared, C++"""
    folder = ROOM / "add_subdirectory"
    cmake_build(folder, PROJECTS / "add_subdirectory")
    return programs_in(folder, ("program_attnkit", "program_static", "program_shared", "program_cpp"), "scalar")


def fetch_content():
    """CMake, FetchContent from a local tree, shared"""
    folder = ROOM / "fetch_content"
    cmake_build(folder, PROJECTS / "fetch_content", "-DBUILD_SHARED_LIBS=ON")
    linked = output_of("readelf", "-d", folder / "program")
    if "[libattnkit.so.0]" not in linked:
        raise Failed("BUILD_SHARED_LIBS gave no shared library")
    return programs_in(folder, ("program",), "scalar")


def find_package():
    """CMake, find_package of the package that CMake installed; static, shared, C++"""
    folder = ROOM / "find_package"
    cmake_build(folder, PROJECTS / "find_package", f"-DCMAKE_PREFIX_PATH={PREFIX}")
    return programs_in(folder, ("program_attnkit", "program_static", "program_shared", "program_cpp"),
                       "scalar", NATIVE)


def pkg_config():
    """pkg-config in C99, C11 and C++17, shared and static"""
    found = []
    pc = next(PREFIX.rglob("attnkit.pc"))
    environment = dict(os.environ, PKG_CONFIG_PATH=str(pc.parent), LD_LIBRARY_PATH=str(pc.parents[1]))
    program = ROOM / "program_pkg_config"
    for kind in ([], ["--static"]):
        flags = output_of("pkg-config", "--cflags", "--libs", *kind, "attnkit", env=environment).split()
        if kind:
            flags = [str(pc.parents[1] / "libattnkit.a") if flag == "-lattnkit" else flag for flag in flags]
        for language in ("c99", "c11", "c++17"):
            compiler = [*CXX, "-xc++"] if "+" in language else [*COMPILER, "-xc"]
            output_of(*compiler, f"-std={language}", "-Wall", "-Wextra", "-pedantic", "-Werror",
                      HERE / "program.c", "-xnone", "-o", program, *flags)
            found.append(run_program(program, "scalar", NATIVE, env=environment))
    return found


def meson_build(folder, project, tree):
    link = project / "subprojects" / "attnkit"
    link.parent.mkdir(exist_ok=True)
    if not link.exists():
        link.symlink_to(tree)
    if not (folder / "build.ninja").exists():
        shutil.rmtree(folder, ignore_errors=True)
        output_of(MESON, "setup", folder, project, "--buildtype=release")
    output_of(MESON, "compile", "-C", folder)


def subproject():
    """meson, subproject: needs nothing of tests, tools or benches"""
    folder = ROOM / "subproject"
    meson_build(folder, PROJECTS / "subproject", TREE)
    return programs_in(folder, ("program",), "scalar")


def compile_listed(folder, tree, compiler, listing, *flags, instead=None):
    """Compiles the files that tools/sources lists for the options `listing`, and returns the objects. `instead` is a
    dict: a flag of the list -> the flag that this compiler takes instead."""
    folder.mkdir(parents=True, exist_ok=True)

    def compile_file(line):
        path, *needed = line.split()
        needed = [(instead or {}).get(flag, flag) for flag in needed]
        result = folder / (path.replace("/", "_") + ".o")
        output_of(*compiler, *flags, "-I.", "-Iinclude", *needed, "-c", path, "-o", result, cwd=tree)
        return result

    lines = output_of(ROOT / "tools" / "sources", *listing).splitlines()
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(compile_file, lines))


def plain_sources():
    """Plain lists of files and flags"""
    folder = ROOM / "plain"
    objects = compile_listed(folder, TREE, [*CCACHE, *COMPILER], ["--isas", "", "--parts", ""], "-O2")
    for name in ("program", "left_out"):
        output_of(*COMPILER, "-I", TREE / "include", HERE / f"{name}.c", *objects, "-lm", "-o", folder / name)
    output_of(folder / "left_out")
    for part in ("append", "linear"):
        objects = compile_listed(folder / part, TREE, [*CCACHE, *COMPILER], ["--isas", "", "--parts", part], "-O2")
        output_of(*COMPILER, "-I", TREE / "include", HERE / "program.c", *objects, "-lm", "-o", folder / f"with_{part}")
    return programs_in(folder, ("program",), "scalar")


CONSUMERS = (add_subdirectory, fetch_content, find_package, pkg_config, subproject, plain_sources)


def reproducible():
    """Builds in other folders, by CMake and by meson, give identical libraries"""
    other = ROOM / "another" / "place"
    copy_changed(TREE, other / "source")
    copy_changed(HERE, other / "projects")
    cmake_build(other / "add_subdirectory", other / "projects" / "add_subdirectory",
                f"-DATTNKIT_TREE={other / 'source'}")
    meson_build(other / "subproject", other / "projects" / "subproject", other / "source")
    for folder, names in (("add_subdirectory", ("libattnkit.a", "libattnkit.so.*.*")),
                          ("subproject", ("libattnkit.a",))):
        for name in names:
            first, second = one(ROOM / folder, name), one(other / folder, name)
            if first.read_bytes() != second.read_bytes():
                raise Failed(f"{first} and {second} differ")


# --------------------------------------------------------------------- CMake compared with meson


def installed(folder):
    """Returns the files and links in `folder`, as paths relative to `folder`."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")
            if path.is_file() or path.is_symlink()}


def exported(library):
    lines = output_of("nm", "-D", "--defined-only", "--with-symbol-versions", library).splitlines()
    return {line.split()[-1] for line in lines}


def one(folder, name):
    found = [path for path in folder.rglob(name) if not path.is_symlink()]
    if len(found) != 1:
        raise Failed(f"{len(found)} files {name} in {folder}")
    return found[0]


def same_installation():
    """CMake and meson install the same files, with the same symbols"""
    shutil.rmtree(STAGE, ignore_errors=True)
    output_of(MESON, "install", "-C", BUILD, "--destdir", STAGE, "--no-rebuild")
    stage = one(STAGE, "attnkit.h").parents[1]
    ours = {path for path in installed(stage) if path.startswith(("lib/", "include/"))}
    theirs = installed(PREFIX)
    if ours != theirs or len(ours) < 12:
        raise Failed(f"meson alone: {sorted(ours - theirs)}\nCMake alone: {sorted(theirs - ours)}")
    libraries = [one(folder, "libattnkit.so.*") for folder in (stage, PREFIX)]
    difference = exported(libraries[0]) ^ exported(libraries[1])
    if difference or len(exported(libraries[0])) < 30:
        raise Failed(f"exported by one library only: {sorted(difference)}")
    for path in ours:
        if path.startswith("include/") or path.endswith(".cmake"):
            if (stage / path).read_bytes() != (PREFIX / path).read_bytes():
                raise Failed(f"{path} differs")
    texts = [output_of("pkg-config", "--cflags", "--libs", "--static", "--modversion", "attnkit",
                       env=dict(os.environ, PKG_CONFIG_PATH=str(one(folder, "attnkit.pc").parent)))
             for folder in (stage, PREFIX)]
    texts = [re.sub(r"(-[IL])\S+", r"\1", text) for text in texts]
    if texts[0] != texts[1]:
        raise Failed(f"pkg-config: {texts}")


def commands(folder):
    """Returns a dict of the library's files: file -> its flags that may change results or symbols."""
    found = {}
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        path = (Path(entry["directory"]) / entry["file"]).resolve()
        target = entry.get("output", entry["command"])
        if not re.search(r"(libattnkit(_(?!grown|described)\w+)?\.(a|so[\d.]*)\.p|attnkit_objects\.dir)/", target):
            continue
        for tree in (TREE, ROOT):
            if path.is_relative_to(tree):
                path = path.relative_to(tree)
                break
        words = shlex.split(entry["command"])
        kept = {word for word in words
                if re.match(r"-[mfD]|-std", word) and word != "-DNDEBUG"
                and not re.match(r"-fdiagnostics|-fPIC|-fvisibility|-DBUILD_NOTE|-D_FILE_OFFSET|-fno-lto", word)}
        found.setdefault(str(path), set()).update(kept)
    return found


def same_commands():
    """CMake and meson compile the same files, with the same flags"""
    folder = ROOM / "all"
    output_of("cmake", "-S", TREE, "-B", folder, "-G", "Ninja", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    ours, theirs = commands(BUILD), commands(folder)
    wrong = [f"{path}: meson {sorted(ours.get(path, []))}, CMake {sorted(theirs.get(path, []))}"
             for path in sorted({*ours, *theirs}) if ours.get(path) != theirs.get(path)]
    if wrong or len(ours) < 60:
        raise Failed("\n".join(wrong) or f"only {len(ours)} files")


def refused():
    """Unknown instruction sets, parts and types are errors. So are parts and types whose needs are left out"""
    for options, said in ((["-DATTNKIT_ISAS=sse9"], "no instruction set sse9"),
                          (["-DATTNKIT_PARTS=tail"], "no part tail"),
                          (["-DATTNKIT_PARTS=layer"], "layer is made of append and linear"),
                          (["-DATTNKIT_TYPES=f64"], "no type f64"),
                          (["-DATTNKIT_TYPES=f16"], "leave out the part linear, too"),
                          (["-DATTNKIT_TYPES=f16;few_bits", "-DATTNKIT_PARTS=append"], "few_bits as q8_0")):
        try:
            output_of("cmake", "-S", TREE, "-B", ROOM / "refused", "-G", "Ninja", *options)
        except Failed as failure:
            if said not in " ".join(str(failure).split()):  # CMake breaks lines
                raise
        else:
            raise Failed(f"{' '.join(options)} was accepted")
        shutil.rmtree(ROOM / "refused")


def install_by_cmake():
    """CMake builds and installs the library"""
    shutil.rmtree(PREFIX, ignore_errors=True)
    libdir = Path(json.loads(output_of(MESON, "introspect", "--installed", BUILD))
                  [str(BUILD / "dispatch" / "libattnkit.a")]).parent
    options = {option["name"]: option["value"]
               for option in json.loads(output_of(MESON, "introspect", "--buildoptions", BUILD))}
    cmake_build(ROOM / "cmake", TREE, f"-DATTNKIT_ISAS={NATIVE}", f"-DCMAKE_INSTALL_PREFIX={PREFIX}",
                f"-DCMAKE_INSTALL_LIBDIR={libdir.relative_to(options['prefix'])}")
    output_of("cmake", "--install", ROOM / "cmake")


def main():
    for program in ("cmake", "ninja", "pkg-config", "readelf"):
        if not shutil.which(program):
            print(f"1..0 # SKIP no {program}")
            return 0
    copy_changed(ROOT, TREE)
    copy_changed(HERE, PROJECTS)
    expected = expected_hash(ROOM)
    checks = (install_by_cmake, *CONSUMERS, reproducible, same_installation, same_commands, refused)
    failed = 0
    print(f"1..{len(checks)}")
    for number, check in enumerate(checks, 1):
        try:
            others = [result for result in check() or () if result != expected]
            if others:
                raise Failed(f"results are {others}, not {expected}")
            print(f"ok {number} - {check.__doc__}", flush=True)
        except (Failed, OSError, StopIteration):
            failed += 1
            print(f"not ok {number} - {check.__doc__}")
            print("\n".join("# " + line for line in traceback.format_exc().splitlines()[-40:]), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    BUILD, MESON = Path(sys.argv[1]).resolve(), sys.argv[2]
    sys.exit(main())
