# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/static/counts.py and tools/static/loops.py. The tests check which made-up figures pass the gates,
which loops are found in made-up code, and the messages about files that have no figures. They also check which totals
are read from the dumps of a stand-in for valgrind, and which files tools/figures stores.

    python3 tests/perf/test_figures.py
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import stat
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "static"))

import counts  # noqa: E402
import loops  # noqa: E402
import stored_figures  # noqa: E402

STORED = {"decode/f32/avx2/a": 1000, "prefill/f32/avx2/b": 1000000}

# A stand-in for valgrind. Like callgrind, it writes a dump for each row, in the order in which the program names the
# rows.
VALGRIND = """#!/bin/sh
case "$1" in --version) echo valgrind-made-up; exit;; esac
for argument; do
    case "$argument" in --callgrind-out-file=*) file=${argument#*=};; esac
    isa=$argument
done
echo '# glibc made-up'
DUMPS
"""
DUMP = 'echo "NAME/$isa"; echo "totals: TOTAL" >"$file.NUMBER"\n'


def said(function, *arguments):
    """Calls a function. Returns its output and its return value."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        result = function(*arguments)
    return output.getvalue(), result


class Gate(unittest.TestCase):
    def check(self, changes):
        now = {**STORED, **changes}
        return said(counts.check, {k: v for k, v in now.items() if v is not None}, STORED)

    def test_equal_figures_pass(self):
        text, wrong = self.check({})
        self.assertFalse(wrong)
        self.assertIn("0 differ", text)

    def test_worse_by_more_than_half_a_percent_fails(self):
        text, wrong = self.check({"prefill/f32/avx2/b": 1006000})
        self.assertTrue(wrong)
        self.assertRegex(text, r"prefill/f32/avx2/b +1000000 +1006000 +\+0.60 %")
        self.assertIn("tools/figures --write", text)

    def test_the_bound_is_half_a_percent(self):
        self.assertFalse(self.check({"decode/f32/avx2/a": 1005})[1])
        self.assertTrue(self.check({"decode/f32/avx2/a": 1006})[1])

    def test_worse_by_less_passes_and_is_printed(self):
        text, wrong = self.check({"prefill/f32/avx2/b": 1004000})
        self.assertFalse(wrong)
        self.assertIn("+0.40 %", text)
        self.assertNotIn("WRONG", text)

    def test_better_passes_and_asks_to_be_stored(self):
        text, wrong = self.check({"prefill/f32/avx2/b": 900000})
        self.assertFalse(wrong)
        self.assertIn("-10.00 %", text)
        self.assertIn("Better: tools/figures --write", text)

    def test_a_row_that_is_gone_fails(self):
        text, wrong = self.check({"decode/f32/avx2/a": None})
        self.assertTrue(wrong)
        self.assertIn("gone", text)

    def test_a_row_that_is_not_stored_fails(self):
        text, wrong = self.check({"decode/f32/avx2/c": 5})
        self.assertTrue(wrong)
        self.assertIn("new", text)

    def test_the_worst_comes_first(self):
        text, _ = self.check({"decode/f32/avx2/a": 1010, "prefill/f32/avx2/b": 1020000})
        self.assertLess(text.index("prefill"), text.index("decode"))


class Loops(unittest.TestCase):
    STORED = {"scores 24": {"instructions": [41, 40], "loads": [11, 10], "spills": [0, 0],
                            "skylake-avx512": [12.0, 12.0]}}

    def differences(self, changes, key="scores 24", has_mca=True):
        now = {key: {**self.STORED["scores 24"], **changes}}
        return list(loops.differences("avx512", now, self.STORED, has_mca))

    def test_equal_figures_pass(self):
        self.assertEqual(self.differences({}), [])

    def test_any_change_shows(self):
        for name, values, old, new in (("instructions", [41, 39], 40, 39),
                                       ("loads", [11, 11], 10, 11),
                                       ("spills", [1, 0], 0, 1),
                                       ("skylake-avx512", [12.0, 11.99], 12.0, 11.99)):
            with self.subTest(name=name):
                found = self.differences({name: values})
                self.assertEqual([(d.old, d.new) for d in found], [(old, new)])
                self.assertIn(name, found[0].name)

    def test_new_and_missing_loops_differ(self):
        found = self.differences({}, key="scores 21")
        self.assertEqual([(d.old, d.new) for d in found], [(None, 21), (24, None)])
        one = {name: values[:1] for name, values in self.STORED["scores 24"].items()}
        self.assertEqual([(d.old, d.new) for d in self.differences(one)], [(2, 1)])

    def test_cycles_are_only_compared_on_request(self):
        now = {"scores 24": {name: values for name, values in self.STORED["scores 24"].items()
                             if name in loops.COUNTED}}
        self.assertEqual(list(loops.differences("avx512", now, self.STORED, False)), [])
        self.assertEqual(len(list(loops.differences("avx512", now, self.STORED, True))), 1)
        self.assertEqual(len(list(loops.differences("avx512", self.STORED, now, True))), 1)

    def test_stored_figures_are_sound(self):
        for isa in loops.MACHINES:
            self.assertTrue(loops.stored_figures(isa))


# A loop from 10 to 44, in hexadecimal. The jump at 1c leads around the instructions at 30 and 36. The padding at 1e
# lies between this jump and these instructions.
PADDED = """
 0 xor %eax,%eax
 10 vfmadd231ps (%rsi),%ymm1,%ymm2
 14 cmp %ecx,%edx
 16 jle 30 <f+0x30>
 18 vmovaps (%rdi),%ymm1
 1c jmp 40 <f+0x40>
 1e NOP
 30 vfmadd231ps (%rdi),%ymm3,%ymm4
 36 vmovaps (%rdx),%ymm1
 40 add $0x20,%rsi
 44 jne 10 <f+0x10>
 46 ret
