# SPDX-License-Identifier: Apache-2.0
"""Tests of names that the command gets from a user or a file: names that hold control characters of a terminal, and two
names of the same file.

    ATTNKIT_COMMAND=build/tools/attnkit python3 tests/cli/test_names.py

test_tools.py describes ATTNKIT_COMMAND. The tests need NumPy."""

import os
import re
import unicodedata
import unittest

from test_layer import HEADS, LayerTest
from test_tools import ENVIRONMENT, ToolTest, attnkit

# A dict: a text -> how messages show this text.
ESCAPES = {"\x1b[31mred": r"\x1b[31mred", "\x07\x08\x0d\x7f": r"\x07\x08\x0d\x7f", "a\nb": r"a\x0ab",
           "\u0085\u009b2J": r"\xc2\x85\xc2\x9b2J", "\u202egpj": r"\xe2\x80\xaegpj",
           "\u2028\u2066\u200f": r"\xe2\x80\xa8\xe2\x81\xa6\xe2\x80\x8f",
           os.fsdecode(b"\xff\xc3(\xed\xa0\x80"): r"\xff\xc3(\xed\xa0\x80",
           os.fsdecode(b"\xf0\x9f\x98"): r"\xf0\x9f\x98"}
READABLE = ("größe", "注意", "\U0001f600", "c\u0327", "a b", r"back\slash", "100%s%n")


def unreadable(text):
    """Returns the invisible characters of a text, without its line ends."""
    return [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]


class Complaints(ToolTest):
    def assert_said(self, done, said):
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(said, done.stderr)
        self.assertEqual((unreadable(done.stderr), done.stderr.count("\n")), ([], 1))

    def test_names_of_files(self):
        for name, shown in {**ESCAPES, **{name: name for name in READABLE}}.items():
            with self.subTest(name=name):
                done = self.attempt("--mask", name, "--mask-kind", "attend")
                self.assert_said(done, f"cannot read {shown}: No such file")
                self.assert_said(self.attempt(out=f"{name}/x"), f"cannot write {shown}/x: ")

    def test_names_in_a_bad_file(self):
        for name, shown in ESCAPES.items():
            with self.subTest(name=name):
                (self.folder / name).write_bytes(b"no array" * 9)
                done = self.attempt("--alibi", name, "--causal", "0")
                self.assert_said(done, f"{shown}: not a .npy file")

    def test_words_and_values(self):
        for text, shown in ESCAPES.items():
            for arguments in ((text,), ("-" + text,), ("run", text), ("info", "--" + text),
                              ("layer", text)):
                with self.subTest(arguments=arguments):
                    self.assert_said(attnkit(*arguments), shown)
            for option in ("--threads", "--scale", "--causal", "--window", "--seed", "--out-type",
                           "--kv-len", "--mask-dims", "--bias-dims"):
                more = {"--seed": ("--dropout", "0.5", "--causal", "0"),
                        "--window": ("--causal", "0"), "--bias-dims": ("--bias", "q.npy"),
                        "--mask-dims": ("--mask", "q.npy", "--mask-kind", "add")}
                with self.subTest(option=option, text=text):
                    self.assert_said(self.attempt(option, text, *more.get(option, ())), shown)

    def test_the_instruction_set(self):
        for text, shown in ESCAPES.items():
            self.assert_said(self.attempt("--isa", text), shown)
            self.assert_said(self.attempt(env={**ENVIRONMENT, "ATTNKIT_ISA": text}), shown)

    def test_a_long_name_is_cut(self):
        done = attnkit("run", "x" * 100000)
        self.assert_said(done, "unknown argument 'xxx")
        self.assertRegex(done.stderr, r"^.{10000,20000}xxx\.\.\.\n$")


class Results(ToolTest):
    def test_names_of_files(self):
        for name, shown in {**ESCAPES, **{name: name for name in READABLE}}.items():
            with self.subTest(name=name):
                for array in "qkv":
                    (self.folder / f"{array}{name}").write_bytes(
                        (self.folder / f"{array}.npy").read_bytes())
                done = attnkit("run", "--q", f"q{name}", "--k", f"k{name}", "--v", f"v{name}",
                               "-o", f"o{name}", "--lse", f"l{name}", folder=self.folder)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                for array in "qkvol":
                    self.assertRegex(done.stdout, r"(?m)\] " + array)
                    self.assertIn(f"] {array}{shown}\n", done.stdout)
                self.assertEqual((unreadable(done.stdout), done.stdout.count("\n")), ([], 8))


class Layers(LayerTest):
    def test_names_of_files_and_tensors(self):
        """A tensor name in a safetensors file has no control characters, but may have other invisible characters."""
        prefix, shown = "ä\u202e\u2028.", r"ä\xe2\x80\xae\xe2\x80\xa8."
        self.store_file(self.weights, prefix=prefix)
        for name, name_shown in ESCAPES.items():
            with self.subTest(name=name):
                (self.folder / name).write_bytes((self.folder / "w.safetensors").read_bytes())
                done = self.attempt(weights=name, out=f"o{name}")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn(f"layer   {name_shown} {shown}, f32\n", done.stdout)
                self.assertEqual(unreadable(done.stdout), [])
        self.store_file({f"{i}{prefix}{name}": array for i in range(2)
                         for name, array in self.weights.items()})
        self.refuse(r"must be one of '0ä\\xe2.*', '1ä\\xe2")
        self.store_file({**self.weights, f"{prefix}in_proj_weight": self.weights["q_proj.weight"]})
        self.refuse(r"must be one of '', 'ä\\xe2")

    def test_refused_tensors(self):
        prefix = "\u202e"
        self.store_file({f"{prefix}{name}": array.reshape(-1)
                         for name, array in self.weights.items()})
        self.refuse(r"attnkit: \\xe2\\x80\\xaeq_proj.weight: its rank is 1", "--prefix", prefix)


