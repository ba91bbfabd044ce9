#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every include of the tree. The folders of the library must not include files of a layer above them
(docs/architecture.md), but files of kernels/ may include the public header. ggml/, python/ and examples/ must not
include files of dispatch/ or kernels/. The folder of an instruction set must not include files of another instruction
set, except files of scalar/. Includes in scalar/ itself are not checked by this rule. The folder of a unit may include
files of its instruction set. A file in quotes, other than a public or generated header, must be named by its path from
the top of the tree. The script also limits the number of files in a folder, because files are hard to find in a large
folder. The script tests these rules in a made-up tree.

    python3 tests/repository/includes.py
"""

import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ("bench", "dispatch", "docs", "examples", "ggml", "include", "kernels", "python", "tests",
         "tools")
WITH_INCLUDES = (".c", ".h", ".cc", ".cpp", ".hpp", ".in")
COUNTED = (".c", ".h", ".cc", ".cpp", ".hpp", ".py")
MOST_FILES = 22  # the most files in a folder, counted without its subfolders
OUTSIDE = {"bench", "examples", "ggml", "python", "tests", "tools"}  # folders that do not belong to the library
FORBIDDEN = {
    "include": OUTSIDE | {"dispatch", "kernels"},
    "kernels": OUTSIDE | {"dispatch"},
    "dispatch": OUTSIDE,
    "ggml": (OUTSIDE - {"ggml"}) | {"dispatch", "kernels"},  # uses the library like any other program
    "python": (OUTSIDE - {"python"}) | {"dispatch", "kernels"},  # uses the library like any other program
    "examples": set(ROOMS),  # readers compile copies of the examples outside of this tree
}
INCLUDE = re.compile(r"^\s*#\s*include\b\s*(.*?)\s*$", re.M)
NAME = re.compile(r'([<"])([^<>"]+)[>"]')
PUBLIC = re.compile(r"attnkit(?:/\w+)?\.h(?:pp)?")
GENERATED = re.compile(r"\w+_config\.h")


def files(root, suffixes):
    """Returns the files of ROOMS with these suffixes, as paths from the top of the tree."""
    return sorted(path.relative_to(root) for room in ROOMS for path in (root / room).rglob("*")
                  if path.suffix in suffixes and path.is_file())


def includes(root):
    """Yields (file, line number, rest of the line after `#include`) for each include."""
    for path in files(root, WITH_INCLUDES):
        text = (root / path).read_text(encoding="utf-8")
        for found in INCLUDE.finditer(text):
            yield path, text.count("\n", 0, found.start(1)) + 1, found[1]


def instruction_set(root, parts):
    """Returns the instruction set or unit that a path belongs to, or None. The folder of each set or unit in kernels/
    has a table.c, except scalar/. So scalar does not count as an instruction set here."""
    is_one = len(parts) > 2 and parts[0] == "kernels" and (root / "kernels" / parts[1] / "table.c").exists()
    return parts[1] if is_one else None


def is_by_path_from_the_top(root, name):
    return ".." not in name.split("/") and not name.startswith("/") and (root / name).is_file()


def wrong(root, path, words):
    """Returns the fault of an include, or None."""
    match = NAME.match(words)
    if not match:
        return "must have a name in quotes or in angle brackets"
    is_quoted, name = match[1] == '"', match[2]
    target, room = pathlib.PurePath(name).parts, path.parts[0]
    if target[0] in FORBIDDEN.get(room, ()):
        return f"{room}/ includes nothing of {target[0]}/"
    if room == "examples" and is_quoted:
        return "an example includes <attnkit.h> and headers of the system, and nothing else"
    ours, theirs = instruction_set(root, path.parts), instruction_set(root, target)
    if ours and theirs and theirs not in (ours, ours.split("_")[0]):  # a unit uses tiles of its instruction set
        return f"the tiles of {ours} include no file of the tiles of {theirs}"
    is_known = PUBLIC.fullmatch(name) or GENERATED.fullmatch(name)
    if is_quoted and not is_known and not is_by_path_from_the_top(root, name):
        return "is not the path of a file of the tree, from the top"
    return None


def wrong_includes(root):
    for path, line, words in includes(root):
        problem = wrong(root, path, words)
        if problem:
            yield f"{path}:{line}: #include {words}: {problem}"


def full_folders(root):
    counts = {}
    for path in files(root, COUNTED):
        counts[path.parent] = counts.get(path.parent, 0) + 1
    for folder, count in counts.items():
        if count > MOST_FILES:
            yield f"{folder}/ has {count} files side by side, at most {MOST_FILES} are easy to survey"


class Tree(unittest.TestCase):
    """Checks this tree."""

    def test_includes(self):
        self.assertGreater(len(list(includes(ROOT))), 500)
        self.assertEqual("\n".join(wrong_includes(ROOT)), "")

    def test_folders(self):
        self.assertEqual("\n".join(full_folders(ROOT)), "")


class Rules(unittest.TestCase):
    """Tests each rule in a small made-up tree."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("kernels/avx2/table.c", "kernels/neon/table.c", "kernels/neon/neon.h",
                     "kernels/avx2/avx2.h", "kernels/attention/keys.h", "dispatch/cpu/isa.h",
                     "bench/rows/rows.h", "tools/cli/tool.h", "tests/cases/case.h",
                     "examples/shared.h", "include/attnkit.h"):
            self.write(name, "")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def passes(self, name, *lines):
        self.write(name, "".join(f"#include {line}\n" for line in lines))
        self.assertEqual(list(wrong_includes(self.root)), [])

    def fails(self, name, line, problem):
        self.write(name, f"/* a comment */\n#include {line}\n")
        self.assertEqual(list(wrong_includes(self.root)), [f"{name}:2: #include {line}: {problem}"])
        (self.root / name).unlink()

    def test_kernels_include_nothing_above_them(self):
        self.passes("kernels/attention/a.c", '"kernels/attention/keys.h"', '"kernels/avx2/avx2.h"',
                    '"attnkit.h"', '"roof_config.h"', "<math.h>")
        for room, header in (("dispatch", "cpu/isa.h"), ("bench", "rows/rows.h"),
                             ("tools", "cli/tool.h"), ("tests", "support/case.h"),
                             ("examples", "shared.h")):
            for name in ("kernels/a.c", "kernels/avx2/a.h", "kernels/attention/b.c"):
                self.fails(name, f'"{room}/{header}"', f"kernels/ includes nothing of {room}/")
        self.fails("kernels/a.c", "<dispatch/cpu/isa.h>", "kernels/ includes nothing of dispatch/")

    def test_the_backend_of_ggml_includes_the_public_header(self):
        self.write("ggml/op.h", "")
        self.passes("ggml/a.cpp", '"ggml/op.h"', "<attnkit.hpp>", "<ggml.h>")
        self.fails("ggml/a.cpp", '"dispatch/cpu/isa.h"', "ggml/ includes nothing of dispatch/")
        self.fails("dispatch/a.c", '"ggml/op.h"', "dispatch/ includes nothing of ggml/")

    def test_the_package_of_python_includes_the_public_header(self):
        self.write("python/core/array.h", "")
        self.passes("python/core/a.cpp", '"python/core/array.h"', "<attnkit.h>", "<nanobind/nanobind.h>")
        self.fails("python/core/a.cpp", '"dispatch/cpu/isa.h"', "python/ includes nothing of dispatch/")
        self.fails("dispatch/a.c", '"python/core/array.h"', "dispatch/ includes nothing of python/")

    def test_dispatch_includes_nothing_outside_the_library(self):
        self.passes("dispatch/a.c", '"kernels/attention/keys.h"', '"dispatch/cpu/isa.h"')
        for room, header in (("bench", "rows/rows.h"), ("tools", "cli/tool.h"),
                             ("tests", "support/case.h"), ("examples", "shared.h")):
            self.fails("dispatch/cpu/a.c", f'"{room}/{header}"', f"dispatch/ includes nothing of {room}/")

    def test_the_public_header_includes_nothing_of_the_library(self):
        self.passes("include/attnkit/cache.h", "<stdint.h>", '"attnkit.h"', '"attnkit/cache.h"')
        self.fails("include/a.h", '"kernels/attention/keys.h"', "include/ includes nothing of kernels/")
        self.fails("include/a.h", '"dispatch/cpu/isa.h"', "include/ includes nothing of dispatch/")

    def test_an_example_includes_what_is_installed(self):
        self.passes("examples/a.c", "<attnkit.h>", "<attnkit/cache.h>", "<stdio.h>")
        self.fails("examples/b.c", '"attnkit.h"',
                   "an example includes <attnkit.h> and headers of the system, and nothing else")
        self.fails("examples/b.c", "<kernels/attention/keys.h>", "examples/ includes nothing of kernels/")
        self.fails("examples/b.c", '"examples/shared.h"', "examples/ includes nothing of examples/")

    def test_the_tiles_of_an_instruction_set_are_its_own(self):
        self.passes("kernels/avx2/a.c", '"kernels/avx2/avx2.h"', '"kernels/attention/keys.h"')
        self.fails("kernels/avx2/b.c", '"kernels/neon/neon.h"',
                   "the tiles of avx2 include no file of the tiles of neon")

    def test_a_path_is_from_the_top(self):
        self.passes("bench/rows/a.c", '"bench/rows/rows.h"', '"tools/cli/tool.h"', '"roof_config.h"')
        for name in ("rows.h", "../rows/rows.h", "bench/../bench/rows/rows.h", "bench/rows/gone.h",
                     str(self.root / "bench/rows/rows.h")):
            self.fails("bench/rows/b.c", f'"{name}"', "is not the path of a file of the tree, from the top")
        self.fails("bench/rows/b.c", "ROWS",
                   "must have a name in quotes or in angle brackets")

    def test_every_kind_of_source_is_read(self):
        for suffix in WITH_INCLUDES:
            self.fails(f"kernels/attention/a{suffix}", '"dispatch/cpu/isa.h"',
                       "kernels/ includes nothing of dispatch/")
        self.write("kernels/a.c", '  #  include"tests/cases/case.h" // why\n')
        self.assertEqual(len(list(wrong_includes(self.root))), 1)

    def test_a_folder_with_many_files_is_full(self):
        for i in range(MOST_FILES - 1):
            self.write(f"tools/full/{i}{COUNTED[i % len(COUNTED)]}", "")
        self.write("tools/full/deeper/one.c", "")
        self.write("tools/full/meson.build", "")
        self.write("tools/full/last.h", "")
        self.assertEqual(list(full_folders(self.root)), [])
        self.write("tools/full/too_many.py", "")
        self.assertEqual(list(full_folders(self.root)),
                         ["tools/full/ has 23 files side by side, at most 22 are easy to survey"])


if __name__ == "__main__":
    unittest.main()
