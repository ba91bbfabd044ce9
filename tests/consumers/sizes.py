#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the size of the stripped shared library with some instruction sets, parts and types left out. A library with
an instruction set also has the units of this set. No library may be more than 2 % larger than the table of
docs/embedding.md says. At least one library whose only instruction sets are AVX2 and scalar must be smaller than
300 KB. A library is linked from the objects of a build, but objects that depend on the choice of parts are compiled
again. For libraries that lack types or are optimised for size, all objects are compiled again.

    tests/consumers/sizes.py BUILD_FOLDER [--write]

With --write, the measured sizes are written into the table, and no size is a failure. The table is of release builds
for x86-64 by gcc 12. For any other build, the exit status is 77.
"""

import json
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "static"))

from stored_figures import build_options, compiler, is_instrumented  # noqa: E402

PAGE = ROOT / "docs" / "embedding.md"
ROW = re.compile(r"^\| `([a-z0-9, ]+)` \| ([a-z, ]+) \| ([a-z0-9_, ]+) \| (speed|size|least) \| (\d+) KB \|$", re.M)
# The code of a source with one of these words depends on which parts are left out.
CHOICE = re.compile(r"ATTNKIT_WITHOUT_|HAS_PRODUCTS|is_grouped|HAS_INTEGERS|has_integers")
SLACK = 1.02
SMALL = 300  # KB
NO_TABLES = "-fno-asynchronous-unwind-tables"
FEW_PAGES = ["-Wl,-z,noseparate-code", "-Wl,-z,pack-relative-relocs"]
SKIPPED = 77
Sources = runpy.run_path(str(ROOT / "tools" / "sources"))["Sources"]


def skip(why):
    print(f"sizes.py: {why}")
    sys.exit(SKIPPED)


def objects_of(build):
    """Returns a dict of the library's sources: path in the tree -> (command, object)."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if re.search(r"/libattnkit(_\w+)?\.(a|so[\d.]*)\.p/", entry.get("output", "")):
            path = (Path(entry["directory"]) / entry["file"]).resolve().relative_to(ROOT)
            if "described" not in entry["output"] and "grown" not in entry["output"]:
                found[str(path)] = (shlex.split(entry["command"]), entry["output"])
    return found


def without(command, flags, target):
    """Returns the command with `target` as its object. Adds the `flags` that leave out a part or a type."""
    words = [word for word in command if word != "-MD"]
    words[words.index("-o") + 1] = str(target)
    for option in ("-MQ", "-MF"):
        at = words.index(option)
        del words[at:at + 2]
    return [*words, *(flag for flag in flags if flag.startswith("-DATTNKIT_WITHOUT_"))]


def for_size(path, command, fast, goal):
    """Returns the command as meson makes it for -Doptimization=s, without the flags `fast`. Tiles keep their level of
    optimisation. With the goal "least", the command also leaves out the tables for unwinding."""
    is_tile = path.split("/")[1] in set(Sources((ROOT / "sources.txt").read_text()).isas)
    words = [word for word in command if word not in fast]
    if not is_tile:
        words = ["-Os" if word == "-O3" else word for word in words]
    return words + [NO_TABLES] * (goal == "least")


def size(build, objects, lines, folder, goal="speed", fast=(), has_all_types=True):
    """Returns the size in bytes of the library that has only the sources in `lines`."""
    def object_of(line):
        path, flags = line
        command, compiled = objects[path]
        depends = path.endswith("/table.c") or CHOICE.search((ROOT / path).read_text())
        if goal == "speed" and has_all_types and not depends:
            return str(compiled)
        if goal != "speed":
            command = for_size(path, command, fast, goal)
        compiled = folder / (path.replace("/", "_") + ".o")
        subprocess.run(without(command, flags, compiled), cwd=build, check=True)
        return str(compiled)

    with ThreadPoolExecutor(2) as pool:
        linked = list(pool.map(object_of, lines))
    linker = next(word for word in objects[lines[0][0]][0] if "ccache" not in word)
    library = folder / "library.so"
    subprocess.run([linker, "-shared", "-s", "-Wl,--no-undefined", "-Wl,--as-needed", *FEW_PAGES * (goal == "least"),
                    f"-Wl,--version-script={ROOT / 'dispatch' / 'attnkit.map'}", "-Wl,-soname,libattnkit.so.0",
                    *linked, "-lm", "-o", str(library)], cwd=build, check=True)
    return library.stat().st_size


def main():
    build = Path(sys.argv[1]).resolve()
    sources, page = Sources((ROOT / "sources.txt").read_text()), PAGE.read_text()
    options = build_options(build)
    if is_instrumented(options) or options.get("optimization") != "3":
        skip("the table is of release builds")
    objects = objects_of(build)
    if "dispatch/cpu/cpu_x86.c" not in objects:
        skip("the table is of x86-64")
    made_by = compiler("objdump", build / objects["dispatch/cpu/isa.c"][1])
    if not made_by.startswith("gcc 12"):
        skip(f"the table is of gcc 12, not of {made_by}")
    wrong, small = 0, []
    with tempfile.TemporaryDirectory() as name:
        for row in ROW.finditer(page):
            isas, parts = row[1].split(", "), ["attention", *row[2].split(", ")]
            parts = sources.parts() if row[2] == "all parts" else parts
            types = sources.types if row[3] == "all" else row[3].split(", ")
            with_units = [name for name in sources.isas_of("x86_64") if name.split("_")[0] in ("scalar", *isas)]
            lines = list(sources.lines("x86_64", with_units, parts, types))
            kb = -(-size(build, objects, lines, Path(name), row[4], sources.flags["fast"], row[3] == "all") // 1000)
            too_large = kb > int(row[5]) * SLACK
            wrong += too_large
            small += [row[3]] * (isas == ["avx2"] and kb < SMALL)
            print(f"{', '.join(row.groups()[:4])}: {kb} KB, the page says {row[5]} KB"
                  f"{': TOO LARGE' if too_large else ''}")
            page = page.replace(row[0], row[0].replace(f"{row[5]} KB |", f"{kb} KB |"))
    print(f"avx2 under {SMALL} KB: {'; '.join(small) or 'NONE'}")
    if "--write" in sys.argv:
        PAGE.write_text(page)
        return 0
    rows = len(ROW.findall(page))
    return 1 if wrong or rows < 5 or not small else 0


if __name__ == "__main__":
    sys.exit(main())
