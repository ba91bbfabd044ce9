#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a change of the format is announced. If a line of tests/promises/golden.txt has changed or is gone since
the base commit, CHANGES.md must have changed, too. New lines need no entry in CHANGES.md. The script first tests its
own comparison.

    tests/repository/bits.py [BASE]
"""

import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from base_revision import base_revision, git  # noqa: E402

GOLDEN = "tests/promises/golden.txt"
CHANGES = "CHANGES.md"
SKIPPED = 77


def hashes(text):
    """Returns the lines of golden.txt as a dict: (kind, number) -> hash."""
    return {(kind, number): hash for kind, number, hash in map(str.split, text.splitlines())}


def moved(old, new):
    """Returns a dict: kind -> how many of its hashes have changed or are gone."""
    before, now = hashes(old), hashes(new)
    kinds = [kind for (kind, number), hash in before.items() if now.get((kind, number)) != hash]
    return {kind: kinds.count(kind) for kind in kinds}


class Comparison(unittest.TestCase):
    OLD = "merge 0000 1f\nmerge 0001 2f\nappend 0000 3f\n"

    def test_equal_and_new_lines_are_no_changes(self):
        self.assertEqual(moved(self.OLD, self.OLD + "append 0001 1f\nembed 0000 2f\n"), {})

    def test_changed_and_missing_lines_are_changes(self):
        self.assertEqual(moved(self.OLD, self.OLD.replace("2f", "4f")), {"merge": 1})
        self.assertEqual(moved(self.OLD, "append 0000 3f\n"), {"merge": 2})


def main():
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(Comparison)
    if not unittest.TextTestRunner().run(tests).wasSuccessful():
        return 1
    base = sys.argv[1] if len(sys.argv) > 1 else base_revision(ROOT)
    old = git(ROOT, "show", f"{base}:{GOLDEN}") if base else ""
    if not old or len(old.split("\n")[0].split()) != 3:
        print(f"skipped: no commit to compare with, or its {GOLDEN} is missing or has an older form")
        return SKIPPED
    kinds = moved(old, (ROOT / GOLDEN).read_text())
    if kinds and git(ROOT, "show", f"{base}:{CHANGES}") == (ROOT / CHANGES).read_text().strip():
        print(f"{GOLDEN} has other hashes than {base[:12]}, but {CHANGES} has not changed:",
              ", ".join(f"{count} of {kind}" for kind, count in kinds.items()))
        return 1
    print("all hashes are what they were" if not kinds else f"{CHANGES} has changed with the hashes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
