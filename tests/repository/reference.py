#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that everything in the public headers is documented: functions, constants, statuses, structs, and each field
of a struct. tools/reference.py assigns the comments to the names."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import reference  # noqa: E402

LEAST = {"function": 59, "struct": 27, "enum": 7, "define": 13}


def names_in(path):
    """Returns the public names of a header. Does not use the parser of tools/reference.py, because the test is whether
    that parser finds every name."""
    code = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    return set(re.findall(r"\b(?:attnkit|ATTNKIT)_\w+(?= [{=]|\(|;)", code)) | set(
        re.findall(r"#define (ATTNKIT_\w+) ", code)) - {"ATTNKIT_API"}


def undocumented(item, structs):
    wrong = [] if reference.item_text(item) or item.kind == "section" else [item.name]
    return wrong + [f"{item.name}.{member.name}" for member in item.members
                    if not reference.member_text(item, member, structs)]


def main():
    headers = reference.all_items()
    structs, wrong, counts, fields = reference.structs_in(headers), [], {}, 0
    for path, (_, items) in headers.items():
        known = {item.name for item in items} | {
            member.name for item in items for member in item.members}
        everything = {item.name for _, others in headers.values() for item in others}
        wrong += [f"{path.name}: {name} is not read" for name in names_in(path) - known - everything]
        for item in items:
            counts[item.kind] = counts.get(item.kind, 0) + 1
            fields += len(item.members)
            wrong += [f"{path.name}: {name} is not documented" for name in undocumented(item, structs)]
    wrong += [f"only {counts.get(kind, 0)} of kind {kind} found" for kind, least in LEAST.items()
              if counts.get(kind, 0) < least]
    print("\n".join(wrong) or
          f"{sum(counts.values())} declarations and sections, {fields} fields and constants are documented")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
