# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/floors.py on made-up results with known percentages. The tests check the verdicts, the exit statuses,
the rows that are measured again, the floors that are raised, and the floors of CPU families. floors.py --base must
report a floor that is lower than at a revision, or gone. The last test checks bench/floors with measurements in
bench/results/.

    python3 tests/perf/test_floors.py
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLOORS = ROOT / "tools" / "floors.py"
ZEN4, EMERALD_RAPIDS = "family 25, model 17, stepping 1", "family 6, model 207, stepping 2"

FIRST, SECOND = "decode/f16/avx2/B1_H1_L1x9_D8", "prefill/f32/avx2/B1_H1_L9_D8/t2"

sys.path.insert(0, str(ROOT / "tools" / "report"))

import cpus  # noqa: E402

# A stand-in for `attnkit`. Its rows are the rows in calls.json. --list also prints fma/avx2, a row without a floor.
# calls.json has the measurements of each row for each call. Calls after the last call in calls.json get the
# measurements of that last call.
MADE_UP = """#!{python}
import json, pathlib, re, sys
option = dict(zip(sys.argv[2:], sys.argv[3:]))
rows = json.loads(pathlib.Path(__file__).with_name("calls.json").read_text())
if "--list" in sys.argv:
    print("\\n".join([*rows, "fma/avx2"]))
    sys.exit()
counter = pathlib.Path(__file__).with_name("counter")
call = len(counter.read_text()) if counter.exists() else 0
counter.write_text("x" * (call + 1))
chosen = [name for name in rows if re.search(option["--filter"], name)]
pathlib.Path(__file__).with_name(f"chosen{{call}}").write_text(" ".join(chosen))
entries = [entry for name in chosen for entry in rows[name][min(call, len(rows[name]) - 1)]]
json.dump({{"context": {{"attnkit": "0", "date": "2026-01-01T00:00:00+00:00",
                         "cpu_model": "family 25, model 17, stepping 1"}}, "benchmarks": entries}},
          open(option["--json"], "w"))
"""


def entry(name, percent, share=1.0):
    threads = 2 if name.endswith("/t2") else 1
    kind = "GBps" if name.startswith("decode") else "GFLOPS"
    return {"name": name, "run_type": "iteration", "real_time": 100.0, kind: 1.0,
            "cpu_time": 100.0 * share * threads, "roof_pct": percent}


