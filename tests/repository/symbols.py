#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the promises of the public headers to programs that are already compiled. The shared library exports exactly
the functions that are declared with ATTNKIT_API, each with its version in dispatch/attnkit.map.
debian/libattnkit0.symbols has the same functions and versions. The shared library imports no function of SLEEF, because
another library of the program may bring another version of SLEEF. Structs have no padding at their end. A field of a
later version could lie in the padding, and the size would then not tell the versions of the struct apart. No field has
a width that depends on the compiler. Structs grow only at their end. Each struct with a size field is in the table of
tests/api/versions.c. The program tests/api/header_c99.c names each type and function of the headers.

    tests/repository/symbols.py LIBRARY COMPILER...
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
INCLUDE = ROOT / "include"
FIRST_INCLUDE = ROOT / "tests" / "abi" / "0.1.0" / "include"
SKIPPED = 77


def code_of(include):
    """Returns the code of all C headers of the folder `include`, without comments."""
    headers = [include / "attnkit.h", *sorted((include / "attnkit").glob("*.h"))]
    return "\n".join(re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S) for path in headers)


def declared_functions(code):
    return set(re.findall(r"^ATTNKIT_API [^;(]*?\b(attnkit_\w+)\(", code, re.M))


def mapped_functions(text):
    """Returns a dict: function -> its version in the map."""
    versions = {}
    for node, body in re.findall(r"^(ATTNKIT_[\d.]+) \{(.*?)^\}", text, re.M | re.S):
        for name in re.findall(r"^\s+(attnkit_\w+);", body.split("local:")[0], re.M):
            versions[name] = node
    return versions


def dynamic_symbols(library):
    """Returns a dict of the exported symbols (symbol -> its version), and the set of imported symbols. Version nodes,
    which are also symbols, are left out."""
    listing = subprocess.run(["readelf", "--dyn-syms", "--wide", library], check=True, text=True,
                             capture_output=True).stdout
    exported, imported = {}, set()
    for line in listing.splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[4] not in ("GLOBAL", "WEAK") or fields[6] == "ABS":
            continue
        name, _, version = fields[7].partition("@@")
        if fields[6] == "UND":
            imported.add(name)
        else:
            exported[name] = version
    return exported, imported


def wrong_symbols(library, code):
    declared = declared_functions(code)
    mapped = mapped_functions((ROOT / "dispatch" / "attnkit.map").read_text())
    exported, imported = dynamic_symbols(library)
    wrong = [f"{name} is imported" for name in imported if name.startswith("Sleef_")]
    if not imported:
        wrong.append("no symbol is imported, not even of the C library")
    wrong += [f"{name} is declared, but not exported" for name in declared - set(exported)]
    wrong += [f"{name} is exported, but not declared" for name in set(exported) - declared]
    wrong += [f"{name} is exported with version {version or 'none'}, attnkit.map has "
              f"{mapped.get(name)}"
              for name, version in exported.items() if version != mapped.get(name)]
    wrong += [f"{name} is in attnkit.map, but not declared" for name in set(mapped) - declared]
    packaged = (ROOT / "debian" / "libattnkit0.symbols").read_text()
    packaged = dict(re.findall(r"^ (attnkit_\w+)@(\S+) ", packaged, re.M))
    wrong += [f"{name} differs in debian/libattnkit0.symbols"
              for name, _ in set(mapped.items()) ^ set(packaged.items())]
    return wrong if declared else ["no function is declared"]


def field_of(declaration):
    """Returns the type of a field, which is "" for a pointer, and its name."""
    function = re.match(r"\w+ \(\*(\w+)\)\(", declaration)
    if function:
        return "", function[1]
    type_, name = re.match(r"(.*?)(\w+)(?:\[\d+\])?$", declaration).groups()
    return "" if "*" in type_ else type_.strip(), name


def structs_of(code):
    """Returns a dict of the public structs: name -> list of its fields as (type, name)."""
    structs = {}
    for name, body in re.findall(r"^typedef struct (attnkit_\w+) \{(.*?)^\} \1;", code, re.M | re.S):
        declarations = re.split(r";(?![^()]*\))", body)
        structs[name] = [field_of(" ".join(declaration.split())) for declaration in declarations
                         if declaration.strip()]
    return structs


def wrong_fields(structs, code):
    fixed = {"", "size_t", "double", "int32_t", "uint32_t", "int64_t", *structs}
    fixed |= set(re.findall(r"^typedef int32_t (attnkit_\w+);", code, re.M))
    return [f"{struct}.{name} is of {type_}, whose width is not known to be fixed"
            for struct, fields in structs.items() for type_, name in fields if type_ not in fixed]


def wrong_padding(structs, compiler):
    """Returns the compiler's errors, which name the structs with padding at their end, or an empty list."""
    asserts = ["#include <attnkit.h>"]
    for struct, fields in structs.items():
        last = fields[-1][1]
        asserts.append(f"_Static_assert(offsetof({struct}, {last}) + sizeof((({struct} *)0)->{last})"
                       f' == sizeof({struct}), "padding at the end of {struct}");')
    done = subprocess.run([*compiler, "-std=c11", "-fsyntax-only", f"-I{INCLUDE}", "-xc", "-"],
                          input="\n".join(asserts), text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    return [done.stdout] if done.returncode != 0 else []


def wrong_growth(structs, first):
    """Returns an error for each struct that does not begin with its fields of the first version."""
    return [f"{struct} does not begin with its fields of {FIRST_INCLUDE.parent.name}"
            for struct, fields in first.items() if structs.get(struct, [])[:len(fields)] != fields]


def wrong_table(structs, first):
    """Returns an error for each struct with a size field that lacks a row in the table of tests/api/versions.c. The row
    must name the last field that the struct has in the headers of version 0.1.0. If these headers lack the struct, the
    row must name the last field of today."""
    table = (ROOT / "tests" / "api" / "versions.c").read_text()
    lasts = {struct: first.get(struct, fields)[-1][1] for struct, fields in structs.items()}
    return [f"{struct} has a size, but no row in tests/api/versions.c with {lasts[struct]}"
            for struct, fields in structs.items()
            if fields[0] == ("size_t", "size") and f", {struct}, {lasts[struct]}," not in table]


def wrong_program(code):
    """Returns the public types and functions that tests/api/header_c99.c does not name."""
    program = re.sub(r"/\*.*?\*/", "", (ROOT / "tests" / "api" / "header_c99.c").read_text(), flags=re.S)
    public = declared_functions(code) | set(re.findall(r"^static inline \w+ (attnkit_\w+)\(", code, re.M))
    public |= set(re.findall(r"^typedef \w+ (attnkit_\w+)(?:;| \{)", code, re.M))
    return [f"{name} is not in tests/api/header_c99.c"
            for name in public - set(re.findall(r"\w+", program))]


def main():
    library, compiler = Path(sys.argv[1]), sys.argv[2:]
    if not shutil.which("readelf") or library.read_bytes()[:4] != b"\x7fELF":
        print("symbols.py: no ELF library, or no readelf")
        return SKIPPED
    code = code_of(INCLUDE)
    structs, first = structs_of(code), structs_of(code_of(FIRST_INCLUDE))
    wrong = wrong_symbols(library, code) + wrong_fields(structs, code)
    wrong += wrong_padding(structs, compiler) + wrong_growth(structs, first) + wrong_table(structs, first)
    wrong += wrong_program(code)
    print("\n".join(sorted(wrong)) or
          f"{len(declared_functions(code))} functions, {len(structs)} structs")
    return 1 if wrong or len(structs) < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
