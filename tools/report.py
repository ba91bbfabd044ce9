#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes an HTML page from a history of bench runs: regressions, changes over commits, rooflines, other libraries.

    tools/report.py HISTORY [-o report.html] [--peers bench/results/peers.json ...]

HISTORY is a folder of files that `attnkit bench --history` wrote. The page is a single file without scripts. It needs
no other file and no network. The exit status is 0 if the page was written, and 2 if an option is wrong. The exit status
is 1 if a file of results cannot be used, if the folder has no results, or if the page cannot be written."""

import argparse
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
sys.path += [str(TOOLS / "peers"), str(TOOLS / "report")]

import history  # noqa: E402
import others  # noqa: E402
import page  # noqa: E402
from files import whole  # noqa: E402
from results import Unusable  # noqa: E402


def read_options():
    options = argparse.ArgumentParser(prog="report.py", description=__doc__.splitlines()[0])
    add = options.add_argument
    add("history", type=Path, help="the folder of attnkit bench --history")
    add("-o", "--output", metavar="FILE", type=Path, default=Path("report.html"),
        help="report.html by default")
    add("--peers", metavar="FILE", type=Path, nargs="+", default=[], help="files of tools/peers.py --json")
    return options.parse_args()


def main():
    options = read_options()
    try:
        machines = history.read(options.history)
        html = page.page(machines, [others.read(path) for path in options.peers])
        with whole(options.output) as part:
            part.write_text(html, encoding="utf-8")
    except Unusable as problem:
        sys.exit(f"report.py: {problem}")
    except OSError as problem:
        sys.exit(f"report.py: cannot write {options.output}: {problem.strerror}")
    found = [change for machine in machines for change in machine.changes]
    print(f"wrote {options.output}: {sum(len(machine.runs) for machine in machines)} runs, "
          f"{sum(change.is_open for change in found)} open regressions")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
