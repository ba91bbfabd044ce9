# SPDX-License-Identifier: Apache-2.0
"""Tests of the gates that docs/ci.md gives to other projects: tools/gate, the shell recipe and the GitHub workflow. The
gates run unchanged in a git project, with stand-ins for attnkit, meson, ninja, tools/report.py and tools/floors.py. The
stand-in for attnkit accepts only the options of the real command. The file also tests tests/perf/speed.py and
tools/base_revision.py.

    ATTNKIT_COMMAND=build/tools/attnkit python3 tests/perf/test_ci.py

The tests of the workflow are skipped without PyYAML, and all tests without git."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
except ImportError:
    yaml = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = os.path.abspath(os.environ["ATTNKIT_COMMAND"])
DOCS = ROOT / "docs" / "ci.md"
WORKFLOW = ROOT / "docs" / "ci" / "github-actions.yml"
PLACE = "third_party/attnkit"  # attnkit's folder in the project, as in the recipe and the workflow

# Environment variables control the stand-ins. FAKE_COMPARE names a file of exit statuses, one for each call of `attnkit
# compare`. Calls after the last status get the last status, too. FAKE_VERDICT is the verdict on the point. FAKE_FLOORS
# is the exit status of floors.py, or "busy" if floors.py takes a minute. FAKE_LOG names the file in which the stand-ins
# for attnkit, meson and ninja log every call. FAKE_OPTIONS has the options of the real commands, as JSON. FAKE_ATTNKIT
# names the stand-in for attnkit, which the stand-in for meson copies into the build.
MESON = """#!/bin/sh
echo "meson $*" >> "$FAKE_LOG"
[ ! -e "$3/broken" ] || { echo 'a broken source'; exit 1; }
mkdir -p "$2/tools" "$2/bench" && : > "$2/build.ninja" && cp "$FAKE_ATTNKIT" "$2/tools/attnkit"
"""
NINJA = """#!/bin/sh
echo "ninja $*" >> "$FAKE_LOG"
"""
ATTNKIT = """#!%s
import json, os, sys
with open(os.environ["FAKE_LOG"], "a") as log:
    print("attnkit", *sys.argv[1:], file=log)
known = json.loads(os.environ["FAKE_OPTIONS"])[sys.argv[1]]
unknown = [word for word in sys.argv[2:] if word.startswith("--") and word not in known]
if unknown:
    sys.exit("no such option: " + unknown[0])
if sys.argv[1] == "bench":
    folder = sys.argv[sys.argv.index("--history") + 1]
    os.makedirs(folder, exist_ok=True)
    open(os.path.join(folder, "run.json"), "w").close()
    sys.exit(0)
statuses = open(os.environ["FAKE_COMPARE"]).read().split()
open(os.environ["FAKE_COMPARE"], "w").write(" ".join(statuses[1:] or statuses))
print("the table of points")
with open(sys.argv[sys.argv.index("--json") + 1], "w") as file:
    json.dump({"points": [{"name": "prefill/f32", "verdict": os.environ["FAKE_VERDICT"]}]}, file)
sys.exit(int(statuses[0]))
""" % sys.executable
REPORT = """import shutil, sys
shutil.copy(sys.argv[1] + "/run.json", sys.argv[3])
"""
FLOORS = """import os, sys, time
print("the table of floors", *sys.argv[1:], flush=True)
try:
    time.sleep(60 if os.environ["FAKE_FLOORS"] == "busy" else 0)
except KeyboardInterrupt:
    sys.exit("cleaned up")
