# SPDX-License-Identifier: Apache-2.0
"""Handles the figures of a build that are stored in the source tree: the builds to which they belong, their files, and
their differences from the figures of the current build. loops.py and counts.py make the figures; tools/figures stores
them."""

import json
import math
import re
import subprocess
import sys
from collections import namedtuple

ADVICE = "If the change is intended, tools/figures --write stores the new figures, for review."
SKIPPED = 77  # the exit status if there are no figures to check

# The stored value and the new value of a figure. A value that does not exist is None.
Difference = namedtuple("Difference", "name old new")


def run(command, **more):
    return subprocess.run([str(word) for word in command], check=True, text=True,
                          stdout=subprocess.PIPE, **more).stdout


# ------------------------------------------------------------------------------------ the build


def build_options(build):
    """Returns the options of a build as a dict. The dict is empty in a subproject, whose build has no list of
    options."""
    path = build / "meson-info" / "intro-buildoptions.json"
    listing = json.loads(path.read_text()) if path.exists() else []
    return {option["name"]: option["value"] for option in listing}


def is_instrumented(options):
    return options.get("b_sanitize", "none") != "none" or bool(options.get("b_coverage"))


def compiler(objdump, path):
    """Returns the compiler of an object, such as 'gcc 12.2' or 'clang 14.0', by the compiler's comment in the
    object."""
    dump = run([objdump, "-s", "-j", ".comment", path])
    text = "".join(re.findall(r"^ [0-9a-f]+ .{35}  (.*)$", dump, re.M))
    for name, pattern in (("gcc", r"GCC: \(.*?\) (\d+\.\d+)"), ("clang", r"clang version (\d+\.\d+)")):
        match = re.search(pattern, text)
        if match:
            return f"{name} {match[1]}"
    return "an unknown compiler"


# ------------------------------------------------------------------------------------ the files


def read(path, is_sound):
    """Returns the contents of a file of figures, or {} if the file does not exist. Ends the program if the file is not
    sound."""
    if not path.exists():
        return {}
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as problem:
        sys.exit(f"{path}: not whole, or no JSON: {problem}")
    if not isinstance(stored, dict) or not is_sound(stored):
        sys.exit(f"{path}: JSON, but it has no figures of this tool")
    return stored


def is_count(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


# ------------------------------------------------------------------------------ the differences


def percent(difference):
    """Returns the change in percent. The change is infinite if the figure is new or gone, or was 0."""
    old, new = difference.old, difference.new
    return 100 * (new / old - 1) if old and new is not None else math.inf


def words(value):
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def change(difference):
    if difference.old is None:
        return "new"
    if difference.new is None:
        return "gone"
    return f"{percent(difference):+.2f} %" if difference.old else "more"


def print_differences(differences):
    """Prints the old and the new figures, with the worst change first."""
    rows = [(d.name, words(d.old), words(d.new), change(d))
            for d in sorted(differences, key=lambda d: (-percent(d), d.name))]
    rows.insert(0, ("", "stored", "now", "change"))
    widths = [max(map(len, column)) for column in zip(*rows)]
    for name, *values in rows if differences else []:
        print("  " + name.ljust(widths[0]) + "".join(
            "  " + value.rjust(width) for value, width in zip(values, widths[1:])))
