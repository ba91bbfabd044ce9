#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the structs of tools/peers/attnkit_structs.py with the C compiler's layout of the structs in attnkit.h: the
size of each struct, and the offset and size of each field.

    tests/repository/structs.py CC [ARGUMENT ...]
"""

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "peers"))

import attnkit_structs  # noqa: E402

LEAST = 16  # the least number of structs that must be found


def mirrored():
    """Returns a dict of the Python structs by their C names."""
    found = [value for value in vars(attnkit_structs).values()
             if isinstance(value, type) and issubclass(value, ctypes.Structure)]
    return {struct.__doc__: struct for struct in found}


def lines_in_python(name, struct):
    yield f"{name} {ctypes.sizeof(struct)}"
    for field, _ in struct._fields_:
        place = getattr(struct, field)
        yield f"{name}.{field} {place.offset} {place.size}"


def program(structs):
    """Returns a C program that prints the lines of lines_in_python for the structs in attnkit.h."""
    lines = []
    for name, struct in structs.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        lines += [f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                  f'sizeof((({name} *)0)->{field}));' for field, _ in struct._fields_]
    return "#include <attnkit.h>\n#include <stdio.h>\nint main(void)\n{\n" + "\n".join(lines) + "\n}\n"


def lines_in_c(compiler, structs):
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder) / "structs.c", Path(folder) / "structs"
        source.write_text(program(structs))
        subprocess.run([*compiler, "-I", ROOT / "include", source, "-o", binary], check=True)
        return subprocess.run([binary], check=True, capture_output=True, text=True).stdout.splitlines()


def main():
    structs = mirrored()
    here = [line for item in structs.items() for line in lines_in_python(*item)]
    there = lines_in_c(sys.argv[1:], structs)
    wrong = [f"Python has {a!r}, C {b!r}" for a, b in zip(here, there, strict=True) if a != b]
    if len(structs) < LEAST:
        wrong.append(f"only {len(structs)} structs found")
    print("\n".join(wrong) or f"{len(structs)} structs, {len(here) - len(structs)} fields agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
