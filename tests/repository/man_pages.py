#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the man pages of a command and of its subcommands. Each paragraph of the help must be on the page, word for
word, in capitals or not. Each option of the help must begin an item of the page. mandoc or groff, if one of them is
installed, must have no warning about a page.

    tests/repository/man_pages.py COMMAND PAGE.1...
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

CHECKERS = [["mandoc", "-Tlint", "-Wwarning"], ["groff", "-ww", "-man", "-z"]]


def output_of(*command):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.stdout if done.returncode == 0 else f"exit status {done.returncode}\n{done.stdout}"


def text_of(page):
    """Returns the text of a page without headings, formatter requests and font changes. Escapes become the characters
    that they stand for."""
    lines = [re.sub(r"^\.(SH|TH|TP|PP|EX|EE|ad|nh)\b.*", "", line) for line in page.split("\n")]
    text = re.sub(r"\\f[BIR]|\\&", "", "\n".join(lines))
    for escape, character in ((r"\-", "-"), (r"\(aq", "'"), (r"\(ha", "^"), (r"\(ti", "~"),
                              (r"\(ga", "`"), (r"\e", "\\")):
        text = text.replace(escape, character)
    return text


def missing_words(helped, page):
    """Returns the paragraphs and options of the help whose words are not on the page in the same order."""
    words = " ".join(text_of(page).split()).lower()
    blocks = re.split(r"\n\n|\n(?=  -)", helped)
    blocks[0] = blocks[0].partition(": ")[2]
    return [block for block in blocks
            if " ".join(block.replace("Exit codes: ", "").split()).lower() not in words]


def wrong_with(command, path):
    subcommand = path.stem.partition("-")[2]
    helped = output_of(command, *([subcommand] if subcommand else []), "--help")
    page = path.read_text()
    wrong = []
    # In the help of attnkit without a subcommand, the text on the environment belongs to the paragraph of the exit
    # codes, and all subcommands are in one paragraph. On the page, the text on the environment is a section, and each
    # subcommand is an item.
    blocks = helped if subcommand else helped.replace("\nThe environment", "\n\nThe environment")
    blocks = blocks if subcommand else re.sub(r"\n(?=  attnkit)", "\n\n", blocks)
    wrong += [f"lacks: {block!r}" for block in missing_words(blocks, page)]
    options = re.findall(r"^  (-[-\w]+)", helped, re.M)
    items = re.findall(r"^\.TP\n\\fB(\S+?)\\fR", page, re.M)
    wrong += [f"has no item {option}" for option in options
              if option.replace("-", r"\-") not in items]
    if subcommand and len(options) < 2:
        wrong.append("is of a command whose help lists fewer than 2 options")
    return [f"{path.name} {text}" for text in wrong]


def warnings(paths):
    checker = next((words for words in CHECKERS if shutil.which(words[0])), None)
    if not checker:
        print("neither mandoc nor groff is installed to check the pages")
        return []
    return [output for output in (output_of(*checker, path) for path in paths) if output]


def main():
    command, *paths = sys.argv[1:]
    paths = [Path(path) for path in paths]
    wrong = warnings(paths)
    for path in paths:
        wrong += wrong_with(command, path)
    print("\n".join(wrong) or f"{len(paths)} man pages have all words of the help")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
