#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the library, as compiled programs see it, with its stored description. A description has the functions,
their versions, and every struct and enumeration that the functions use. abidw and abidiff of libabigail (Debian:
abigail-tools) write and compare descriptions. Also checks that abidiff notices changes of a description.

    tests/abi/description.py LIBRARY            compares
    tests/abi/description.py LIBRARY --write    stores the description anew (README.md says when)

LIBRARY needs debug information, as tests/abi/libattnkit_described.so of the build has. Each machine type has its own
description, which does not depend on the compiler."""

import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SKIPPED = 77
DESCRIBE = ["abidw", "--exported-interfaces-only", "--type-id-style", "hash", "--no-show-locs",
            "--no-comp-dir-path", "--no-corpus-path", "--no-elf-needed"]
COMPARE = ["abidiff", "--ignore-soname"]
STORED = f"{platform.machine()}.abi"  # file name of a description in the folder of a version


def newest_version():
    """Returns the folder of the newest version."""
    folders = [path for path in HERE.iterdir() if re.fullmatch(r"\d+\.\d+\.\d+", path.name)]
    return max(folders, key=lambda path: [int(number) for number in path.name.split(".")])


def describe(library):
    done = subprocess.run([*DESCRIBE, library], text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"abidw: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return re.sub(r" path='[^']*/(dispatch/)", r" path='\1", done.stdout)  # the path of the build is removed


def difference(old, new):
    """Returns the output of abidiff for two descriptions, or "" if they have the same interface."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("old.abi", "new.abi")]
        for path, text in zip(paths, (old, new)):
            path.write_text(text)
        done = subprocess.run([*COMPARE, *paths], text=True, capture_output=True)
    return "" if done.returncode == 0 else f"{done.stdout}{done.stderr}exit status {done.returncode}"


def in_struct(text, struct, old, new):
    """Returns the description `text` with `old` replaced by `new` in one struct."""
    before = re.search(rf"<class-decl name='{struct}'.*?</class-decl>", text, re.S)[0]
    return text.replace(before, before.replace(old, new))


def changed(text):
    """Yields pairs: the name of a change that somebody might make to the library, and the description after this
    change."""
    size = re.search(r"name='attnkit_window' size-in-bits='(\d+)'", text)[1]
    pointer = re.search(r"name='size' type-id='(\w+)'", text)[1]
    without = re.sub(r" *<elf-symbol name='attnkit_merge' .*\n", "", text)
    yield "a function is gone", re.sub(r" *<function-decl name='attnkit_merge'.*?</function-decl>\n", "",
                                       without, flags=re.S)
    yield "functions have another version", text.replace("version='ATTNKIT_0.1'", "version='ATTNKIT_9'")
    yield "a field has another type", re.sub(r"(<var-decl name='keep_first' type-id=')\w+", rf"\g<1>{pointer}",
                                             text)
    yield "a field is elsewhere", in_struct(text, "attnkit_window", "layout-offset-in-bits='64'",
                                            "layout-offset-in-bits='96'")
    yield "a struct is longer", in_struct(text, "attnkit_window", f"'{size}'", f"'{int(size) + 64}'")
    yield "a status has another value", text.replace("name='ATTNKIT_OVERFLOW' value='3'",
                                                     "name='ATTNKIT_OVERFLOW' value='9'")


def main():
    library, *write = sys.argv[1:]
    missing = [tool for tool in (DESCRIBE[0], COMPARE[0]) if not shutil.which(tool)]
    if missing:
        print(f"skipped: no {' and no '.join(missing)} (Debian: abigail-tools)")
        return SKIPPED
    stored = newest_version() / STORED
    if write:
        stored.write_text(describe(library))
        return 0
    if not stored.exists():
        print(f"skipped: no description for this machine, {stored.name}")
        return SKIPPED
    wrong = []
    for what, text in changed(stored.read_text()):
        if not difference(stored.read_text(), text):
            wrong.append(f"abidiff does not notice: {what}")
    found = difference(stored.read_text(), describe(library))
    if found:
        wrong.append(f"{found}\nThe library is not as {stored.relative_to(HERE.parent.parent)} describes it: "
                     "tests/abi/README.md says what to do")
    print("\n".join(wrong) or "the interface is as stored")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
