#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that texts of the tree agree. The examples in README.md and attnkit.h must be parts of examples/attention.c.
The example in attnkit.hpp must be part of examples/attention.cpp. meson.build, CHANGES.md and the packaging files
of Debian, vcpkg and Conan must state the version of attnkit.h. README.md must show where things are before any long
table. Every promise of docs/semantics.md must name tests that exist and run. The full name of every function of
kernels/vectors/entries.h must occur in the folder of each instruction set."""

import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = 15


def read(name):
    return (ROOT / name).read_text()


def is_test(file, name):
    """Returns whether the file defines a test of this name and names the test a second time, to run the test. `file` is
    a path from tests/, without the suffix."""
    definition = {".c": rf"^static void {name}\(void \*\*state\)", ".py": rf"^ *def {name}\("}
    for suffix, pattern in definition.items():
        path = ROOT / "tests" / (file + suffix)
        text = path.read_text() if path.exists() else ""
        if re.search(pattern, text, re.M) and len(re.findall(rf"\b{name}\b", text)) > 1:
            return True
    return False


def wrong_promises(page):
    """Returns errors for promises without tests, and for named tests that do not exist. Each list item of the page is a
    promise."""
    promises = re.findall(r"^- (.*\n(?:  .*\n)*)", page, re.M)
    wrong = [] if len(promises) > 40 else [f"docs/semantics.md: only {len(promises)} promises found"]
    for promise in promises:
        tests = re.findall(r"`(\w+(?:/\w+)*): (\w+)`", promise)
        if not tests:
            wrong.append(f"docs/semantics.md names no test of: {promise.strip()}")
        wrong += [f"docs/semantics.md: no test {file}: {name}" for file, name in tests
                  if not is_test(file, name)]
    return wrong


def wrong_order(readme):
    """Returns an error if the README has a long table before it shows where things are."""
    before, heading, _ = readme.partition("\n## Where things are\n")
    tables = re.findall(r"(?:^\|.*\n)+", before, re.M)
    if not heading:
        return ["README.md has no section 'Where things are'"]
    return [f"README.md has a table of more than {ROWS} rows before 'Where things are'"
            for table in tables if table.count("\n") - 2 > ROWS]


def unnamed_kernels():
    """Returns an error for each function of kernels/vectors/entries.h whose full name is in no file of the folder of
    an instruction set. Folders of units, which have a _ in their names, need not have all these functions."""
    entries = re.findall(r"\bKERNEL\((\w+)\)\(", read("kernels/vectors/entries.h"))
    folders = [path.parent for path in (ROOT / "kernels").glob("*/table.c") if "_" not in path.parent.name]
    wrong = [] if len(entries) > 30 and len(folders) >= 3 else ["kernels/: entries or folders are missing"]
    for folder in folders:
        text = "".join(path.read_text() for path in folder.rglob("*.[ch]"))
        names = [f"attnkit_{folder.name}_{entry}" for entry in entries]
        wrong += [f"{name} occurs in no file of kernels/{folder.name}/" for name in names
                  if not re.search(rf"\b{name}\b", text)]
    return wrong


def main():
    example, readme, header = read("examples/attention.c"), read("README.md"), read("include/attnkit.h")
    wrong = []
    blocks = re.findall(r"```c\n(.*?)```", readme, re.S)
    if len(blocks) != 1 or textwrap.indent(blocks[0], "    ") not in example:
        wrong.append("the C example of README.md differs from examples/attention.c")
    wrong += wrong_order(readme) + unnamed_kernels()
    comment = re.sub(r"^ \* ?", "", header.split("*/")[0], flags=re.M)
    body = re.search(r"^    attnkit_attention_args args = .*?free\(exec.workspace\);\n", comment,
                     re.S | re.M)
    if not body or body.group() not in example:
        wrong.append("the example of attnkit.h differs from examples/attention.c")
    body = re.search(r"^    auto args = .*?attention\(args, scratch\);\n",
                     re.sub(r"^// ?", "", read("include/attnkit.hpp"), flags=re.M), re.S | re.M)
    if not body or body.group() not in read("examples/attention.cpp"):
        wrong.append("the example of attnkit.hpp differs from examples/attention.cpp")
    numbers = re.findall(r"#define ATTNKIT_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header)
    version = ".".join(numbers)
    for name, text in (("meson.build", f"version: '{version}'"), ("CHANGES.md", f"## {version}"),
                       ("debian/changelog", f"attnkit ({version}-"),
                       ("packaging/vcpkg/vcpkg.json", f'"version": "{version}"'),
                       ("packaging/conan/conanfile.py", f'version = "{version}"')):
        if text not in read(name):
            wrong.append(f"{name} does not say {text!r}")
    wrong += wrong_promises(read("docs/semantics.md"))
    print("\n".join(wrong) or "the texts agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
