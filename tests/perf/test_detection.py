# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/detection.py. The tests check error messages. They run the tool with a stand-in for `attnkit compare`
whose verdicts are known, and check the numbers that the tool counts. The points that tools/detection.py chooses must
exist.

    ATTNKIT_BUILD=build python3 tests/perf/test_detection.py
"""

import contextlib
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["ATTNKIT_BUILD"]).resolve()
TOOL = ROOT / "tools" / "detection.py"

sys.path.insert(0, str(ROOT / "tools"))

import detection  # noqa: E402

NAMES = ["prefill/a", "prefill/b", "prefill/c", "decode/d", "linear/e"]

# A stand-in for meson. The "library" that it builds is a file with the slowdown percentage of the last configuration.
MESON = """#!/bin/sh
case $1 in
setup)
    mkdir -p "$2/dispatch" "$2/bench/worker"
    touch "$2/build.ninja" "$2/bench/worker/attnkit-worker.so" ;;
configure) echo "${3#-Dslowdown=}" >"$2/dispatch/libattnkit.so" ;;
compile) ;;
*) exit 1 ;;
esac
"""

# A stand-in for `attnkit`. `runs` has a list of runs for each percentage, as in RUNS. A run is the verdict on the whole
# comparison and the verdicts on the points. The file HEAD holds a percentage. Each call writes the next run of this
# percentage to the file that --json names. The run "hang" takes a minute, and the run "crash" fails. The exit status of
# the run "wrong" is the status of another verdict.
COMMAND = """#!{python}
import json, pathlib, sys, time
base, head, words = sys.argv[2], sys.argv[3], sys.argv[4:]
assert sys.argv[1] == "compare" and pathlib.Path(base).read_text().strip() == "0"
percent = pathlib.Path(head).read_text().strip()
log = pathlib.Path(__file__).with_name("log" + percent)
with log.open("a") as file:
    file.write(" ".join(words) + "\\n")
verdict, points = {runs}[percent][len(log.read_text().splitlines()) - 1]
if verdict == "hang":
    log.with_name("hangs").touch()
    time.sleep(60)
if verdict == "crash":
    sys.exit("BASE crashes")