"""


class InnerLoops(unittest.TestCase):
    """Checks which loops are found in made-up code."""

    def found(self, text):
        lines = [line.split(maxsplit=1) for line in text.strip().splitlines()]
        function = [(int(address, 16), text) for address, text in lines]
        return list(loops.inner_loops(loops.MACHINES["avx2"], function))

    def test_padding_in_a_loop_is_no_way_into_it(self):
        for padding in ("nop", "nopl 0x0(%rax)", "data16 cs nopw 0x0(%rax,%rax,1)", "xchg %ax,%ax"):
            with self.subTest(padding=padding):
                self.assertEqual([loop[-1] for loop in self.found(PADDED.replace("NOP", padding))],
                                 ["jne 10 <f+0x10>"])
                loop, = self.found(PADDED.replace("NOP", padding))
                self.assertEqual(sum("vfmadd" in text for text in loop), 2)
                self.assertNotIn(padding, loop)

    def test_padding_that_is_passed_through_belongs_to_the_way(self):
        text = PADDED.replace("jmp 40 <f+0x40>", "vmovaps (%rdi),%ymm5").replace("NOP", "nop")
        loop, = self.found(text)
        self.assertEqual(sum("vfmadd" in text for text in loop), 2)
        text = text.replace("jle 30 <f+0x30>", "jle 1e <f+0x1e>")
        loop, = self.found(text)
        self.assertEqual(sum("vfmadd" in text for text in loop), 2)

    def test_another_entry_makes_it_no_loop(self):
        self.assertEqual(self.found(PADDED.replace("NOP", "nop").replace("xor %eax,%eax", "jg 30 <f+0x30>")), [])

    def test_products_of_integers_are_found(self):
        for isa, text in (("avx2", "vpmaddwd %ymm1,%ymm2,%ymm3"), ("avx512_vnni", "vpdpbusd %zmm1,%zmm2,%zmm3"),
                          ("avx512_vnni", "vpdpwssd (%rax){1to16},%zmm2,%zmm3"),
                          ("neon", "smlal v0.4s, v1.4h, v2.4h"), ("neon", "smlal2 v0.4s, v1.8h, v2.8h")):
            self.assertTrue(loops.MACHINES[isa].products.match(text), text)


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        patch = mock.patch.object(counts, "STORE", self.folder)
        patch.start()
        self.addCleanup(patch.stop)
        self.path = self.folder / "gcc-0.0.json"

    def refusal(self):
        with self.assertRaises(SystemExit) as end:
            counts.stored_counts("gcc 0.0", "here")
        self.assertIn(str(self.path), str(end.exception.code))
        return end.exception.code

    def test_written_figures_are_read_back(self):
        counts.write("gcc 0.0", "here", STORED)
        self.assertEqual(counts.stored_counts("gcc 0.0", "here"), STORED)
        self.assertEqual(len(self.path.read_text().splitlines()), len(STORED) + 5)

    def test_a_truncated_file_is_refused(self):
        counts.write("gcc 0.0", "here", STORED)
        whole = self.path.read_text()
        for length in range(1, len(whole) - 2):
            self.path.write_text(whole[:length])
            self.assertIn("not whole", self.refusal())

    def test_a_foreign_file_is_refused(self):
        for text in ('[]', '3', '{"a": 1}', '{"with": "here", "instructions": [1]}',
                     '{"with": "here", "instructions": {"a": "1"}}',
                     '{"with": "here", "instructions": {"a": -1}}'):
            self.path.write_text(text)
            self.assertIn("no figures", self.refusal())
        for text in ('{"gcc 0.0": {"scores 24": {"loads": [1]}}}', '{"gcc 0.0": []}'):
            self.assertFalse(loops.is_sound(json.loads(text)))

    def test_other_libraries_and_compilers_do_not_compare(self):
        counts.write("gcc 0.0", "glibc 1", STORED)
        with self.assertRaisesRegex(counts.NothingToCount, "glibc 1; this machine has glibc 2"):
            counts.stored_counts("gcc 0.0", "glibc 2")
        with self.assertRaisesRegex(counts.NothingToCount, "clang 0.0"):
            counts.stored_counts("clang 0.0", "glibc 1")


class Callgrind(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def count(self, dumps, end=""):
        valgrind = self.folder / "valgrind"
        valgrind.write_text(VALGRIND.replace("DUMPS", "".join(dumps) + end))
        valgrind.chmod(valgrind.stat().st_mode | stat.S_IXUSR)
        environment = {"PATH": f"{self.folder}{os.pathsep}/usr/bin:/bin"}
        with mock.patch.object(counts, "ENVIRONMENT", environment), \
                mock.patch.dict(os.environ, environment):
            return counts.count(self.folder, "avx2", self.folder)

    @staticmethod
    def dump(number, name, total):
        return DUMP.replace("NUMBER", str(number)).replace("NAME", name).replace("TOTAL", str(total))

    def test_each_row_gets_its_total(self):
        rows = [(f"row{n}", 100 + n) for n in range(1, 13)]  # dump 10 comes after dump 9, not after dump 1
        lines, found = self.count([self.dump(n, *row) for n, row in enumerate(rows, 1)])
        self.assertEqual(found, {f"{name}/avx2": total for name, total in rows})
        self.assertEqual(lines, ["glibc made-up"])

    def test_a_row_without_a_count_is_a_failure(self):
        for dumps in ([self.dump(1, "a", 5), 'echo "b/$isa"\n'], [self.dump(1, "a", 0)], []):
            for path in self.folder.glob("avx2.*"):
                path.unlink()
            with self.assertRaises(counts.CountingFailed):
                self.count(dumps)

    def test_a_program_that_fails_is_a_failure(self):
        with self.assertRaisesRegex(counts.CountingFailed, "exit status 1\nno memory"):
            self.count([self.dump(1, "a", 5)], "echo no memory >&2; exit 1")

    def test_a_missing_valgrind_is_reported(self):
        with mock.patch.object(counts.shutil, "which", return_value=None):
            self.assertEqual(counts.why_not(self.folder), "no valgrind here")
        with mock.patch.object(counts.shutil, "which", return_value="valgrind"), \
                mock.patch.object(sys, "argv", ["counts.py", str(self.folder)]):
            text, status = said(counts.main)
        self.assertEqual(status, stored_figures.SKIPPED)
        self.assertIn("not compared", text)


class Figures(unittest.TestCase):
    LOOPS = ("avx512", "gcc 0.0", Loops.STORED)
    CALLS = ("gcc 0.0", "here", STORED)

    def setUp(self):
        loader = importlib.machinery.SourceFileLoader("figures", str(ROOT / "tools" / "figures"))
        self.figures = importlib.util.module_from_spec(
            importlib.util.spec_from_loader("figures", loader))
        loader.exec_module(self.figures)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for module in (counts, loops):
            self.replace(module, "STORE", self.folder)
        self.replace(loops, "has_mca", lambda: True)
        self.replace(self.figures, "builds", lambda: [self.figures.run.BUILD])
        self.replace(self.figures, "build_options", lambda folder: {"c_args": []})
        self.replace(loops, "broken_limits", lambda isa, now: [])

    def replace(self, module, name, value):
        patch = mock.patch.object(module, name, value)
        patch.start()
        self.addCleanup(patch.stop)

    def run_with(self, *arguments, calls=CALLS):
        self.replace(loops, "look_through", lambda folder: [self.LOOPS])
        self.replace(counts, "count_all", lambda folder: calls)
        self.replace(sys, "argv", ["figures", *arguments])
        return said(self.figures.main)

    def test_differences_are_printed_and_stored(self):
        text, status = self.run_with()
        self.assertEqual((status, list(self.folder.iterdir())), (1, []))
        self.assertIn("3 figures differ", text)
        self.assertEqual(self.run_with("--write")[1], 0)
        self.assertEqual(self.run_with(), ("0 figures differ from the stored figures\n", 0))
        worse = {**STORED, "decode/f32/avx2/a": 1100}
        text, status = self.run_with(calls=("gcc 0.0", "here", worse))
        self.assertRegex(text, r"decode/f32/avx2/a +1000 +1100 +\+10.00 %")
        self.assertEqual(status, 1)

    def test_a_broken_limit_fails_though_stored(self):
        self.replace(loops, "broken_limits", lambda isa, now: ["5 spills"])
        text, status = self.run_with("--write")
        self.assertIn("5 spills", text)
        self.assertEqual(status, 1)

    def test_nothing_is_stored_without_cycles(self):
        self.replace(loops, "has_mca", lambda: False)
        with self.assertRaisesRegex(SystemExit, "llvm-19"):
            self.run_with("--write")
        self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
