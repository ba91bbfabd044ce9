#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times a change. The machine may run other programs at the same time. The script compares a build with the base commit
(tools/base_revision.py), by `attnkit compare`, and checks the floors of the benches.

    tests/perf/speed.py BUILD [--limit SECONDS]

The script runs `attnkit compare` and tools/floors.py, and prints the results of both programs. A measured time never
makes the test fail (docs/ci.md). The test fails if a program could not do its work. It also fails if a point crashes,
if HEAD cannot make the call of a point of the base, or if the results of the two sides differ. A commit since the base
can allow results with other bits, but close values, by the trailer `Bits-change: REASON`. Prints TAP. `# SKIP` means
that there is no commit to compare with, that the benches are not built, or that the time was up, as on a busy
machine."""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from base_revision import base_revision, git  # noqa: E402

TIME_LIMIT = 240  # seconds for each program, which usually takes a minute or two
CLEAN_UP = 30  # seconds that a program gets to remove its files after its time is up
LATE = "late"  # the "exit status" of a program whose time is up
TRAILER = "Bits-change"
VERDICTS = {0: "green", 1: "red", 2: "inconclusive"}  # exit statuses of attnkit compare
WRONG = ("different", "crashed", "only in BASE")  # bad verdicts that do not depend on times
FLOORS = {0: "all floors hold", 1: "a floor is broken", 2: "some rows could not be judged"}


class Report:
    """Prints TAP. The output of a program becomes comments before the program's test lines."""

    def __init__(self):
        self.count, self.failed = 0, 0

    def show(self, text):
        for line in text.splitlines():
            print(f"# {line}")

    def test(self, name, ok=True, skip=None):
        self.count += 1
        self.failed += not ok
        print(f"{'ok' if ok else 'not ok'} {self.count} - {name}" + (f" # SKIP {skip}" if skip else ""),
              flush=True)


def stop(process):
    """Stops a process as Ctrl-C does, so that the process removes its files and its children end. Kills a process that
    takes longer than CLEAN_UP. Returns the standard output of the process."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        return process.communicate(timeout=CLEAN_UP)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]


def run(report, limit, *command):
    """Runs a program and shows its standard output. Returns its exit status, or LATE if its time is up. Shows the
    standard error, which has the progress, only if the exit status is not 0, 1 or 2."""
    process = subprocess.Popen([str(word) for word in command], cwd=ROOT, text=True, errors="replace",
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True)
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        report.show(stop(process))
        return LATE
    except BaseException:
        stop(process)
        raise
    report.show(out)
    if process.returncode not in VERDICTS:
        report.show(err + f"exit status {process.returncode}")
    return process.returncode


def meant(base):
    """Returns the reasons that the commits since the base give for changed bits."""
    return git(ROOT, "log", f"--format=%(trailers:key={TRAILER},valueonly,separator=%x20)",
               f"{base}..HEAD").strip()


def check_results(report, base, points):
    wrong = [point for point in points if point["verdict"] in WRONG]
    for point in wrong:
        report.show(f"{point['name']}: {point['verdict']} {point.get('note', '')}".rstrip())
    if wrong:
        report.show(f"compared with {base[:12]}. If the change is intended, end a commit message with "
                    f"`{TRAILER}: REASON`.")
    report.test("compare: no result has changed", not wrong)


def compare(report, build, base, limit):
    reasons = meant(base)
    if reasons:
        report.show(f"results have changed on purpose: {reasons}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "compare.json"
        status = run(report, limit, build / "tools" / "attnkit", "compare", base, build, "--quick",
                     "--repository", ROOT, "--json", file,
                     *(["--allow-different-bits"] if reasons else []))
        worked = status in VERDICTS and file.exists()
        points = json.loads(file.read_text())["points"] if worked else []
    if status == LATE:
        return report.test("compare", skip=too_late(limit))
    if worked:
        report.show(f"compare, whose times decide nothing here: {VERDICTS[status]}")
    report.test("compare: it could do its work", worked and bool(points))
    if worked:
        check_results(report, base, points)


def floors(report, build, limit):
    status = run(report, limit, sys.executable, ROOT / "tools" / "floors.py", build, "--quick")
    if status == LATE:
        return report.test("floors", skip=too_late(limit))
    if status in FLOORS:
        report.show(f"floors, which decide nothing here: {FLOORS[status]}")
    report.test("floors: they could be measured", status in FLOORS)


def too_late(limit):
    return f"not ready after {limit} s: this machine is busy"


def read_options():
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("build", type=Path, help="the folder of a build")
    options.add_argument("--limit", metavar="SECONDS", type=int, default=TIME_LIMIT,
                         help=f"time limit of each program; {TIME_LIMIT} by default")
    return options.parse_args()


def main():
    options = read_options()
    report, build = Report(), options.build.resolve()
    base = base_revision(ROOT)
    if base:
        compare(report, build, base, options.limit)
    else:
        report.test("compare", skip="not available here: no commit to compare with")
    if (build / "bench" / "attnkit-bench").exists():
        floors(report, build, options.limit)
    else:
        report.test("floors", skip="not available here: built without Google Benchmark")
    print(f"1..{report.count}")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