sys.exit(int(os.environ["FAKE_FLOORS"]))
"""


def options_of(*command):
    done = subprocess.run([*command, "--help"], text=True, capture_output=True)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
    return sorted(set(re.findall(r"--[a-z][a-z-]*", done.stdout)))


class ProjectTest(unittest.TestCase):
    """Makes a project with two commits. origin/main is the first commit. The second commit, on a branch, changes the
    project's attnkit."""

    @classmethod
    def setUpClass(cls):
        if not shutil.which("git"):
            raise unittest.SkipTest("no git")
        cls.options = {name: options_of(COMMAND, name) for name in ("compare", "bench")}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.project = self.folder / "project"
        self.attnkit = self.project / PLACE
        self.log = self.folder / "log"
        self.log.touch()
        self.make_programs()
        self.make_project()

    def write(self, path, text, mode=0o644):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def make_programs(self):
        for name, text in (("meson", MESON), ("ninja", NINJA), ("attnkit", ATTNKIT)):
            self.write(self.folder / "bin" / name, text, 0o755)
        self.environment = dict(
            os.environ, PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}", HOME=str(self.folder),
            FAKE_LOG=str(self.log), FAKE_ATTNKIT=str(self.folder / "bin" / "attnkit"),
            FAKE_OPTIONS=json.dumps(self.options), FAKE_COMPARE=str(self.folder / "statuses"),
            FAKE_VERDICT="same", FAKE_FLOORS="0", GIT_CONFIG_NOSYSTEM="1")
        for name in ("GATE_TRIES", "GIT_DIR", "GIT_WORK_TREE"):
            self.environment.pop(name, None)

    def make_project(self):
        self.write(self.attnkit / "include" / "attnkit.h", "/* before */\n")
        self.write(self.attnkit / "tools" / "report.py", REPORT)
        self.write(self.attnkit / "tools" / "floors.py", FLOORS)
        for name in ("tools/gate", "tools/base_revision.py", "tests/perf/speed.py"):
            self.write(self.attnkit / name, (ROOT / name).read_text(), 0o755)
        self.git("init", "-q", "-b", "work")
        self.commit("before")
        self.base = self.git("rev-parse", "HEAD").strip()
        self.git("update-ref", "refs/remotes/origin/main", self.base)
        self.write(self.attnkit / "include" / "attnkit.h", "/* after */\n")
        self.commit("after")

    def git(self, *words):
        return self.run_there("git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words,
                              status=0)

    def commit(self, message):
        self.git("add", ".")
        self.git("commit", "-q", "--allow-empty", "-m", message)

    def run_there(self, *command, status, compare="0", **environment):
        """Runs a command in the root of the project. Checks its exit status. Returns its output."""
        (self.folder / "statuses").write_text(compare)
        done = subprocess.run([str(word) for word in command], cwd=self.project, text=True,
                              env={**self.environment, **environment}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60)
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def gate(self, **more):
        return self.run_there(f"{PLACE}/tools/gate", PLACE, PLACE, "speed", "--quick", **more)

    def calls(self, program):
        return [line for line in self.log.read_text().splitlines() if line.startswith(program)]

    def assert_kept(self):
        speed = self.project / "speed"
        self.assertEqual((speed / "compare.txt").read_text(), "the table of points\n")
        self.assertEqual(len(json.loads((speed / "compare.json").read_text())["points"]), 1)
        self.assertTrue((speed / "history" / "run.json").exists())
        self.assertTrue((speed / "report.html").exists())


class GateTest(ProjectTest):
    def test_verdicts_are_exit_statuses_and_figures_are_kept(self):
        for verdict in (0, 1):
            self.assertIn("the table of points", self.gate(compare=str(verdict), status=verdict))
            self.assert_kept()
        self.assertTrue(all("--quick" in call for call in self.calls("attnkit")))

    def test_an_inconclusive_comparison_is_repeated(self):
        self.gate(compare="2 2 0", status=0)
        self.assertEqual(len(self.calls("attnkit compare")), 3)
        self.gate(compare="2", status=2)
        self.assertEqual(len(self.calls("attnkit compare")), 6)
        self.gate(compare="2", status=2, GATE_TRIES="1")
        self.assertEqual(len(self.calls("attnkit compare")), 7)

    def test_errors_are_exit_statuses(self):
        self.assertIn("usage", self.run_there(f"{PLACE}/tools/gate", PLACE, status=64))
        self.assertIn("no source of attnkit",
                      self.run_there(f"{PLACE}/tools/gate", "nowhere", PLACE, "speed", status=65))
        self.gate(compare="67", status=67)
        self.assertFalse((self.project / "speed" / "report.html").exists())
        self.write(self.attnkit / "tools" / "report.py", "raise SystemExit('no page')\n")
        self.gate(status=69)
        self.gate(compare="1", status=1)

    def test_a_source_that_cannot_be_built_is_shown(self):
        self.write(self.attnkit / "broken", "")
        output = self.gate(status=65)
        self.assertIn("a broken source", output)
        self.assertIn("cannot be built", output)


    def test_figures_of_an_earlier_run_are_removed(self):
        self.gate(status=0)
        self.write(self.attnkit / "broken", "")
        shutil.rmtree(self.project / "speed" / "head")
        self.gate(status=65)
        for name in ("compare.txt", "compare.json", "report.html"):
            self.assertFalse((self.project / "speed" / name).exists(), name)

    def test_a_folder_with_builds_of_another_source_is_refused(self):
        self.gate(status=0)
        self.gate(status=0)
        shutil.copytree(self.attnkit, self.project / "other")
        calls = len(self.calls("ninja"))
        for base, head, side in (("other", PLACE, "base"), (PLACE, "other", "head")):
            output = self.run_there(f"{PLACE}/tools/gate", base, head, "speed", status=68)
            self.assertIn(f"speed/{side} is no build of", output)
        self.assertEqual(len(self.calls("meson setup")), 2)
        self.assertEqual(len(self.calls("ninja")), calls + 1)  # for the base of the last run, whose head is refused