json.dump({{
    "verdict": verdict,
    "context": {{"cpu": "none", "seconds": 2.0, "aa": {{"ratio": 1.0, "low": 0.99, "high": 1.01}}}},
    "points": [{{"name": name, "verdict": word.replace("red", "slower"), "red": word == "red",
                "ratio": 1 + int(percent) / 100 * name.startswith("prefill"), "pairs": 400}}
               for name, word in zip({names}, points.split())],
}}, open(words[words.index("--json") + 1], "w"))
sys.exit({{"green": 0, "red": 1, "inconclusive": 2, "wrong": 0}}[verdict])
"""

RUNS = {
    "0": [("green", "same same same same same"),
          ("red", "same same faster red same"),
          ("inconclusive", "red slower same same red")],
    "3": [("red", "red red red same same"),
          ("red", "red slower red same same"),
          ("inconclusive", "red red unclear same same")],
}


class Detection(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write_program(self, path, text):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def make_up(self, runs, names=NAMES):
        self.write_program(self.folder / "tools" / "attnkit",
                           COMMAND.format(python=sys.executable, runs=runs, names=names))
        self.write_program(self.folder / "bin" / "meson", MESON)
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path}

    def words(self, *more):
        return [str(TOOL), str(self.folder), "--percents", "0,3", "--runs", "3", *more]

    def run_tool(self, runs, *more, names=NAMES):
        """Runs the tool. Returns its exit code, and keeps its table in self.out and its error output in self.err."""
        self.out, self.err = io.StringIO(), io.StringIO()
        with mock.patch.dict(os.environ, self.make_up(runs, names)), \
                mock.patch.object(sys, "argv", self.words(*more)), \
                contextlib.redirect_stdout(self.out), contextlib.redirect_stderr(self.err):
            try:
                return detection.main()
            except SystemExit as end:
                return end.code

    def results(self):
        return json.loads((self.folder / "detection" / "results.json").read_text())

    # ------------------------------------------------------------------------------ counting

    def test_shares_of_points_found(self):
        self.assertEqual(self.run_tool(RUNS), 1)
        row = detection.rates(self.results(), 3)
        self.assertEqual((row["runs"], row["inconclusive"], row["red_jobs"]), (3, 1, 2))
        self.assertEqual(row["found"], (5, 6))
        self.assertEqual(row["found_of_inconclusive"], (2, 3))
        self.assertEqual((row["false"], row["false_jobs"]), ((0, 4), (0, 2)))
        self.assertEqual(row["ratio"], (1.03, 1.03, 1.03))

    def test_shares_of_false_alarms(self):
        self.run_tool(RUNS)
        row = detection.rates(self.results(), 0)
        self.assertEqual((row["runs"], row["inconclusive"], row["red_jobs"]), (3, 1, 1))
        self.assertEqual(row["found"], (0, 0))
        self.assertEqual((row["false"], row["false_jobs"]), ((1, 10), (1, 2)))

    def test_the_table_has_all_runs(self):
        self.run_tool(RUNS)
        lines = self.out.getvalue().splitlines()
        self.assertIn("83.3 % of 6 [43.6, 97.0]", lines[3])
        self.assertEqual([word.strip() for word in lines[4].split("|")[1:4]], ["all", "6", "2"])
        self.assertIn("7.1 % of 14", lines[4])
        text = "\n".join(lines)
        self.assertIn("30 verdicts on 5 points", text)
        self.assertIn("Found in inconclusive runs, which do not count: 66.7 % of 3", text)
        self.assertIn("3 % found: 83.3 %, must be >= 95 %: MISSED.", text)
        self.assertIn("jobs red without cause: 25.0 %, must be <= 1 %: MISSED.", text)
        self.assertEqual((self.folder / "detection" / "results.md").read_text(), self.out.getvalue())

    def test_points_that_only_the_first_process_finds(self):
        self.run_tool(RUNS)
        self.assertIn("confirmed the slowdown: 19.0 % of 21", self.out.getvalue())

    def test_floors_that_hold(self):
        good = {"0": [RUNS["0"][0]] * 3, "3": [RUNS["3"][0]] * 3}
        self.assertEqual(self.run_tool(good), 0)
        self.assertNotIn("MISSED", self.out.getvalue())

    def test_inconclusive_runs_alone_do_not_decide(self):
        none = {percent: [runs[2]] * 3 for percent, runs in RUNS.items()}
        self.assertEqual(self.run_tool(none), 3)
        self.assertIn("all runs are inconclusive", self.err.getvalue())

    def test_a_percentage_without_verdicts_misses_its_floor(self):
        some = {"0": [RUNS["0"][0]] * 3, "3": [RUNS["3"][2]] * 3}
        self.assertEqual(self.run_tool(some), 1)
        self.assertIn("3 % found: 0.0 %, must be >= 95 %: MISSED.", self.out.getvalue())

    def test_the_table_of_a_file(self):
        self.run_tool(RUNS)
        measured, table = self.folder / "detection" / "results.json", self.out.getvalue()
        copy = self.folder / "copy"
        self.assertEqual(self.run_tool({}, "--from", str(measured), "--output", str(copy)), 1)
        self.assertEqual(self.out.getvalue(), table)
        self.assertEqual(copy.with_suffix(".json").read_text(), measured.read_text())

    def test_intervals(self):
        self.assertEqual([round(end, 3) for end in detection.interval(8, 10)], [0.490, 0.943])
        self.assertEqual(detection.interval(0, 0), (0.0, 1.0))
        self.assertEqual(detection.band(range(101)), (50, 2, 98))

    # ------------------------------------------------------------------------------- the runs

    def test_order_and_seeds(self):
        order = detection.order_of_runs([0, 1, 2], 30, 1)
        rounds = [order[i:i + 3] for i in range(0, 90, 3)]
        self.assertTrue(all(sorted(one) == [0, 1, 2] for one in rounds))
        self.assertGreater(len({tuple(one) for one in rounds}), 3)
        self.run_tool(RUNS)
        calls = [(self.folder / "tools" / f"log{percent}").read_text().splitlines()
                 for percent in (0, 3)]
        words = [call.split() for log in calls for call in log]
        seeds = {call[call.index("--seed") + 1] for call in words}
        self.assertEqual(len(seeds), 6)

    def test_load_ends(self):
        core = max(os.sched_getaffinity(0))
        load = detection.Load("same", core)
        with load:
            self.assertIsNone(load.process.poll())
        self.assertIsNotNone(load.process.poll())
        with detection.Load("none", core) as none:
            self.assertIsNone(none)

    def test_failures(self):
        for runs, names, message in (
                ({"0": [("crash", "")] * 3, "3": RUNS["3"]}, NAMES, "exit code 1\nBASE crashes"),
                ({"0": [("wrong", "same same")] * 3, "3": RUNS["3"]}, NAMES, "says wrong, but its"),
                ({"0": RUNS["0"], "3": [("red", "different same same same same")] * 3}, NAMES,
                 "prefill/a: different"),
                (RUNS, ["decode/d"], "no point is of prefill"),
                (RUNS, NAMES[:2], "all points are of prefill")):
            with self.subTest(message):
                for log in self.folder.glob("tools/log*"):
                    log.unlink()
                self.assertEqual(self.run_tool(runs, names=names), 3)
                self.assertIn(message, self.err.getvalue())
        with self.assertRaises(SystemExit) as end, contextlib.redirect_stderr(io.StringIO()), \
                mock.patch.object(sys, "argv", [str(TOOL), "--percents", "0,200"]):
            detection.read_options()
        self.assertEqual(end.exception.code, 2)

    def test_interrupted(self):
        runs = {"0": [RUNS["0"][0], ("hang", "")], "3": [RUNS["3"][0], ("hang", "")]}
        process = subprocess.Popen([sys.executable, *self.words()], env=self.make_up(runs),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not (self.folder / "tools" / "hangs").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(30), 130)
        self.assertEqual(len(self.results()["runs"]), 2)
        self.assertEqual(list(self.folder.rglob("*.part")), [])

    # ------------------------------------------------------------------------ the real command

    @unittest.skipUnless((BUILD / "bench" / "compare" / "attnkit-compare").exists(), "no compare")
    def test_the_chosen_points_exist(self):
        done = subprocess.run([BUILD / "tools" / "attnkit", "compare", BUILD, BUILD, "--list",
                               "--filter", detection.POINTS], check=True, text=True,
                              stdout=subprocess.PIPE)
        kinds = {name.split("/")[0] for name in done.stdout.split()}
        self.assertEqual(kinds, {"prefill", "decode", "linear"})


if __name__ == "__main__":
    unittest.main()
