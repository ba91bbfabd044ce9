#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a man page of the command from its --help, so that the page and the help have the same text.

    tools/cli/man_page.py COMMAND VERSION PAGE.1 [SUBCOMMAND]

COMMAND is the program attnkit of a build. The help has a line "name: summary", paragraphs, blocks that are indented by
2 spaces, and options. Blocks are shown as they are. In the text next to an option, lines that are indented further are
also shown as they are. In the help of attnkit itself, the subcommands take the place of options. The paragraph "Exit
codes: ..." becomes a section. The lines of this paragraph from the word "environment" on become another section. The
date of the version comes from CHANGES.md.
"""

import re
import subprocess
import sys
from pathlib import Path

SUBCOMMANDS = ["run", "layer", "info", "bench", "compare"]
ESCAPES = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "^": r"\(ha", "~": r"\(ti", "`": r"\(ga"}
WIDTH = 78  # characters in a line of a page's source
OPTION = re.compile(r"  (-[-\w]+) ?((?:\S+)?)(?: +(\S.*))?$")


def escaped(text):
    text = "".join(ESCAPES.get(c, c) for c in text)
    return re.sub(r"^\.", r"\\&.", text)


def filled(text):
    """Formats running text. Names of options that begin with -- are bold."""
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line = ""
        line += (" " if line else "") + word
    lines.append(line)
    return [re.sub(r"(?<![\w\]])((?:\\-){2}[a-z][a-z\\-]*[a-z])", r"\\fB\1\\fR", escaped(line))
            for line in lines]


def as_it_is(lines):
    indent = min(len(line) - len(line.lstrip()) for line in lines)
    return [".EX", *(escaped(line[indent:]) for line in lines), ".EE"]


def mixed(lines):
    """Formats lines. Lines at the left margin are running text; all other lines are shown as they are."""
    page, start = [], 0
    for end in range(1, len(lines) + 1):
        if end == len(lines) or lines[end].startswith(" ") != lines[start].startswith(" "):
            part = lines[start:end]
            page += as_it_is(part) if part[0].startswith(" ") else filled(" ".join(part))
            start = end
    return page


def head(name, argument):
    """Returns the lines that begin an item: the item's name in bold, and its argument in italics."""
    more = rf" \fI{escaped(argument)}\fR" if argument else ""
    return [".TP", rf"\fB{escaped(name)}\fR{more}"]


def items(lines, pattern):
    """Returns the items of a list, as (name, argument, lines of text). A line that matches the pattern begins an item.
    The text of the item begins on this line or on the next line. Further lines of the text are indented to the column
    in which the text begins."""
    found = []
    for line in lines:
        begin = pattern.match(line)
        if begin:
            name, argument, text = begin.groups()
            column = begin.start(3) if text else None
            found.append((name, argument, [text] if text else []))
        else:
            column = column or len(line) - len(line.lstrip())
            found[-1][2].append(line[column:])
    return found


def listed(lines, pattern):
    page = []
    for name, argument, text in items(lines, pattern):
        page += head(name, argument) + mixed(text)
    return page


def section(title, page):
    return [f".SH {title}", *page] if page else []


def synopsis(overview, subcommand):
    """Returns the subcommand with its arguments, as the help of attnkit shows them, and with [options]."""
    line = re.search(rf"^  (attnkit {subcommand}\b.*?)(?:  .*)?$", overview, re.M).group(1)
    options = "" if "[options]" in line else " [options]"
    name, _, rest = (line + options).partition(f" {subcommand} ")
    return [rf"\fB{name} {subcommand}\fR {escaped(rest)}"]


def description(paragraphs):
    page = []
    for lines in paragraphs:
        if page:
            page.append(".PP")
        page += mixed(lines)
    return page


def page_of(text, overview, subcommand, version):
    first, *paragraphs = [block.split("\n") for block in text.rstrip("\n").split("\n\n")]
    summary = first[0].partition(": ")[2]
    options, codes, environment, body = [], [], [], []
    for lines in paragraphs:
        if lines[0].startswith("Exit codes:"):
            variable = next((i for i, line in enumerate(lines) if "environment" in line), len(lines))
            codes = filled(" ".join(lines[:variable]).partition(": ")[2].capitalize())
            environment = filled(" ".join(lines[variable:]))
        elif lines[0].startswith("  -"):
            options = listed(lines, OPTION)
        elif lines[0].startswith("  attnkit"):
            commands = re.compile(r"  (attnkit(?: [a-z-]+)?)(?: ((?:(?!  ).)+))?(?: {2,}(.*))?$")
            options = listed(lines, commands)
        else:
            body.append(lines)
    name = f"attnkit-{subcommand}" if subcommand else "attnkit"
    others = [f"attnkit-{other}" for other in SUBCOMMANDS] if not subcommand else ["attnkit"] + [
        f"attnkit-{other}" for other in SUBCOMMANDS if other != subcommand]
    see = [rf"\fB{escaped(other)}\fR(1)" + ("," if other != others[-1] else "") for other in others]
    return [
        f'.TH {name.upper()} 1 "{date_of(version)}" "attnkit {version}" "attnkit"',
        ".ad l", ".nh",  # ragged right and without hyphenation, so that names of options stay whole
        *section("NAME", [f"{escaped(name)} \\- {escaped(summary)}"]),
        *section("SYNOPSIS", synopsis(overview, subcommand) if subcommand else
                 [r"\fBattnkit\fR \fICOMMAND\fR [options]"]),
        *section("DESCRIPTION", description(body)),
        *section("OPTIONS" if subcommand else "COMMANDS", options),
        *section("EXIT STATUS", codes),
        *section("ENVIRONMENT", environment),
        *section("SEE ALSO", see)]


def date_of(version):
    changes = (Path(__file__).resolve().parents[2] / "CHANGES.md").read_text()
    return re.search(rf"^## {re.escape(version)}, (\S+)$", changes, re.M).group(1)


def help_of(command, *arguments):
    return subprocess.run([command, *arguments, "--help"], text=True, check=True,
                          stdout=subprocess.PIPE).stdout


def main():
    command, version, page, *subcommand = sys.argv[1:]
    lines = page_of(help_of(command, *subcommand), help_of(command), "".join(subcommand), version)
    Path(page).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