def options_with_files(command):
    """Returns the options of a command that take files, according to its help."""
    text = attnkit(command, "--help").stdout
    return re.findall(r"^  (-\S+) (?:FILE|PLACE)\b", text, re.MULTILINE)


class OneFile(ToolTest):
    """If an input and a result, or two results, are the same file, the command refuses to run. It reads and writes
    nothing."""

    RESULTS = ("-o", "--lse", "--weights")
    FILES = {"--q": "q.npy", "--k": "k.npy", "--v": "v.npy", "-o": "out.npy"}

    def refuse_pair(self, first, second, files):
        before = self.contents()
        words = [word for pair in {**self.FILES, **files}.items() for word in pair]
        done = attnkit("run", *words, folder=self.folder)
        with self.subTest(files=files):
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(f"{first} and {second} name one file, ", done.stderr)
            self.assertEqual(self.contents(), before)

    def test_every_option(self):
        (self.folder / "some.npy").write_bytes(b"")
        names = options_with_files("run")
        self.assertGreater(len(names), 11)
        for i, first in enumerate(names):
            for second in names[i + 1:]:
                if first in self.RESULTS or second in self.RESULTS:
                    self.refuse_pair(first, second, {first: "some.npy", second: "some.npy"})

    def test_spellings_and_links(self):
        """Two names lead to one file. The test gives these names to two options. To --q and -o, the test also gives
        them in the other order."""
        (self.folder / "symbolic.npy").symlink_to("q.npy")
        (self.folder / "twice.npy").symlink_to("symbolic.npy")
        os.link(self.folder / "q.npy", self.folder / "hard.npy")
        (self.folder / "inside").symlink_to(".")
        for other in ("q.npy", "./q.npy", ".//q.npy", f"../{self.folder.name}/q.npy",
                      self.folder / "q.npy", "inside/inside/q.npy", "symbolic.npy", "twice.npy",
                      "inside/hard.npy", "hard.npy"):
            self.refuse_pair("--q", "-o", {"-o": other})
            self.refuse_pair("--q", "-o", {"--q": other, "-o": "q.npy"})
            self.refuse_pair("-o", "--lse", {"--q": "k.npy", "-o": other, "--lse": "symbolic.npy"})

    def test_files_that_do_not_exist_yet(self):
        (self.folder / "inside").symlink_to(".")
        for other in ("new.npy", "./new.npy", "inside/new.npy", self.folder / "new.npy"):
            self.refuse_pair("-o", "--weights", {"-o": "new.npy", "--weights": other})
            self.refuse_pair("--q", "-o", {"--q": "new.npy", "-o": other})

    def test_other_files_are_not_refused(self):
        """A result may replace a copy of an input, or the result of an earlier run. A result may also have the name of
        an input in another folder. Two inputs may be the same file."""
        (self.folder / "copy.npy").write_bytes((self.folder / "q.npy").read_bytes())
        (self.folder / "sub").mkdir()
        for name in ("copy.npy", "sub/q.npy", "q.npy.npy"):
            done = self.attempt("--lse", "lse.npy", out=name)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = attnkit("run", "--q", "k.npy", "--k", "k.npy", "--v", "./k.npy", "-o", "lse.npy",
                       folder=self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class OneFileOfALayer(LayerTest):
    RESULTS = ("-o", "--lse", "--attention", "--plot")

    def test_every_option(self):
        names = options_with_files("layer")
        self.assertGreater(len(names), 13)
        for i, first in enumerate(names):
            for second in names[i + 1:]:
                if first in self.RESULTS or second in self.RESULTS:
                    files = {"--weights": "w.safetensors", "--x": "x.npy", "-o": "out.npy",
                             first: "some.npy", second: "./some.npy"}
                    words = [word for pair in files.items() for word in pair]
                    done = attnkit("layer", "--heads", HEADS, *words, folder=self.folder)
                    with self.subTest(files=files):
                        self.assertEqual(done.returncode, 1)
                        self.assertIn(f"{first} and {second} name one file, ", done.stderr)

    def test_a_folder_of_weights(self):
        """Only the tensors that the command reads count as inputs. The other files of the folder do not count."""
        self.store_folder(self.weights)
        path = self.folder / "w" / "k_proj.weight.npy"
        (self.folder / "link.npy").symlink_to(path)
        os.link(path, self.folder / "hard.npy")
        for out in ("w/k_proj.weight.npy", "w/../w/o_proj.bias.npy", "link.npy", "hard.npy"):
            with self.subTest(out=out):
                self.refuse("--weights and -o name one file, ", out=out, weights="w")
                self.refuse("--weights and --lse name one file, ", "--lse", out, weights="w")
        path.rename(self.folder / "real.npy")
        path.symlink_to("../real.npy")
        self.refuse("--weights and -o name one file, real.npy", out="real.npy", weights="w")
        for _ in range(2):
            done = self.attempt(out="w/new.npy", weights="w")
            self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
