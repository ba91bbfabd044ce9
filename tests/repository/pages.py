#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the pages of the tree, without the network. A link into the tree must lead to an existing file. If the link
names a heading, the file must have this heading. All pages must spell the terms of several words in docs/glossary.md as
the glossary does.

    tests/repository/pages.py
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
GLOSSARY = ROOT / "docs" / "glossary.md"
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
CODE = re.compile(r"^```.*?^```|^ {4}[^\n]*$|`[^`]+`", re.S | re.M)


def pages():
    listed = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=ROOT, text=True, capture_output=True)
    if listed.returncode != 0:
        print("no git repository to say which pages belong to the project")
        sys.exit(SKIPPED)
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def anchors(text):
    """Returns the headings of a page in the form of GitHub's anchors."""
    found = set()
    for heading in re.findall(r"^#+ +(.*)$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = sum(1 for other in found if re.fullmatch(re.escape(anchor) + r"(-\d+)?", other))
        found.add(f"{anchor}-{number}" if number else anchor)
    return found


def dead_links(page, text):
    # Links in code do not count. Code is replaced by blanks but keeps its newlines, so that line numbers stay right.
    text = CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    for match in LINK.finditer(text):
        target, _, anchor = match[1].partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = (page.parent / target).resolve() if target else page
        where = f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}"
        if not path.exists():
            yield f"{where}: no file {target}"
        elif anchor and anchor not in anchors(path.read_text()):
            yield f"{where}: no heading #{anchor} in {path.relative_to(ROOT)}"


def terms():
    """Returns the terms of several words in the first column of the glossary."""
    rows = re.findall(r"^\| ([^|]+) \|", GLOSSARY.read_text(), re.M)
    found = [term.strip(" `") for row in rows for term in row.split(",")]
    return [term for term in found if re.search(r"[ -]", term) and not term.startswith("-")]


def other_spellings(term):
    """Returns a pattern that matches all spellings of a term: its words joined by a blank, a hyphen or nothing, in
    capitals or not, with a final s or not."""
    words = re.split(r"[ -]", term)
    return re.compile(rf"\b{'[ -]?'.join(map(re.escape, words))}(s?)\b", re.I)


def misspelt(page, text, patterns):
    text = CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    text = re.sub(r"\]\([^)\s]*\)|https?://\S+", lambda match: " " * len(match.group()), text)
    for term, pattern in patterns:
        for match in pattern.finditer(text):
            said = match.group().removesuffix(match[1])
            at_start = said[:1].lower() + said[1:]
            if term not in (said, at_start):
                line = text.count("\n", 0, match.start()) + 1
                yield f"{page.relative_to(ROOT)}:{line}: {said!r} is {term!r} in the glossary"


def main():
    patterns = [(term, other_spellings(term)) for term in terms()]
    wrong, count = [], 0
    for page in pages():
        text = page.read_text()
        count += len(LINK.findall(text))
        wrong += dead_links(page, text)
        wrong += misspelt(page, text, patterns)
    if count < 80 or len(patterns) < 20:
        wrong.append(f"only {count} links and {len(patterns)} terms found")
    print("\n".join(wrong) or f"{count} links lead somewhere, {len(patterns)} terms have one spelling")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
