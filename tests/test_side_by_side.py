# SPDX-License-Identifier: Apache-2.0
"""Tests of tests/side_by_side.py. The output of jobs appears in the order of the list of jobs, whatever the order in
which the jobs end. A job starts after the jobs for which it waits. A job with alone=True runs alone. A job that dies is
reported.

    python3 tests/test_side_by_side.py
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parent
TIME_LIMIT = 60  # seconds to wait for an expected event

# Jobs signal each other by creating files in the current folder.
PRELUDE = f"""
import os, sys, time
sys.path.insert(0, {str(TESTS)!r})
from side_by_side import Job, run_jobs

def leave(name):
    open(name, "w").close()

def wait_for(name):
    end = time.monotonic() + {TIME_LIMIT}
    while not os.path.exists(name):
        if time.monotonic() > end:
            sys.exit("no " + name)
        time.sleep(0.01)

def tell(jobs, at_once=2):
    for job, outcome in run_jobs(jobs, at_once):
        print(job.name, outcome.value, flush=True)
"""


def run(program):
    """Runs a program of jobs in an empty folder, and returns the lines of its output. The program must succeed."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", PRELUDE + program], cwd=folder, text=True,
                              capture_output=True, timeout=2 * TIME_LIMIT)
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout.splitlines()


class SideBySideTest(unittest.TestCase):
    def test_jobs_run_at_once_and_print_in_order(self):
        lines = run("""
def first():
    print("first begins", flush=True)
    wait_for("second ended")
    os.system("echo a program says")
    return 1

def second():
    print("second")
    leave("second ended")
    return 2

tell([Job("one", first), Job("two", second)])
""")
        self.assertEqual(lines, ["first begins", "a program says", "one 1", "second", "two 2"])

    def test_the_number_of_jobs_at_once_is_limited(self):
        lines = run("""
def work(name):
    def run():
        leave(name)
        time.sleep(0.3)
        busy = [n for n in "abcd" if os.path.exists(n)]
        os.remove(name)
        return len(busy)
    return run

tell([Job(name, work(name)) for name in "abcd"])
""")
        counts = [int(line.split()[1]) for line in lines]
        self.assertLessEqual(max(counts), 2)

    def test_a_job_sees_the_results_of_earlier_jobs(self):
        lines = run("""
found = []
jobs = [Job("late", lambda: list(found), ("early", "of no job")), Job("early", lambda: "seen")]
ended = lambda job, outcome: found.append(outcome.value)
for job, outcome in run_jobs(jobs, 2, ended):
    print(job.name, outcome.value)
""")
        self.assertEqual(lines, ["late ['seen']", "early seen"])

    def test_no_other_job_runs_beside_a_job_alone(self):
        lines = run("""
def busy(name):
    leave(name)
    time.sleep(0.5)
    os.remove(name)

tell([Job("a", lambda: busy("a")), Job("b", lambda: os.listdir("."), alone=True),
      Job("c", lambda: busy("c"))])
""")
        self.assertEqual(lines, ["a None", "b []", "c None"])

    def test_a_job_that_dies_is_reported(self):
        lines = run("""
tell([Job("killed", lambda: os.kill(os.getpid(), 9)), Job("gives up", lambda: sys.exit("no")),
      Job("whole", lambda: 3)])
""")
        self.assertEqual([line for line in lines if line.endswith("None")],
                         ["killed None", "gives up None"])
        self.assertIn("SystemExit: no", lines)
        self.assertEqual(lines[-1], "whole 3")

    def test_processor_time_counts_children_and_not_waiting(self):
        lines = run("""
def spin():
    os.system("while :; do :; done & sleep 0.1; kill $!; wait")
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    time.sleep(0.5)

for job, outcome in run_jobs([Job("spin", spin)], 2):
    print(outcome.wall >= 0.7, 0.2 <= outcome.processor < outcome.wall)
""")
        self.assertEqual(lines, ["True True"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
