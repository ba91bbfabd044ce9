#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests attnkit.distributed over gloo and over MPI, on 1 to 4 ranks, and the example of MPI in C. Prints TAP.

    tests/distributed/suite.py BUILD

The package is built by pip into a new environment in build-distributed/ of the tree, with mpi4py and torch from PyPI.
ATTNKIT_TEST_PYTORCH may name a Python that has torch: then the tests use this torch. This Python must have the version
of the Python that runs this program. Open MPI must be installed.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import launch

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build-distributed"
PYTHON = FOLDER / "venv" / "bin" / "python"
HERE = Path(__file__).resolve().parent
TIMEOUT = 4.0  # seconds; the time-out of a group in the tests that kill or stop a rank
SLACK = 10  # a waiting rank may need this many time-outs on a busy machine
LIMIT = 600  # seconds that the ranks of a test may take

sys.path.insert(0, str(ROOT / "tests" / "python"))
from suite import Tap, run  # noqa: E402


def make_environment(tap):
    """Builds the package by pip, and installs it beside mpi4py and torch. Returns whether all steps worked."""
    shutil.rmtree(FOLDER / "venv", ignore_errors=True)
    shutil.rmtree(FOLDER / "wheel", ignore_errors=True)
    torch = os.environ.get("ATTNKIT_TEST_PYTORCH")
    ok, output = run(sys.executable, "-m", "venv", FOLDER / "venv")
    if not tap.line("a virtual environment", ok, output):
        return False
    if torch:
        folders = subprocess.run([torch, "-c", "import site; print('\\n'.join(site.getsitepackages()))"], text=True,
                                 capture_output=True, check=True).stdout
        site = next((FOLDER / "venv" / "lib").glob("python*/site-packages"))
        (site / "torch_of_another_environment.pth").write_text(folders)
    ok, output = run(PYTHON, "-m", "pip", "wheel", "--no-deps", ROOT, "-w", FOLDER / "wheel",
                     f"--config-settings=build-dir={FOLDER / 'meson'}")
    wheels = list((FOLDER / "wheel").glob("*.whl"))
    if not tap.line("pip builds a wheel", ok and len(wheels) == 1, output):
        return False
    ok, output = run(PYTHON, "-m", "pip", "install", f"{wheels[0]}[bfloat16]", "mpi4py", *([] if torch else ["torch"]))
    return tap.line("pip installs the wheel, mpi4py and torch", ok, output)


def run_ranks(transport, size, task, *arguments, options=(), lost=()):
    command = [PYTHON, "-W", "ignore", HERE / "ranks.py", transport, task, *map(str, arguments)]
    if transport == "mpi":
        return launch.over_mpi(size, command, LIMIT, *options)
    return launch.over_gloo(size, command, LIMIT, lost)


def check(tap, transport, size, task):
    """Checks that all ranks report, and that no rank has found a mistake. Returns a dict: rank -> its report."""
    statuses, text = run_ranks(transport, size, task)
    found = launch.reports(text)
    ok = not any(statuses) and len(found) == size and not any(report["failed"] for report in found.values())
    tap.line(f"{transport}, {size} ranks: {task}", ok, text)
    return found


def check_all(tap, transport):
    for size in 1, 2, 3, 4:
        found = check(tap, transport, size, "bits,costs")
        for function, name, sent, model in found.get(0, {}).get("sums", []):
            print(f"# {transport}, {size} ranks, {function}, {name}: {sent[0]} messages, {sent[1]} bytes; the model "
                  f"says {model[0]}, {model[1]}")
    check(tap, transport, 3, "tensors,subgroup,disagree")


def check_death(tap, transport, how, what, options=()):
    """Rank 1 of 4 is killed or stopped in the middle of a call. All other ranks must raise PeerError in time."""
    _, text = run_ranks(transport, 4, "die", how, what, TIMEOUT, options=options, lost=(1,))
    found = launch.reports(text)
    ok = set(found) == {0, 2, 3} and all(not report["failed"] and report["seconds"] < SLACK * TIMEOUT
                                         for report in found.values())
    tap.line(f"{transport}: rank 1 is {how} before a message of the kind {what}", ok, text)
    for rank, report in sorted(found.items()):
        print(f"#   after {report['seconds']:.1f} s: {report.get('error')}")


def check_deaths(tap):
    for what in "agreement", "state", "result", "part":
        check_death(tap, "gloo", "killed", what)
        check_death(tap, "mpi", "killed", what, ["--enable-recovery"])
    check_death(tap, "gloo", "stopped", "state")
    statuses, text = run_ranks("mpi", 4, "die", "killed", "state", TIMEOUT)
    ended = statuses[0] not in (0, -9) and "time-out" not in text and "exited on signal 9" in text
    tap.line("mpi: by default, mpiexec ends the job when a rank is killed", ended, text)


def check_example(tap, library):
    """Builds examples/mpi_chain.c as a user does, and runs it on 1 to 4 ranks."""
    program = FOLDER / "mpi_chain"
    ok, output = run("mpicc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}",
                     ROOT / "examples" / "mpi_chain.c", library, f"-Wl,-rpath,{library.parent}", "-o", program)
    if not tap.line("mpicc builds the example", ok, output):
        return
    for size in 1, 2, 3, 4:
        statuses, text = launch.over_mpi(size, [program], LIMIT)
        ok = statuses == [0] and f"{size} ranks" in text and "the same bits as one call" in text
        tap.line(f"the example in C on {size} ranks", ok, text)


def check_page(tap):
    ok, output = run(PYTHON, HERE / "page.py", PYTHON, env=launch.environment())
    tap.line("docs/distributed.md: its snippets print what the page says", ok, output)


def measure(tap):
    """Prints the times of calls, and what the cost model says. The test passes whatever the times are."""
    ok, output = run(PYTHON, HERE / "measure.py", env=launch.environment())
    rows = re.findall(r"^\|.*$", output, re.M)
    tap.line("times beside the cost model", ok and len(rows) > 10, output)
    print("\n".join(f"# {row}" for row in rows))


def main():
    library = Path(sys.argv[1]).resolve() / "dispatch" / "libattnkit.so"
    tap = Tap()
    FOLDER.mkdir(exist_ok=True)
    if tap.line("Open MPI is installed", bool(shutil.which("mpiexec") and shutil.which("mpicc"))):
        check_example(tap, library)
        if make_environment(tap):
            check_all(tap, "gloo")
            check_all(tap, "mpi")
            check_deaths(tap)
            check_page(tap)
            measure(tap)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
