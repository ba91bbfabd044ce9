# SPDX-License-Identifier: Apache-2.0
"""Tests of the command attnkit compare as a user runs it. A side of a comparison is a build of attnkit, a small
library, or a git revision of such a library. Many of the small libraries have a fault. All small libraries and their
workers are compiled from compare/. Where a test is about time, one side takes several times as long as the other, or
both sides take equally long.

    ATTNKIT_BUILD=build python3 tests/perf/test_compare.py

The tests need a C compiler. Tests of revisions are skipped without git or meson.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import uuid

from processes import marked

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["ATTNKIT_BUILD"]).resolve()
COMMAND = BUILD / "tools" / "attnkit"
TOY = ROOT / "tests" / "perf" / "compare"
CC = os.environ.get("CC", "cc").split()
TIME_LIMIT = 120
MARK = "ATTNKIT_TEST_COMPARE"  # in the environment of every process that a test starts
GREEN, RED, INCONCLUSIVE, BAD_COMMAND, NOT_BUILT, NOT_COMPARABLE, BASE_FAILED, SYSTEM = (
    0, 1, 2, 64, 65, 66, 67, 68)
WORKER = "attnkit-worker.so"
POINT = "prefill/f32/scalar/B1_H2_L9x23_D64"
ONE = ("--filter", f"^{POINT}$", "--pairs", "40")

MESON = """project('attnkit', 'c')
root_inc = include_directories('.')
subdir('dispatch')
subdir('bench/worker')
"""
MESON_DISPATCH = """library = shared_library('attnkit', '../tests/perf/compare/library.c',
  include_directories: root_inc, version: '0.1.0', soversion: '0')
"""
MESON_WORKER = """worker = shared_module('attnkit-worker', '../../tests/perf/compare/worker.c',
  name_prefix: '', include_directories: root_inc, link_with: library, build_by_default: false)