class FloorsTest(unittest.TestCase):
    """Gives each test a folder that holds a file of floors, and all other files of the test."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write(f"# what this is\n{FIRST} 70.0\n{SECOND} 80.5\n")

    def write(self, text):
        (self.folder / "floors").write_text(text)

    def results(self, name, percents, share=1.0, cpu_model=""):
        """Writes a results file with five measurements of each row, whose median is the row's number in `percents`.
        Returns the path of the file."""
        entries = [entry(row, percent + i - 2, share) for row, percent in percents.items()
                   for i in range(5)]
        path = self.folder / name
        context = {"attnkit": "0", "date": "2026-01-01T00:00:00+00:00", "cpu_model": cpu_model}
        path.write_text(json.dumps({"context": context, "benchmarks": entries}))
        return path

    def floors(self, *words, code):
        done = subprocess.run([sys.executable, FLOORS, *map(str, words), "--floors",
                               str(self.folder / "floors")], text=True, capture_output=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def made_up(self, calls):
        """Makes a build whose `attnkit` writes the measurements in `calls`, which maps a row's name to the row's
        entries in each call. Returns the folder `tools` of the build."""
        tools = self.folder / "build" / "tools"
        tools.mkdir(parents=True)
        (tools / "calls.json").write_text(json.dumps(calls))
        (tools / "attnkit").write_text(MADE_UP.format(python=sys.executable))
        (tools / "attnkit").chmod(0o755)
        return tools

    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", "-C", self.folder, *words],
                       check=True, stdout=subprocess.DEVNULL)


class Floors(FloorsTest):
    def test_verdicts_worst_first(self):
        said = self.floors("--results", self.results("r", {FIRST: 70.5, SECOND: 80.4}), code=1)
        self.assertRegex(said, rf"verdict\n{SECOND} +80.5 % +80.4 % +BELOW\n{FIRST} .* 70.5 % +holds\n")
        self.assertIn("1 floors hold, 1 do not, 0 were not judged", said)
        self.floors("--results", self.results("r", {FIRST: 70.5, SECOND: 80.5}), code=0)

    def test_disturbed_is_not_judged(self):
        said = self.floors("--results", self.results("r", {FIRST: 10, SECOND: 99}, share=0.9), code=2)
        self.assertRegex(said, rf"{FIRST} .* not judged, 5 of 5 measurements disturbed")

    def test_the_lowest_machine_counts(self):
        one = self.results("one", {FIRST: 75, SECOND: 90})
        other = self.results("other", {FIRST: 65, SECOND: 95})
        self.assertRegex(self.floors("--results", one, other, code=1), rf"{FIRST} .* 65.0 % +BELOW")

    def test_measuring_again(self):
        # FIRST is below its floor in the first call, but its median over both calls is above the floor. SECOND is
        # disturbed in its first call.
        tools = self.made_up({
            FIRST: [[entry(FIRST, 69)] * 5, [entry(FIRST, 71)] * 5 + [entry(FIRST, 72)]],
            SECOND: [[entry(SECOND, 60, 0.9)] * 5, [entry(SECOND, 81)] * 5]})
        said = self.floors(self.folder / "build", code=0)
        self.assertIn("2 floors hold", said)
        self.assertEqual((tools / "chosen1").read_text().split(), [FIRST, SECOND])
        self.assertFalse((tools / "chosen2").exists())

    def test_a_floor_that_stays_broken(self):
        tools = self.made_up({FIRST: [[entry(FIRST, 60)] * 5], SECOND: [[entry(SECOND, 99)] * 5]})
        self.floors(self.folder / "build", code=1)
        self.assertEqual((tools / "chosen2").read_text(), FIRST)  # the third call measures this row alone

    def test_a_floor_without_a_row(self):
        self.made_up({FIRST: [[entry(FIRST, 99)] * 5]})
        self.assertIn(f"attnkit bench has no row {SECOND}", self.floors(self.folder / "build", code=3))
        # A floor for a row of an instruction set that cannot run here is no error. The row counts as not measured.
        self.write(f"{FIRST} 70\n{SECOND.replace('avx2', 'neon')} 80\n")
        self.assertIn("1 rows were not measured", self.floors(self.folder / "build", code=0))

    def test_raise_never_lowers(self):
        before = (self.folder / "floors").read_text()
        self.floors("--raise", "--results", self.results("r", {FIRST: 71, SECOND: 82}), code=0)
        self.assertEqual((self.folder / "floors").read_text(), before)
        said = self.floors("--raise", "--results", self.results("r", {FIRST: 90, SECOND: 82}), code=0)
        self.assertIn(f"{FIRST}: 70.0 -> 81.0", said)  # 10 % below the result, because the row is bound by memory
        self.assertEqual((self.folder / "floors").read_text(), before.replace("70.0", "81.0"))

    def test_raise_wants_every_machine_undisturbed(self):
        before = (self.folder / "floors").read_text()
        one = self.results("one", {FIRST: 90, SECOND: 90})
        for other in (self.results("other", {FIRST: 71, SECOND: 82}),
                      self.results("busy", {FIRST: 90, SECOND: 90}, share=0.9),
                      self.results("empty", {})):
            self.floors("--raise", "--results", one, other, code=0)
            self.assertEqual((self.folder / "floors").read_text(), before)

    def test_bad_input(self):
        good = self.results("good", {FIRST: 99})
        text = good.read_text()
        for content, said in ((text[:-9], "is no whole JSON"), ("[" * 100000, "is no whole JSON"),
                              ("[1, 2]", "not of attnkit bench"),
                              (text.replace('"attnkit"', '"other"'), "not of attnkit bench: KeyError"),
                              (text.replace("100.0", "-1"), "is -1"),
                              (text.replace("100.0", '"x"'), "not of attnkit bench: TypeError")):
            good.write_text(content)
            self.assertIn(said, self.floors("--results", good, code=3))
        self.assertIn("cannot read", self.floors("--results", "none", code=3))
        self.assertIn("cannot start", self.floors(self.folder / "none", code=3))
        self.floors("--base", "--quick", code=3)
        self.floors("--no-such", code=3)
        (self.folder / "floors").write_bytes(b"\xff\n")
        self.assertIn("is no text", self.floors("--results", good, code=3))
        for wrong in (f"{FIRST} high\n", f"{FIRST} 1\n{FIRST} 1\n", f"{SECOND} 1\n{FIRST} 1\n", f"{FIRST}\n",
                      f"{FIRST} zen4=1\n", f"{FIRST} 1 zen4\n", f"{FIRST} 1 zen4=1 zen4=2\n",
                      f"{FIRST} 2 zen4=1\n", f"{FIRST} 1 zen=2\n", f"{FIRST} 1 2\n"):
            self.write(wrong)
            self.assertIn("floors:", self.floors("--results", good, code=3))

    @unittest.skipUnless(shutil.which("git"), "no git")
    def test_floors_only_rise(self):
        self.assertIn("nothing to compare with", self.floors("--base", code=77))
        self.git("init", "-q", "-b", "main")
        self.git("add", "floors")
        self.git("commit", "-qm", "one")
        self.assertIn("nothing to compare with", self.floors("--base", code=77))
        self.assertIn("no revision none", self.floors("--base", "none", code=3))
        self.write(f"{FIRST} 71.0\nfew/f32/avx2/x 1.0\n{SECOND} 80.5\n")
        self.assertIn("none of 2 floors is lower than in HEAD; 1 are higher, 1 new",
                      self.floors("--base", "HEAD", code=0))
        self.git("commit", "-qam", "two")
        self.assertIn("none of 2 floors", self.floors("--base", code=0))
        self.write(f"{FIRST} 70.9\n{SECOND} 80.5\n")
        said = self.floors("--base", "HEAD", code=1)
        self.assertIn(f"{FIRST}: the floor was 71.0, is 70.9\n", said)
        self.assertIn("few/f32/avx2/x: the floor was 1.0, is gone\n", said)


class Families(FloorsTest):
    """Tests rows that have columns for CPU families."""

    def test_a_machine_must_reach_the_floor_of_its_family(self):
        self.write(f"{FIRST} 50.0 zen4=70.0\n{SECOND} 80.0 zen4=81.0 emerald_rapids=90.0\n")
        percents = {FIRST: 60, SECOND: 85}
        zen4, unknown = self.results("z", percents, cpu_model=ZEN4), self.results("u", percents)
        emerald = self.results("e", percents, cpu_model=EMERALD_RAPIDS)
        said = self.floors("--results", zen4, code=1)
        self.assertRegex(said, rf"{FIRST} +70.0 % +60.0 % +BELOW\n{SECOND} +81.0 % +85.0 % +holds\n")
        said = self.floors("--results", unknown, code=0)
        self.assertRegex(said, rf"{SECOND} +80.0 % +85.0 % +holds\n{FIRST} +50.0 % +60.0 % +holds\n")
        said = self.floors("--results", emerald, code=1)
        self.assertRegex(said, rf"{SECOND} +90.0 % +85.0 % +BELOW\n{FIRST} +50.0 % +60.0 % +holds\n")
        # Of several machines, the machine with the smallest ratio of its result to its floor decides.
        said = self.floors("--results", unknown, zen4, emerald, code=1)
        self.assertRegex(said, rf"{FIRST} +70.0 % .* BELOW\n{SECOND} +90.0 % .* BELOW\n")

    def test_this_machine_must_reach_the_floor_of_its_family(self):
        self.write(f"{FIRST} 50.0 zen4=70.0\n")
        tools = self.made_up({FIRST: [[entry(FIRST, 60)] * 5, [entry(FIRST, 75)] * 6]})
        self.assertRegex(self.floors(self.folder / "build", code=0), rf"{FIRST} +70.0 % +75.0 % +holds")
        self.assertFalse((tools / "chosen2").exists())  # the floor held at the second measurement

    def raised(self, *files):
        self.floors("--raise", "--results", *files, code=0)
        return (self.folder / "floors").read_text()

    def test_raise(self):
        before = f"{FIRST} 50.0 zen4=60.0\n{SECOND} 50.0 zen4=60.0 emerald_rapids=70.0\n"
        zen4 = self.results("z", {FIRST: 90, SECOND: 90}, cpu_model=ZEN4)
        emerald = self.results("e", {FIRST: 80, SECOND: 80}, cpu_model=EMERALD_RAPIDS)
        slow = self.results("s", {FIRST: 80, SECOND: 40}, cpu_model=ZEN4)
        unknown = self.results("u", {FIRST: 80, SECOND: 80})
        # Results of a single family raise only the column of this family, because these results say nothing about other
        # families.
        self.write(before)
        self.assertEqual(self.raised(zen4), before.replace("zen4=60.0\n", "zen4=81.0\n")
                         .replace("zen4=60.0 e", "zen4=86.4 e"))
        # With results of two families, among them every family with a column, all columns rise. The common floor rises
        # to what the lowest result allows.
        self.write(before)
        self.assertEqual(self.raised(zen4, emerald), f"{FIRST} 72.0 zen4=81.0\n"
                         f"{SECOND} 76.8 zen4=86.4 emerald_rapids=76.8\n")
        # If a family with a column has no results, the common floor stays.
        self.write(before)
        self.assertEqual(self.raised(emerald, unknown), f"{FIRST} 50.0 zen4=60.0\n"
                         f"{SECOND} 50.0 zen4=60.0 emerald_rapids=76.8\n")
        # The slowest machine of a family counts, and no floor falls.
        self.write(before)
        self.assertEqual(self.raised(zen4, slow, emerald), f"{FIRST} 72.0 zen4=72.0\n"
                         f"{SECOND} 50.0 zen4=60.0 emerald_rapids=76.8\n")

    def test_raise_prints_what_it_writes(self):
        self.write(f"{FIRST} 50.0 zen4=60.0\n")
        said = self.floors("--raise", "--results", self.results("z", {FIRST: 90}, cpu_model=ZEN4), code=0)
        self.assertIn(f"{FIRST}: 50.0 zen4=60.0 -> 50.0 zen4=81.0\n1 of 1 floors are higher", said)

    @unittest.skipUnless(shutil.which("git"), "no git")
    def test_floors_only_rise(self):
        self.write(f"{FIRST} 50.0 zen4=60.0\n{SECOND} 70.0\n")
        self.git("init", "-q", "-b", "main")
        self.git("add", "floors")
        self.git("commit", "-qm", "one")
        for higher in (f"{FIRST} 50.0 zen4=61.0\n{SECOND} 70.0 emerald_rapids=70.0\n",
                       f"{FIRST} 60.0\n{SECOND} 70.0\n",  # again a single number for all families
                       f"{FIRST} 50.0 zen4=60.0 zen5=55.0\n{SECOND} 70.0\n"):
            self.write(higher)
            self.assertIn("none of 2 floors is lower", self.floors("--base", "HEAD", code=0))
        for lower, said in (
                (f"{FIRST} 50.0 zen4=59.9\n{SECOND} 70.0\n", f"{FIRST}: the floor of zen4 was 60.0, is 59.9\n"),
                (f"{FIRST} 55.0\n{SECOND} 70.0\n", f"{FIRST}: the floor of zen4 was 60.0, is 55.0\n"),
                (f"{FIRST} 49.0 zen4=60.0\n{SECOND} 70.0\n", f"{FIRST}: the floor was 50.0, is 49.0\n"),
                (f"{FIRST} 50.0 zen4=60.0\n{SECOND} 60.0 zen4=65.0\n",  # a split into columns that lowers both numbers
                 f"{SECOND}: the floor was 70.0, is 60.0\n{SECOND}: the floor of zen4 was 70.0, is 65.0\n")):
            self.write(lower)
            self.assertEqual(self.floors("--base", "HEAD", code=1), said)

    def test_numbers_of_models(self):
        for cpu_model, family in ((ZEN4, "zen4"), (EMERALD_RAPIDS, "emerald_rapids"),
                                  ("family 6, model 106, stepping 6", "ice_lake"),
                                  ("family 25, model 33, stepping 0", "zen3"),
                                  ("family 25, model 170", "zen4"), ("family 6, model 17", None),
                                  ("implementer 0x41, part 0xd40, variant 0x1", None), ("", None)):
            self.assertEqual(cpus.family_of({"cpu_model": cpu_model}), family, cpu_model)
        self.assertIsNone(cpus.family_of({}))


class TheFile(unittest.TestCase):
    def test_the_floors_hold_for_the_measurements_behind_them(self):
        for file, count in (("zen4", r"1\d\d"), ("zen4_masks", "24")):
            done = subprocess.run([sys.executable, FLOORS, "--results", ROOT / f"bench/results/{file}.json"],
                                  text=True, capture_output=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertRegex(done.stdout, rf"\n{count} floors hold, 0 do not")


if __name__ == "__main__":
    unittest.main()
