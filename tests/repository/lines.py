#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every file of the tree, except files that match EXEMPT, keeps to .editorconfig: line lengths, spaces at
the end of lines, tabs, and the end of the file. Rows of Markdown tables may have any length. Lines with a long word,
such as a link or a hash, may also have any length. No file may have conflict markers of git. If clang-format 14 is
installed, C and C++ files must have the format of clang-format 14.

    tests/repository/lines.py
"""

import configparser
import fnmatch
import itertools
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
# Files that programs write, the licence, and the headers of releases, which must stay as they were released.
EXEMPT = ("*.json", "*.svg", "*.png", "*.npy", "*.abi", "LICENSE", "bench/results/*.md", "tests/abi/0.*/include/*")
FORMATTED = (".c", ".h", ".cc", ".cpp", ".hpp")
MARKERS = ("<" * 7 + " ", ">" * 7 + " ")  # git writes these markers around text that it could not merge
WORD = 70  # a line may be longer if one of its words has at least this many characters


def files_of_tree():
    """Returns the files of the git repository that are not exempt. Ends the program if the tree has no repository, as
    in an export."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, text=True, capture_output=True)
    if listed.returncode != 0:
        print("no git repository to say which files belong to the project")
        sys.exit(SKIPPED)
    names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    return [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in EXEMPT)]


def spelt_out(pattern):
    """Expands braces: *.{c,h} becomes *.c and *.h."""
    parts = [part.split(",") for part in re.split(r"[{}]", pattern)]
    return ["".join(choice) for choice in itertools.product(*parts)]


def rules():
    """Reads .editorconfig. Returns a function that returns the properties of a file by its name."""
    parser = configparser.ConfigParser()
    parser.read_string("[top]\n" + (ROOT / ".editorconfig").read_text())
    sections = [(spelt_out(name), dict(parser[name])) for name in parser.sections() if name != "top"]

    def properties(name):
        found = {}
        for patterns, values in sections:
            if any(fnmatch.fnmatch(Path(name).name, pattern) for pattern in patterns):
                found |= values
        return found
    return properties


def is_too_long(line, limit, name):
    if len(line) <= limit or name.endswith(".md") and line.lstrip().startswith("|"):
        return False
    return max(map(len, line.split())) < WORD


def wrong_in(name, properties):
    data = (ROOT / name).read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return [f"{name} is not UTF-8"]
    wrong = []
    if data and not data.endswith(b"\n") or data.endswith(b"\n\n"):
        wrong.append(f"{name} does not end with one newline")
    for number, line in enumerate(text.split("\n"), 1):
        where, limit = f"{name}:{number}", int(properties["max_line_length"])
        if line != line.rstrip():
            wrong.append(f"{where}: a blank, or a carriage return, at the end of the line")
        if line.startswith(MARKERS):
            wrong.append(f"{where}: a conflict marker of git")
        if "\t" in line and properties["indent_style"] == "space":
            wrong.append(f"{where}: a tab")
        if is_too_long(line, limit, name):
            wrong.append(f"{where}: {len(line)} characters, {limit} allowed")
    return wrong


def clang_format():
    for name in ("clang-format-14", "clang-format"):
        version = subprocess.run([name, "--version"], text=True, capture_output=True).stdout if shutil.which(
            name) else ""
        if "version 14." in version:
            return name
    print("format: not checked, because clang-format 14 is not installed")
    return None


def wrong_format(names):
    program = clang_format()
    if not program:
        return []
    done = subprocess.run([program, "--dry-run", *names], cwd=ROOT, text=True, capture_output=True)
    places = re.findall(r"^(\S+:\d+):\d+: warning", done.stderr, re.M)
    if done.returncode != 0 and not places:
        return [f"{program}: {done.stderr}"]
    return [f"{place}: not in the format of clang-format 14" for place in places]


def main():
    names, properties = files_of_tree(), rules()
    wrong = [line for name in names for line in wrong_in(name, properties(name))]
    wrong += wrong_format([name for name in names if name.endswith(FORMATTED)])
    if len(names) < 300:
        wrong.append(f"only {len(names)} files found")
    print("\n".join(wrong) or f"{len(names)} files are as .editorconfig and .clang-format say")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