alias_target('worker', worker)
"""


class CompareTest(unittest.TestCase):
    """Gives each test its own folder, cache and mark."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.mark = uuid.uuid4().hex
        self.environment = dict(os.environ, XDG_CACHE_HOME=str(self.folder / "cache"),
                                **{MARK: self.mark})
        self.environment.pop("ATTNKIT_ISA", None)

    def library(self, *faults, soname="libattnkit.so.0"):
        """Builds a library with these faults, and its worker, in a folder named after the faults."""
        name = "-".join(("library", *faults, soname)).replace("=", "-").replace('"', "")
        path = self.folder / name / "libattnkit.so"
        path.parent.mkdir(exist_ok=True)
        build = [*CC, "-O1", "-shared", "-fPIC", f"-I{ROOT}", *(f"-D{fault}" for fault in faults)]
        subprocess.run([*build, TOY / "library.c", f"-Wl,-soname,{soname}", "-o", path], check=True)
        subprocess.run([*build, TOY / "worker.c", path, "-o", path.with_name(WORKER)], check=True)
        return path

    def start(self, *arguments):
        return subprocess.Popen([COMMAND, "compare", *map(str, arguments)], cwd=self.folder,
                                env=self.environment, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def compare(self, *arguments):
        process = self.start(*arguments)
        out, err = process.communicate(timeout=TIME_LIMIT)
        self.nothing_is_left()
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def results(self, *arguments):
        """Runs the command. Returns the exit code, the JSON results and the finished process."""
        path = self.folder / "results.json"
        done = self.compare(*arguments, "--json", path)
        self.assertTrue(path.exists(), done.stderr)
        return done.returncode, json.loads(path.read_text()), done

    def refuse(self, code, pattern, *arguments):
        done = self.compare(*arguments, "--json", "refused.json")
        self.assertRegex(done.stderr, pattern)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(list(self.folder.glob("refused.json*")), [])

    def marked(self):
        return marked(MARK, self.mark)

    def nothing_is_left(self):
        until = time.monotonic() + 10
        while self.marked() and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual(self.marked(), [])
        self.assertEqual(list((self.folder / "cache").glob("attnkit/*")), [])


class Verdicts(CompareTest):
    def test_a_build_against_itself(self):
        code, results, done = self.results(BUILD, BUILD, *ONE, "--seed", "3")
        self.assertIn(code, (GREEN, INCONCLUSIVE))
        self.assertEqual(results["verdict"], ("green", "red", "inconclusive")[code])
        point, = results["points"]
        self.assertEqual(point["name"], POINT)
        self.assertFalse(point["red"] or point["confirmed"])
        self.assertEqual(point["pairs"], 40)
        self.assertLessEqual(point["low"], point["ratio"])
        self.assertLessEqual(point["ratio"], point["high"])
        self.assertGreater(point["base_seconds"], 0)
        self.assertGreater(point["head_seconds"], 0)
        context = results["context"]
        self.assertEqual((context["base"], context["head"]), (str(BUILD), str(BUILD)))
        self.assertEqual(context["seed"], 3)
        self.assertGreaterEqual(context["aa"]["pairs"], 40)
        self.assertIn(POINT, done.stdout)
        self.assertIn(f"[1/1] {POINT}", done.stderr)
        self.assertIn("BASE against itself", done.stdout)

    def slower(self, head, base=None):
        """Checks that the point is slower with `head`, and returns the point. The point is slower on any machine. The
        exit status also depends on the control run of BASE against itself, whose verdict depends on chance."""
        code, results, done = self.results(base or self.library(), head, *ONE)
        point, = results["points"]
        self.assertEqual(point["verdict"], "slower")
        self.assertTrue(point["confirmed"] and point["red"])
        self.assertGreater(point["again"]["ratio"], 1.5)
        self.assertGreater(point["ratio"], 1.5)
        self.assertIn("slower, confirmed", done.stdout)
        is_good = results["context"]["aa"]["good"]
        self.assertEqual(code, RED if is_good else INCONCLUSIVE)
        self.assertEqual(results["verdict"], "red" if is_good else "inconclusive")
        return point

    def test_slower(self):
        self.slower(self.library("WORK=60000"))

    def test_a_side_that_waits_is_slower(self):
        point = self.slower(self.library("SLEEP=2000"))
        self.assertIn("waits", point["note"])

    def test_a_side_that_waits_is_slower_if_its_calls_are_long(self):
        """Even without waits, one call takes more processor time than the least time of a timing."""
        point = self.slower(self.library("WORK=60000", "SLEEP=2000"), self.library("WORK=60000"))
        self.assertIn("waits", point["note"])

    def test_a_side_that_waits_once_is_timed_by_processor_time(self):
        """The first timed call of HEAD in each process waits, as a call may at a page fault."""
        for work in ("WORK=20000", "WORK=60000"):
            _, results, _ = self.results(self.library(work), self.library(work, "SLEEP_ONCE=2000"), *ONE)
            self.assertNotIn("note", results["points"][0])

    def test_other_results(self):
        base = self.library()
        code, results, _ = self.results(base, self.library("WRONG"), *ONE)
        point, = results["points"]
        self.assertEqual((code, point["verdict"], point["red"]), (RED, "different", True))
        self.assertNotIn("ratio", point)
        code, results, _ = self.results(base, self.library("WRONG", "WORK=1"), *ONE,
                                        "--allow-different-bits")
        self.assertEqual((code, results["points"][0]["verdict"]), (RED, "different"))

    def test_a_cache_with_other_values(self):
        code, results, _ = self.results(self.library(), self.library("STORED=2.0f"), *ONE)
        point, = results["points"]
        self.assertEqual((code, point["verdict"], point["red"]), (RED, "different", True))

    def test_results_that_change_from_call_to_call(self):
        code, results, _ = self.results(self.library(), self.library("CHANGING"), *ONE)
        point, = results["points"]
        self.assertEqual((code, point["verdict"], point["red"]), (RED, "different", True))
        self.assertIn("HEAD does not come to the same result each time", point["note"])

    def test_results_that_are_close(self):
        base, head = self.library(), self.library("NEARLY")
        code, results, _ = self.results(base, head, *ONE)
        self.assertEqual((code, results["points"][0]["verdict"]), (RED, "different"))
        code, results, _ = self.results(base, head, *ONE, "--allow-different-bits")
        self.assertIn(code, (GREEN, INCONCLUSIVE))
        self.assertIn("ratio", results["points"][0])
        self.assertRegex(results["points"][0]["note"], "results differ, by up to")

    def test_a_crash_of_head_is_red_and_other_points_are_measured(self):
        code, results, done = self.results(self.library(), self.library("CRASH"), "--pairs", "20",
                                           "--filter", "^prefill/f32/scalar")
        self.assertEqual(code, RED, done.stderr)
        self.assertGreater(len(results["points"]), 1)
        for point in results["points"]:
            self.assertEqual((point["verdict"], point["red"]), ("crashed", True))
            self.assertIn("HEAD crashes: Aborted", point["note"])

    def test_other_ends_of_head(self):
        for fault, note in (("LEAVE", "ends the process, with status 0"),
                            ("HANG", "does not come back")):
            code, results, _ = self.results(self.library(), self.library(fault), *ONE,
                                            "--patience", "1")
            self.assertEqual((code, results["points"][0]["verdict"]), (RED, "crashed"))
            self.assertIn(note, results["points"][0]["note"])

    def test_a_side_that_refuses(self):
        good, bad = self.library(), self.library("REFUSE")
        code, results, _ = self.results(good, bad, *ONE)
        self.assertEqual((code, results["points"][0]["verdict"]), (RED, "only in BASE"))
        self.assertIn("HEAD: not today", results["points"][0]["note"])

    def test_a_point_that_one_side_does_not_have(self):
        more = ("--filter", "^prefill/f32/scalar|^linear/f32/scalar", "--pairs", "20")
        code, results, _ = self.results(self.library(), BUILD, *more)
        points = {point["name"]: point for point in results["points"]}
        linear = points["linear/f32/scalar/R5_I96_O50/warm"]
        self.assertEqual((linear["verdict"], linear["red"]), ("only in HEAD", False))
        self.assertEqual("BASE: the worker has no such point", linear["note"])
        self.assertEqual((code, points[POINT]["verdict"]), (RED, "different"))


    def test_a_call_with_a_note(self):
        code, results, _ = self.results(self.library('NOTE="has no plans"'), self.library(), *ONE)
        self.assertIn(code, (GREEN, INCONCLUSIVE))
        self.assertIn("ratio", results["points"][0])
        self.assertEqual(results["points"][0]["note"], "BASE has no plans")


class TwoApis(CompareTest):
    """Compares sides that agree only in the interface of their workers. The structs, the versions or the data of the
    sides may differ."""

    def compared(self, base, head):
        code, results, done = self.results(base, head, *ONE)
        self.assertIn(code, (GREEN, INCONCLUSIVE), done.stderr)
        self.assertIn("ratio", results["points"][0])
        return results

    def test_structs_of_another_layout(self):
        self.compared(self.library(), self.library("LAYOUT=2"))
        self.compared(self.library("LAYOUT=2"), self.library())

    def test_a_library_of_another_version_and_soname(self):
        head = self.library('VERSION="7.0.0"', soname="libattnkit.so.7")
        context = self.compared(self.library(), head)["context"]
        self.assertEqual((context["base_version"], context["head_version"]), ("0.1.0", "7.0.0"))

    def test_data_that_each_library_packs_for_itself(self):
        """The library aborts if it finds data that another library has set up."""
        self.compared(self.library(), self.library("SCALE=2.0f"))

    def test_data_with_an_address_of_its_library(self):
        """An address of a library differs between two copies of the library, so each copy must have data of its own."""
        self.compared(self.library("ADDRESS"), self.library("ADDRESS"))


class Refusals(CompareTest):
    def test_commands(self):
        base = self.library()
        for pattern, *arguments in (
                ("BASE is missing", "--quick"), ("HEAD is missing", base, "--quick"),
                ("unknown option '--no'", base, base, "--no"),
                ("--pairs is 3", base, base, "--pairs", "3"),
                ("--core is 'x'", base, base, "--core", "x"),
                ("--patience is nan: must be more", base, base, "--patience", "nan"),
                ("--patience is -1: must be more", base, base, "--patience", "-1"),
                ("no point is left", base, base, "--filter", "no such point"),
                (r"--filter is '\('", base, base, "--filter", "(")):
            with self.subTest(pattern):
                self.refuse(BAD_COMMAND, pattern, *arguments)

    def test_help(self):
        done = self.compare("--help")
        self.assertEqual(done.returncode, GREEN)
        self.assertIn("Exit codes: 0 green, 1 red, 2 inconclusive", done.stdout)

    def test_list(self):
        done = self.compare(BUILD, BUILD, "--list")
        names = done.stdout.split()
        self.assertEqual(done.returncode, GREEN)
        self.assertIn(POINT, names)
        self.assertEqual(len(names), len(set(names)))
        quick = self.compare(BUILD, BUILD, "--list", "--quick").stdout.split()
        self.assertLess(set(quick), set(names))

    def test_not_found(self):
        base = self.library()
        (self.folder / "empty").mkdir()
        self.refuse(NOT_BUILT, "HEAD: the folder empty has no library", base, "empty")
        self.refuse(NOT_BUILT, "HEAD, 'nothing', is no file or folder, and there is no git", base,
                    "nothing")

    def test_no_worker(self):
        base, head = self.library(), self.library("WRONG")
        head.with_name(WORKER).unlink()
        where = re.escape(str(head.parent))
        self.refuse(NOT_BUILT, f"HEAD: {where}/libattnkit.so has no worker: neither "
                    f"{where}/{WORKER} nor {where}/../bench/worker/{WORKER} can be read", base, head)
        build = self.folder / "build"
        (build / "dispatch").mkdir(parents=True)
        shutil.copy(base, build / "dispatch")
        self.refuse(NOT_BUILT, f"HEAD: the folder {build} has no worker: {build}/bench/worker/{WORKER}"
                    f": No such file or directory; `meson compile -C {build} worker` builds the worker",
                    base, build)
        (build / "bench" / "worker").mkdir(parents=True)
        shutil.copy(base.with_name(WORKER), build / "bench" / "worker")
        for side in (build, build / "dispatch" / "libattnkit.so"):
            code, _, done = self.results(base, side, *ONE)
            self.assertIn(code, (GREEN, INCONCLUSIVE), done.stderr)

    def test_a_worker_of_another_version(self):
        self.refuse(NOT_COMPARABLE, "the worker of HEAD is of version 7, this attnkit-compare knows "
                    f"version {worker_version()}", self.library(), self.library("WORKER=7"))

    def test_a_module_that_is_no_worker(self):
        self.refuse(NOT_COMPARABLE, "the worker of BASE has no symbol attnkit_worker",
                    self.library("NO_WORKER"), self.library())

    def test_a_worker_of_another_library(self):
        base, head = self.library(), self.library(soname="libattnkit.so.1")
        shutil.copy(base.with_name(WORKER), head.parent)
        self.refuse(NOT_COMPARABLE, "the worker of HEAD was not linked with libattnkit.so.1, the soname "
                    "of its library", base, head)

    def test_not_loaded(self):
        base, head = self.library(), self.library("WRONG")
        whole = head.read_bytes()
        for length in (0, 10, 63, 64, 300, len(whole) // 4, len(whole) // 2):
            head.write_bytes(whole[:length])
            self.refuse(NOT_COMPARABLE, "HEAD cannot be loaded: ", base, head)

    def test_missing_function(self):
        self.refuse(NOT_COMPARABLE, "the worker of BASE cannot be loaded: .*toy_call",
                    self.library("NO_CALL"), self.library())

    def test_base_crashes(self):
        self.refuse(BASE_FAILED, f"BASE crashes: Aborted, at {POINT}", self.library("CRASH"),
                    self.library(), *ONE)

    def test_no_point_in_common(self):
        bad = self.library("REFUSE")
        done = self.compare(bad, self.library(), *ONE, "--json", "r.json")
        self.assertEqual(done.returncode, NOT_COMPARABLE)
        self.assertEqual(list(self.folder.glob("r.json*")), [])
        self.assertIn("there is no point whose call BASE can make", done.stderr)

    def test_a_processor_that_does_not_exist(self):
        base = self.library()
        self.refuse(SYSTEM, "cannot be pinned to processor 1023", base, base, "--core", "1023")

    def test_a_program_that_does_not_exist(self):
        """If the command cannot start attnkit-compare, the exit status of the command is not a verdict."""
        shutil.copy(COMMAND, self.folder / "attnkit")
        environment = dict(self.environment, LD_LIBRARY_PATH=str(BUILD / "dispatch"))
        done = subprocess.run([self.folder / "attnkit", "compare", "a", "b"], env=environment,
                              capture_output=True, text=True, timeout=TIME_LIMIT)
        self.assertEqual(done.returncode, SYSTEM)
        self.assertIn("there is no attnkit-compare beside this command", done.stderr)

    def test_file_that_cannot_be_written(self):
        base = self.library()
        done = self.compare(base, base, *ONE, "--json", "no/folder.json")
        self.assertEqual(done.returncode, SYSTEM)
        self.assertIn("cannot write no/folder.json", done.stderr)

    def test_a_full_disk(self):
        """While the command measures, its unfinished file becomes a link to a device that is always full."""
        process = self.start(self.library(), self.library("SLEEP_ONCE=1000000"), *ONE, "--json", "r.json")
        wait_for(lambda: list(self.folder.glob("r.json.*")))
        unfinished, = self.folder.glob("r.json.*")
        unfinished.unlink()
        unfinished.symlink_to("/dev/full")
        _, err = process.communicate(timeout=TIME_LIMIT)
        self.assertEqual(process.returncode, SYSTEM)
        self.assertRegex(err, r"cannot write r\.json.*: No space left on device")
        self.nothing_is_left()
        self.assertEqual(list(self.folder.glob("r.json*")), [])


@unittest.skipUnless(shutil.which("git") and shutil.which("meson"), "needs git and meson")
class Revisions(CompareTest):
    """Makes a git repository whose revisions are libraries."""

    def setUp(self):
        super().setUp()
        self.repository = self.folder / "repository"
        shutil.copytree(TOY, self.repository / "tests" / "perf" / "compare")
        (self.repository / "bench" / "worker").mkdir(parents=True)
        shutil.copy(ROOT / "bench" / "worker" / "worker.h", self.repository / "bench" / "worker")
        (self.repository / "dispatch").mkdir()
        (self.repository / "meson.build").write_text(MESON)
        (self.repository / "dispatch" / "meson.build").write_text(MESON_DISPATCH)
        (self.repository / "bench" / "worker" / "meson.build").write_text(MESON_WORKER)
        self.git("init", "-q")
        self.commit("good")

    def git(self, *arguments):
        subprocess.run(["git", "-c", "user.name=test", "-c", "user.email=test@localhost",
                        *arguments], cwd=self.repository, check=True)

    def commit(self, tag):
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", tag)
        self.git("tag", tag)

    def test_built_and_kept(self):
        (self.repository / "meson_options.txt").write_text("option('tests', type: 'boolean')\n")
        self.commit("with an option".replace(" ", "-"))
        arguments = ("good", "with-an-option", *ONE, "--repository", self.repository,
                     "--head-setup", "-Dc_args=-DWRONG", "--keep", self.folder / "kept")
        code, results, done = self.results(*arguments)
        self.assertEqual(code, RED, done.stderr)
        self.assertEqual(results["points"][0]["verdict"], "different")
        self.assertRegex(results["context"]["head"], "with-an-option .*-DWRONG")
        self.assertEqual(done.stderr.count("building"), 2)
        self.assertEqual(len(list((self.folder / "kept").iterdir())), 2)
        code, _, done = self.results(*arguments)
        self.assertEqual((code, done.stderr.count("building")), (RED, 0))
        status = subprocess.run(["git", "status", "--porcelain"], cwd=self.repository, check=True,
                                capture_output=True, text=True)
        self.assertEqual(status.stdout, "")

    def test_a_revision_on_both_sides_is_built_once(self):
        code, _, done = self.results("good", "HEAD", *ONE, "--repository",
                                     self.repository / "dispatch")
        self.assertIn(code, (GREEN, INCONCLUSIVE))
        self.assertEqual(done.stderr.count("building"), 1)

    def test_unknown_revision(self):
        self.refuse(NOT_BUILT, "BASE, 'neverwas', is no file, folder or revision", "neverwas",
                    "HEAD", "--repository", self.repository)

    def test_cannot_be_built(self):
        (self.repository / "tests" / "perf" / "compare" / "library.c").write_text("int broken\n")
        self.commit("broken")
        self.refuse(NOT_BUILT, "(?s)HEAD, 'broken', cannot be built: meson compile failed.*error:",
                    "good", "broken", "--repository", self.repository)

    def test_a_revision_without_a_worker(self):
        (self.repository / "bench" / "worker" / "meson.build").unlink()
        (self.repository / "bench" / "worker" / "worker.h").unlink()
        self.commit("older")
        self.refuse(NOT_BUILT, "'older' has no worker, and is too old for the current worker: it has no "
                    "bench/compare/append.c", "good", "older", "--repository", self.repository)

    def test_ctrl_c_while_building(self):
        (self.repository / "meson.build").write_text(
            "project('attnkit', 'c')\nrun_command('sleep', '600', check: true)\n")
        self.commit("slow")
        process = self.start("slow", "slow", "--repository", self.repository, "--json", "r.json")
        wait_for(lambda: any("sleep" in command_of(p) for p in self.marked()))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIME_LIMIT)
        self.assertEqual(process.returncode, -signal.SIGINT, err)
        self.assertNotIn("cannot be built", err)
        self.nothing_is_left()
        self.assertEqual(list(self.folder.glob("r.json*")), [])


class Interrupts(CompareTest):
    def test_ctrl_c_while_measuring(self):
        process = self.start(self.library(), self.library("HANG"), *ONE, "--json", "r.json")
        wait_for(lambda: len(self.marked()) == 2 and list(self.folder.glob("r.json.*")))
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIME_LIMIT)
        self.assertEqual(process.returncode, -signal.SIGINT)
        self.nothing_is_left()
        self.assertEqual(list(self.folder.glob("r.json*")), [])


def worker_version():
    text = (ROOT / "bench" / "worker" / "worker.h").read_text()
    return re.search(r"WORKER_VERSION = (\d+)", text)[1]


def command_of(process):
    try:
        return pathlib.Path(f"/proc/{process}/cmdline").read_bytes().decode()
    except OSError:
        return ""


def wait_for(condition):
    until = time.monotonic() + TIME_LIMIT
    while not condition():
        if time.monotonic() > until:
            raise AssertionError("it did not happen")
        time.sleep(0.05)


if __name__ == "__main__":
    unittest.main()