class RecipeTest(ProjectTest):
    def test_the_recipe_compares_with_the_base(self):
        blocks = re.findall(r"```sh\n(.*?)```", DOCS.read_text(), re.S)
        self.assertEqual(len(blocks), 1)
        for verdict in (0, 1):
            self.run_there("sh", "-e", "-c", blocks[0], compare=str(verdict), status=verdict)
            self.assert_kept()
            self.assertFalse((self.folder / "base").exists())
        sources = [call.split()[3] for call in self.calls("meson setup")]
        self.assertEqual([os.path.normpath(source) for source in sources],
                         [str(self.folder / "base" / PLACE), str(self.attnkit)])

    def test_commands_in_the_text_have_the_options_that_it_names(self):
        known = {f"attnkit {name}": found for name, found in self.options.items()}
        known["tools/floors.py"] = options_of(sys.executable, ROOT / "tools" / "floors.py")
        code = re.findall(r"`([^`\n]+)`", DOCS.read_text()) + re.findall(
            r"^    (\S.*)$", DOCS.read_text(), re.M)
        seen = set()
        for line in code:
            for command, options in known.items():
                if line.startswith(command):
                    seen.add(command)
                    for option in re.findall(r"--[a-z][a-z-]*", line):
                        self.assertIn(option, options, line)
            for program in re.findall(r"(?:^| )((?:tools|tests|\.ci)/[a-z_]+(?:\.py)?)", line):
                self.assertTrue((ROOT / program).exists(), line)
        self.assertEqual(seen, {"attnkit compare", "tools/floors.py"})


@unittest.skipUnless(yaml, "no PyYAML")
class WorkflowTest(ProjectTest):
    def setUp(self):
        super().setUp()
        self.workflow = yaml.safe_load(WORKFLOW.read_text())
        (self.job,) = self.workflow["jobs"].values()
        self.steps = {step["name"]: step for step in self.job["steps"] if "name" in step}

    def test_the_workflow_has_the_fields_of_github(self):
        self.assertIn("pull_request", self.workflow[True])  # YAML 1.1 reads `on` as true
        self.assertEqual(self.workflow["permissions"], {"contents": "read"})
        self.assertIn("runs-on", self.job)
        for step in self.job["steps"]:
            self.assertEqual(len({"uses", "run"} & step.keys()), 1, step)
            if "uses" in step:
                self.assertRegex(step["uses"], r"^actions/[a-z-]+@v\d+$")

    def run_job(self, compare, status):
        summary = self.folder / "summary"
        output = ""
        for name, ends_with in (("Check out the base", 0), ("Compare", status)):
            output = self.run_there("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c",
                                    self.steps[name]["run"], compare=compare, status=ends_with,
                                    ATTNKIT=self.job["env"]["ATTNKIT"], GITHUB_BASE_REF="main",
                                    GITHUB_STEP_SUMMARY=str(summary))
        self.assertEqual(summary.read_text(), "```\nthe table of points\n```\n")
        return output

    def test_a_green_job(self):
        self.run_job("0", 0)
        self.assert_kept()
        kept = self.steps["Keep the figures"]["with"]["path"].split()
        self.assertEqual(len(kept), 4)
        for path in kept:
            self.assertTrue((self.project / path).exists(), path)

    def test_a_red_job(self):
        self.run_job("1", 1)

    def test_an_inconclusive_job_is_a_warning(self):
        self.assertIn("::warning::", self.run_job("2", 0))


