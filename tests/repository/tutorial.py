#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles and runs the programs of docs/tutorial.md. A program is all C code of the page up to a main function,
without earlier main functions. The text after a program on the page is its output.

    tests/repository/tutorial.py LIBRARY COMPILER...            compares the programs' output with the page
    tests/repository/tutorial.py --write LIBRARY COMPILER...    writes the programs' output into the page

LIBRARY is the shared library. COMPILER... is the command by which the build calls its compiler.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
FENCE = re.compile(r"^```(c|text)\n(.*?)^```$", re.S | re.M)
MAIN = re.compile(r"^int main\(void\)\n\{\n.*?^\}\n", re.S | re.M)
# A program has the functions of all earlier sections, and need not call all of them.
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-unused-variable"]
SECONDS = 120  # time limit of a program, which takes some milliseconds


def programs(page):
    """Returns the source of each program, and the regex match of its expected output on the page."""
    found, code, program = [], "", None
    for fence in FENCE.finditer(page):
        kind, text = fence.groups()
        if kind == "text":
            if program is None:
                sys.exit("tutorial.py: a block of output follows no main")
            found.append((program, fence))
            program = None
        elif program is not None:
            sys.exit("tutorial.py: a main has no block with its output")
        else:
            code += ("\n" if code else "") + text
            if MAIN.search(text):
                program, code = code, MAIN.sub("", code)
    if program is not None:
        sys.exit("tutorial.py: the last main has no block with its output")
    if len(found) < 5:
        sys.exit(f"tutorial.py: there are {len(found)} programs: must be at least 5")
    return found


def output_of(source, library, compiler, folder):
    (folder / "program.c").write_text(source)
    compiled = subprocess.run(
        [*compiler, "-std=c11", *WARNINGS, f"-I{ROOT / 'include'}", str(folder / "program.c"),
         "-o", str(folder / "program"), str(library), f"-Wl,-rpath,{library.parent}", "-pthread"],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if compiled.returncode != 0:
        return "the program does not compile:\n" + compiled.stdout
    ran = subprocess.run([str(folder / "program")], text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, timeout=SECONDS)
    return ran.stdout + (f"exit status {ran.returncode}\n" if ran.returncode != 0 else "")


def main():
    write = sys.argv[1:2] == ["--write"]
    library, *compiler = sys.argv[2:] if write else sys.argv[1:]
    page, wrong = PAGE.read_text(), 0
    new, end = "", 0
    with tempfile.TemporaryDirectory() as folder:
        for number, (source, fence) in enumerate(programs(page), 1):
            printed = output_of(source, Path(library).resolve(), compiler, Path(folder))
            new += page[end:fence.start(2)] + printed
            end = fence.end(2)
            if printed != fence.group(2):
                wrong += 1
                print(f"docs/tutorial.md: program {number} printed\n{printed}", end="")
    if write:
        PAGE.write_text(new + page[end:])
        return 0
    print(f"{number} programs, {wrong} differ from the page")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
