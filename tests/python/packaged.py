# SPDX-License-Identifier: Apache-2.0
"""The functions that the suites of the Python package share. They build a wheel of this tree by pip, run the tests of a
folder with this wheel, and print TAP."""

import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# A test in the output of unittest: its name, perhaps its docstring, the text that it prints, and its result.
RESULT = re.compile(r"^(test_\w+) \([^)]*\)(?:\n[^\n]*)? \.\.\. (?:[^\n]*\n)*?(ok|ERROR|FAIL|skipped.*)$", re.M)


class Tap:
    """Prints a TAP line for each test, and the plan at the end."""

    def __init__(self):
        self.count = self.failures = 0

    def line(self, name, ok, output=""):
        self.count += 1
        self.failures += not ok
        if not ok:
            print("\n".join("# " + line for line in output.splitlines()[-40:]))
        print(f"{'ok' if ok else 'not ok'} {self.count} - {name}", flush=True)
        return ok

    def end(self):
        print(f"1..{self.count}")
        return 1 if self.failures else 0


def run(*command, **more):
    """Runs a command. Returns whether the command ended in time with exit status 0, and its output."""
    try:
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, **more)
        return done.returncode == 0, done.stdout
    except subprocess.TimeoutExpired as late:
        return False, (late.stdout or b"").decode(errors="replace") + "\ntime-out"


def build_wheel(tap, python, folder):
    """Builds a wheel by pip, in folder/wheel. Returns the path of the wheel, or None after a failure. The build tree of
    meson is kept in folder/meson."""
    shutil.rmtree(folder / "wheel", ignore_errors=True)
    ok, output = run(python, "-m", "pip", "wheel", "--no-deps", ROOT, "-w", folder / "wheel",
                     f"--config-settings=build-dir={folder / 'meson'}")
    wheels = list((folder / "wheel").glob("*.whl"))
    return wheels[0] if tap.line("pip builds a wheel", ok and len(wheels) == 1, output) else None


def notes(output):
    """Returns the lines of an output that begin with "# "."""
    return "".join(line + "\n" for line in re.findall(r"^# .*$", output, re.M))


def run_tests(tap, python, tests, environment, time_limit=1200):
    """Runs the files test_*.py of a folder, and prints the notes in their output. Each file may take `time_limit`
    seconds."""
    for test in sorted(tests.glob("test_*.py")):
        ok, output = run(python, "-W", "ignore", "-m", "unittest", "-v", test.stem, timeout=time_limit, cwd=tests,
                         env=environment)
        print(notes(output), end="")
        results = RESULT.findall(output)
        for name, result in results:
            tap.line(f"{test.stem}: {name}", result == "ok", output)
        ran = re.search(r"^Ran (\d+) tests?", output, re.M)
        is_whole = ran and int(ran[1]) == len(results) > 0 and ok
        tap.line(f"{test.stem}: all of its tests", bool(is_whole), output)