class SpeedTest(ProjectTest):
    """Tests tests/perf/speed.py in a repository that holds only attnkit."""

    def setUp(self):
        super().setUp()
        self.project = self.folder / "attnkit"
        shutil.copytree(self.attnkit, self.project)
        self.build = self.project / "build"
        self.write(self.build / "tools" / "attnkit", ATTNKIT, 0o755)
        self.write(self.build / "bench" / "attnkit-bench", "")
        self.write(self.project / ".gitignore", "build\n")
        self.git("init", "-q", "-b", "main")
        self.commit("before")
        self.base = self.git("rev-parse", "HEAD").strip()
        self.commit("after")

    def speed(self, status, *options, **more):
        return self.run_there(sys.executable, "tests/perf/speed.py", "build", *options, status=status,
                              **more)

    def test_timings_do_not_fail_the_test(self):
        for compare, verdict in (("0", "green"), ("1", "red"), ("2", "inconclusive")):
            for floors, sentence in (("0", "all floors hold"), ("1", "a floor is broken"),
                                     ("2", "could not be judged")):
                output = self.speed(0, compare=compare, FAKE_FLOORS=floors)
                self.assertIn(f"decide nothing here: {verdict}", output)
                self.assertIn(sentence, output)
                self.assertIn("# the table of points", output)
                self.assertIn("# the table of floors", output)
        self.assertIn(f"compare {self.base} {self.build} --quick", self.calls("attnkit")[-1])

    def test_programs_that_cannot_do_their_work_fail(self):
        for status in ("64", "67", "139"):
            self.assertIn("not ok 1 - compare", self.speed(1, compare=status))
        self.assertIn("not ok 3 - floors", self.speed(1, FAKE_FLOORS="3"))

    def test_changed_results_fail_unless_a_commit_announces_them(self):
        for verdict in ("different", "crashed", "only in BASE"):
            output = self.speed(1, compare="1", FAKE_VERDICT=verdict)
            self.assertIn("not ok 2 - compare: no result has changed", output)
            self.assertIn(f"prefill/f32: {verdict}", output)
        self.speed(0, FAKE_VERDICT="only in HEAD")
        self.assertNotIn("--allow-different-bits", self.log.read_text())
        self.git("commit", "-q", "--amend", "--allow-empty", "-m", "after\n\nBits-change: a new order")
        self.assertIn("results have changed on purpose: a new order", self.speed(0))
        self.assertIn("--allow-different-bits", self.calls("attnkit")[-1])
        self.assertIn("not ok 2", self.speed(1, FAKE_VERDICT="different"))

    def test_slow_programs_are_stopped_and_reported(self):
        output = self.speed(0, "--limit", "10", FAKE_FLOORS="busy")
        self.assertIn("# the table of floors", output)
        self.assertRegex(output, r"ok \d - floors # SKIP not ready after 10 s")

    def test_missing_git_and_benches_are_reported(self):
        shutil.rmtree(self.project / ".git")
        (self.build / "bench" / "attnkit-bench").unlink()
        output = self.speed(0)
        self.assertIn("compare # SKIP not available here", output)
        self.assertIn("floors # SKIP not available here", output)
        self.assertEqual(self.calls("attnkit"), [])

    def base_revision(self, status=0):
        return self.run_there(sys.executable, "tools/base_revision.py", status=status).strip()

    def test_the_base_is_where_the_branch_left(self):
        self.assertEqual(self.base_revision(), self.base)  # HEAD is main itself
        main = self.git("rev-parse", "HEAD").strip()
        self.git("checkout", "-q", "-b", "work")
        self.commit("one")
        self.commit("two")
        self.assertEqual(self.base_revision(), main)
        self.git("checkout", "-q", "--orphan", "alone")
        self.commit("first")
        self.git("branch", "-q", "-D", "main", "work")
        self.base_revision(status=77)


if __name__ == "__main__":
    unittest.main(verbosity=2)
