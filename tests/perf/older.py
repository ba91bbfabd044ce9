#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `attnkit compare` between an old revision and a build. The revision has no worker, and its structs and its
source tree differ from the current structs and source tree. The command builds the revision with the current worker.
The test passes if both sides can make the call of every point, and have the same result or, because the order of sums
has changed since, nearly the same result. The times do not matter.

    tests/perf/older.py BUILD

Prints TAP. `# SKIP` means that the revision is not in this clone."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from base_revision import git  # noqa: E402

REVISION = "ffe4faa06621c03ff30f40799aaead608a8dd2a7"  # the speed of 0.1.0 is measured against this revision
TIME_LIMIT = 1800  # seconds, including the build of the revision
VERDICTS = (0, 1, 2)  # exit statuses: green, red, inconclusive
TIMED = ("same", "slower", "faster", "unclear")  # both sides can make the call, and have nearly the same result


def points(build):
    """Runs the comparison. Returns the exit status, the standard error, and a dict of the points by name."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "compare.json"
        done = subprocess.run([build / "tools" / "attnkit", "compare", REVISION, build, "--repository", ROOT,
                               "--pairs", "20", "--allow-different-bits", "--json", file],
                              text=True, capture_output=True, timeout=TIME_LIMIT)
        found = json.loads(file.read_text())["points"] if file.exists() else []
        return done.returncode, done.stderr, {point["name"]: point for point in found}


def listed(build):
    done = subprocess.run([build / "tools" / "attnkit", "compare", build, build, "--list"], check=True,
                          text=True, stdout=subprocess.PIPE)
    return done.stdout.split()


def problems(build):
    status, said, found = points(build)
    if status not in VERDICTS:
        yield f"exit status {status}: {said}"
        return
    for name in listed(build):
        point = found.get(name, {"verdict": "missing"})
        if point["verdict"] not in TIMED:
            yield f"{name}: {point['verdict']} {point.get('note', '')}".rstrip()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    name = f"attnkit compare {REVISION[:7]}"
    print("1..1")
    if not git(ROOT, "rev-parse", "--verify", "--quiet", f"{REVISION}^{{commit}}"):
        print(f"ok 1 - {name} # SKIP not available here: this clone does not have the commit")
        return 0
    wrong = list(problems(Path(sys.argv[1]).resolve()))
    for problem in wrong:
        print("".join(f"# {line}\n" for line in problem.splitlines()), end="")
    print(f"{'not ok' if wrong else 'ok'} 1 - {name}: all points are compared")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
