#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that what is written twice is the same: the example of README.md and of attnkit.h is the
one that tests/example.c compiles, and the three places that state the version agree."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def read(name):
    return (ROOT / name).read_text()


def main():
    example, readme, header = read("tests/example.c"), read("README.md"), read("include/attnkit.h")
    wrong = []
    blocks = re.findall(r"```c\n(.*?)```", readme, re.S)
    if len(blocks) != 1 or blocks[0] not in example:
        wrong.append("the C example of README.md is not the one in tests/example.c")
    comment = re.sub(r"^ \* ?", "", header.split("*/")[0], flags=re.M)
    body = re.search(r"^    attnkit_attention_args args = .*?free\(exec.workspace\);\n", comment,
                     re.S | re.M)
    if not body or body.group() not in example:
        wrong.append("the example of attnkit.h is not the one in tests/example.c")
    numbers = re.findall(r"#define ATTNKIT_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header)
    version = ".".join(numbers)
    for name, text in (("meson.build", f"version: '{version}'"), ("CHANGES.md", f"## {version}")):
        if text not in read(name):
            wrong.append(f"{name} does not say {text!r}")
    print("\n".join(wrong) or "the texts agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
