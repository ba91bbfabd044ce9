# SPDX-License-Identifier: Apache-2.0
"""Tests of the command attnkit as a user runs it. The tests write input files, run the command, and check its result
files, messages and exit codes.

    ATTNKIT_COMMAND=build/tools/attnkit python3 tests/cli/test_tools.py

ATTNKIT_COMMAND is the command under test. It may begin with an emulator and its options. The tests need NumPy.
"""

import io
import os
import pathlib
import re
import resource
import shlex
import signal
import struct
import subprocess
import tempfile
import time
import unittest

import numpy as np

COMMAND = shlex.split(os.environ["ATTNKIT_COMMAND"])
COMMAND[-1] = os.path.abspath(COMMAND[-1])
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "ATTNKIT_ISA"}
TIME_LIMIT = 120
RUN_OPTIONS = ("--q", "--k", "--v", "-o", "--lse", "--weights", "--weights-kind", "--out-type",
               "--kv-type", "--integers", "--bf16-products", "--key-index", "--causal", "--align", "--window",
               "--keep-first",
               "--kv-len",
               "--q-docs", "--kv-docs", "--mask", "--mask-kind", "--mask-dims", "--mask-bits",
               "--mask-bits-kind", "--mask-bits-dims", "--bias", "--bias-dims", "--bias-scales",
               "--scale", "--softcap", "--alibi", "--sinks", "--dropout", "--seed", "--isa",
               "--threads", "--repeat", "--help")


def attnkit(*arguments, folder=None, **options):
    options.setdefault("env", ENVIRONMENT)
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([*COMMAND, *map(str, arguments)], cwd=folder, stderr=subprocess.PIPE,
                          text=True, timeout=TIME_LIMIT, **options)


ISAS = attnkit("info", "--isas").stdout.split()


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def npy(array, version=(1, 0)):
    """Returns the bytes of a .npy file."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), version=version)
    return file.getvalue()


def with_header(header, data=b"", version=(1, 0)):
    """Returns the bytes of a .npy file with the given header, valid or not."""
    header = header if isinstance(header, bytes) else header.encode("latin1")
    length = struct.pack("<H" if version[0] == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes(version) + length + header + data


def header_of(shape, descr="'<f4'", fortran="False"):
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n"


def oracle(q, k, v, scale=None, offset=None):
    """Returns (out, lse) in float64 for arrays [rows, dim] or [..., heads, rows, dim]. With an offset, the call is
    causal, and row 0 is at the position `offset`."""
    q, k, v = (np.asarray(a, dtype=np.float64) for a in (q, k, v))
    if q.ndim > 2:
        group = q.shape[-3] // k.shape[-3]
        k, v = np.repeat(k, group, axis=-3), np.repeat(v, group, axis=-3)
    scores = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if offset is not None:
        hidden = np.arange(k.shape[-2]) > np.arange(q.shape[-2])[:, None] + offset
        scores = np.where(hidden, -np.inf, scores)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return weights @ v / np.where(total > 0, total, 1), (np.log(total) + top)[..., 0]


class ToolTest(unittest.TestCase):
    """Gives each test a new folder that holds q, k and v of rank 3."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.save(normal(2, 3, 4, seed=1), normal(1, 5, 4, seed=2), normal(1, 5, 6, seed=3))

    def save(self, q, k, v):
        self.arrays = {"q": q, "k": k, "v": v}
        for name, array in self.arrays.items():
            np.save(self.folder / name, array)

    def load(self, name):
        return np.load(self.folder / name, allow_pickle=False)

    def contents(self):
        """Returns a dict of what the folder holds: name -> bytes of a regular file, or None for anything else."""
        return {path.name: path.read_bytes() if path.is_file() else None
                for path in self.folder.iterdir()}

    def attempt(self, *options, out="out.npy", **more):
        return attnkit("run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "-o", out, *options,
                       folder=self.folder, **more)

    def run_tool(self, *options, **more):
        """Runs the command, which must succeed. Returns out."""
        done = self.attempt(*options, **more)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.summary = done.stdout
        return self.load("out.npy")

    def refuse(self, pattern, *options, code=1, **more):
        """Runs the command, which must fail with this exit code and message and change no file."""
        before = self.contents()
        done = self.attempt(*options, **more)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertRegex(done.stderr, pattern)
        self.assertTrue(done.stderr.startswith("attnkit: "), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(self.contents(), before)

    def refuse_q(self, content, pattern):
        """Checks that q.npy with these bytes is refused by a message that names the file."""
        (self.folder / "q.npy").write_bytes(content)
        self.refuse(r"q\.npy.*" + pattern)

    def compare(self, out, expected):
        self.assertEqual((out.dtype, out.shape), (np.float32, expected.shape))
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=5e-6)


class Results(ToolTest):
    def test_ranks(self):
        for q, kv in (((7,), (9,)), ((6, 7), (2, 9)), ((3, 6, 7), (3, 2, 9))):
            with self.subTest(rank=len(q) + 1):
                self.save(normal(*q, 5), normal(*kv, 5, seed=1), normal(*kv, 8, seed=2))
                out = self.run_tool("--lse", "lse.npy")
                expected, lse = oracle(**self.arrays)
                self.compare(out, expected)
                self.compare(self.load("lse.npy"), lse)

    def test_larger_than_any_tile(self):
        self.save(normal(4, 130, 65), normal(2, 300, 65, seed=1), normal(2, 300, 33, seed=2))
        self.compare(self.run_tool("--threads", 2), oracle(**self.arrays)[0])

    def test_float16(self):
        """If one or more of the arrays are float16, the result has the same bits as for the same values in float32."""
        wide = [array.astype(np.float16).astype(np.float32) for array in
                (normal(4, 30, 17), normal(2, 200, 17, seed=1), normal(2, 200, 9, seed=2))]
        self.save(*wide)
        expected = self.run_tool("--causal", "bottom-right")
        for halves in range(1, 8):
            self.save(*(array.astype(np.float16) if halves >> i & 1 else array
                        for i, array in enumerate(wide)))
            with self.subTest(halves=halves):
                np.testing.assert_array_equal(self.run_tool("--causal", "bottom-right"), expected)

    def test_causal(self):
        for q_len, kv_len in ((5, 5), (3, 8), (8, 3)):
            kv = (2, kv_len, 4)
            self.save(normal(2, q_len, 4), normal(*kv, seed=1), normal(*kv, seed=2))
            forms = {"upper-left": 0, "bottom-right": kv_len - q_len, "0": 0, "2": 2, "-2": -2,
                     "+1": 1, "-100": -100, "100": 100, str(2 ** 62): 100, str(-2 ** 62): -100}
            for form, offset in forms.items():
                with self.subTest(q_len=q_len, kv_len=kv_len, causal=form):
                    out = self.run_tool("--causal", form, "--lse", "lse.npy")
                    expected, lse = oracle(**self.arrays, offset=offset)
                    self.compare(out, expected)
                    self.compare(self.load("lse.npy"), lse)

    def test_causal_offset_in_a_batch(self):
        self.save(normal(3, 2, 4, 5), normal(3, 1, 9, 5, seed=1), normal(3, 1, 9, 5, seed=2))
        self.compare(self.run_tool("--causal", "3"), oracle(**self.arrays, offset=3)[0])

    def test_scale(self):
        for scale in ("0", "0.3", "-1", "1e-3"):
            with self.subTest(scale=scale):
                self.compare(self.run_tool("--scale", scale),
                             oracle(**self.arrays, scale=float(scale))[0])

    def test_bits_do_not_depend_on_threads(self):
        self.save(normal(3, 70, 16), normal(1, 90, 16, seed=1), normal(1, 90, 16, seed=2))
        bits = self.run_tool().tobytes()
        for threads in (1, 2, 3, 7, 256):
            with self.subTest(threads=threads):
                self.assertEqual(self.run_tool("--threads", threads).tobytes(), bits)

    def test_bits_do_not_depend_on_the_isa(self):
        self.save(normal(3, 70, 20), normal(1, 90, 20, seed=1), normal(1, 90, 20, seed=2))
        bits = self.run_tool("--isa", "scalar").tobytes()
        for isa in ISAS:
            with self.subTest(isa=isa):
                self.assertEqual(self.run_tool("--isa", isa).tobytes(), bits)
                self.assertRegex(self.summary, rf"ran on +{isa}, as --isa says; 1 thread\n")
                out = self.run_tool(env={**ENVIRONMENT, "ATTNKIT_ISA": isa})
                self.assertEqual(out.tobytes(), bits)
                self.assertRegex(self.summary, rf"ran on +{isa}, ")

    def test_no_keys_and_no_rows(self):
        self.save(normal(2, 3, 4), normal(2, 0, 4), normal(2, 0, 6))
        self.compare(self.run_tool("--lse", "lse.npy"), np.zeros((2, 3, 6)))
        self.compare(self.load("lse.npy"), np.full((2, 3), -np.inf))
        self.save(normal(2, 0, 4), normal(2, 5, 4), normal(2, 5, 6))
        self.assertEqual(self.run_tool().shape, (2, 0, 6))
        self.save(normal(0, 2, 3, 4), normal(0, 2, 5, 4), normal(0, 2, 5, 6))
        self.assertEqual(self.run_tool("--causal", "1").shape, (0, 2, 3, 6))

    def test_a_value_dim_of_0_is_refused(self):
        self.save(normal(1, 6), normal(1, 6), normal(1, 0))
        done = attnkit("run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "-o", "out.npy",
                       folder=self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn("value_dim is 0 in v.npy", done.stderr)

    def test_repeat_does_not_change_the_result(self):
        bits = self.run_tool().tobytes()
        self.assertEqual(self.run_tool("--repeat", 3).tobytes(), bits)
        self.assertRegex(self.summary, r"time +best \S+ ms, median \S+ ms of 3\n")

    def test_summary(self):
        self.run_tool("--causal", "upper-left", "--threads", 2, "--lse", "lse.npy")
        # 240 FLOP in all: 2 * (4 + 6) for each pair of a row and a key, 1 + 2 + 3 pairs in each of 2 heads.
        for line in (r"q +\[2, 3, 4\] q\.npy", r"k +\[1, 5, 4\] k\.npy", r"v +\[1, 5, 6\] v\.npy",
                     r"out +\[2, 3, 6\] out\.npy", r"lse +\[2, 3\] lse\.npy",
                     r"causal +upper-left: query row 0 is at key 0", r"ran on .*; 2 threads",
                     r"time +best \S+ ms, median \S+ ms of 1",
                     r"speed +\S+ GFLOP/s at best, 2\.4e-07 GFLOP in all"):
            self.assertRegex(self.summary, f"(?m)^{line}$")

    def test_options_with_equals(self):
        done = attnkit("run", "--q=q.npy", "--k=k.npy", "--v=v.npy", "-o=out.npy", "--scale=0.5",
                       folder=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.compare(self.load("out.npy"), oracle(**self.arrays, scale=0.5)[0])


class Reading(ToolTest):
    """Tests well-formed files, and many malformed files."""

    DATA = normal(6, 4).tobytes()

    def test_formats_and_spellings(self):
        expected = self.run_tool().tobytes()
        q = self.arrays["q"]
        spellings = [npy(q, version=(major, 0)) for major in (1, 2, 3)]
        for header in ('{"shape":(2,3,4),"descr":"<f4","fortran_order":False}\n',
                       "{'descr': '<f4', 'fortran_order': False, 'shape': ( 2 , 3 , 4 , ) , } \n",
                       "{  'fortran_order':False  ,'descr':'<f4','shape':(2, 3, 4)}" + " " * 500
                       + "\n"):
            spellings.append(with_header(header, q.tobytes()))
        for content in spellings:
            with self.subTest(header=content[:80]):
                (self.folder / "q.npy").write_bytes(content)
                self.assertEqual(self.run_tool().tobytes(), expected)

    def test_truncated_at_each_byte(self):
        for version in ((1, 0), (2, 0)):
            whole = npy(normal(1, 2), version=version)
            for length in range(len(whole)):
                with self.subTest(version=version, length=length):
                    self.refuse_q(whole[:length], r"not a whole \.npy file|malformed")

    def test_truncated_k_and_v_are_named(self):
        for name in ("k.npy", "v.npy"):
            with self.subTest(name=name):
                whole = (self.folder / name).read_bytes()
                (self.folder / name).write_bytes(whole[:-1])
                self.refuse(name + ": not a whole")
                (self.folder / name).write_bytes(whole)

    def test_no_byte_of_the_header_can_crash(self):
        whole = (self.folder / "q.npy").read_bytes()
        for position in range(80):
            for byte in (0x00, 0x39, 0xFF):
                content = bytearray(whole)
                content[position] = byte
                with self.subTest(position=position, byte=byte):
                    (self.folder / "q.npy").write_bytes(content)
                    self.assertIn(self.attempt().returncode, (0, 1))

    def test_foreign_files(self):
        for content in (b"", b"\n" * 100, b"\x89PNG\r\n\x1a\n" + b"\0" * 100, b"PK\x03\x04" * 30,
                        b"1.0 2.0 3.0\n" * 9, b"\x93NUMPX\x01\x00" + b"\0" * 100):
            with self.subTest(content=content[:10]):
                self.refuse_q(content, r"not a (whole )?\.npy file")

    def test_dtypes(self):
        for dtype in ("<f8", ">f2", ">f4", "<i4", "|u1", "|b1", "<c8", "<U3", "|S4", "<M8[s]"):
            with self.subTest(dtype=dtype):
                self.refuse_q(npy(np.zeros((6, 4), dtype=dtype)),
                              re.escape(f"'{dtype}': must be '<f4' (float32) or '<f2'"))
        self.refuse_q(npy(np.zeros((6, 4), dtype=[("a", "<f4")])), "malformed")
        for descr in ("'<f4", "'\\x3cf4'", "'" + "f" * 500 + "'", "None", "4", "'\x1b[2J'"):
            with self.subTest(descr=descr):
                self.refuse_q(with_header(header_of("(6, 4)", descr), self.DATA), "malformed")

    def test_fortran_order(self):
        self.refuse_q(npy(np.asfortranarray(normal(6, 4))), "Fortran order: must be in C order")

    def test_ranks_out_of_range(self):
        for shape in ((), (24,), (1, 1, 1, 6, 4), (1,) * 30):
            with self.subTest(shape=shape):
                self.refuse_q(npy(np.zeros(shape, np.float32)), f"rank is {len(shape)}: must be")

    def test_huge_shapes(self):
        for shape in ((2 ** 62, 2 ** 62), (2 ** 63 - 1, 1), (2 ** 32, 2 ** 32), (2 ** 40, 8),
                      (2 ** 61, 2), (2 ** 60, 2, 2, 2), (7, 4)):
            with self.subTest(shape=shape):
                self.refuse_q(with_header(header_of(shape), self.DATA), "its shape needs more")
        for shape in ((2 ** 63, 1), (10 ** 30, 1), (2 ** 64 + 6, 4)):
            with self.subTest(shape=shape):
                self.refuse_q(with_header(header_of(shape), self.DATA), "malformed")

    def test_huge_shapes_without_elements(self):
        """K and V have no elements, but out would be huge."""
        huge = 2 ** 61
        (self.folder / "k.npy").write_bytes(with_header(header_of((1, 0, 4))))
        (self.folder / "v.npy").write_bytes(with_header(header_of((1, 0, huge))))
        self.refuse(r"out\.npy: no memory")

    def test_a_huge_batch_without_elements(self):
        """The results have no elements, but some options need a number for each batch entry. The command refuses these
        options in a batch of more than 2^26 entries."""
        for batch in (2 ** 27, 2 ** 40, 2 ** 63 - 1):
            for name in "qkv":
                (self.folder / f"{name}.npy").write_bytes(
                    with_header(header_of((batch, 1, 0, 4))))
            self.assertEqual(self.attempt().returncode, 0)
            (self.folder / "out.npy").unlink()
            for options in (("--causal", "3"), ("--kv-len", "0"),
                            ("--causal", "upper-left", "--dropout", "0.5", "--seed", "1")):
                with self.subTest(batch=batch, options=options):
                    self.refuse(f"no memory for .* in a batch of {batch}", *options)

    def test_malformed_headers(self):
        good = header_of("(6, 4)")
        headers = [
            good.replace("\n", ""), good.replace("\n", " "), good + "\n", good + "x\n", "\n" + good,
            good.replace("{", ""), good.replace("}", ""), good.replace("}", "}}"),
            good.replace("'shape'", "'shapes'"), good.replace("'shape'", "shape"),
            good.replace(": (6", " (6"), good.replace("False", "false"), good.replace("False", "0"),
            good.replace("False", "F"), good.replace("'shape': (6, 4), ", ""),
            good.replace("}", "'descr': '<f4', }"), good.replace("}", "'extra': 1, }"),
            good.replace("'fortran_order': False, ", ""), good.replace("False, ", "False "),
            good.replace(", }", ",, }"), "", "\n", "{}\n", "()\n", "\0" * 54, "\xff" * 54,
            "{" * 60000, "[" * 1000 + "\n", "{" + "'" * 3000,
            *(header_of(shape) for shape in ("(-6, 4)", "(6)", "6", "[6, 4]", "(6 4)", "(6,, 4)",
                                             "(,)", "(6, 4", "6, 4)", "(6.0, 4)", "(0x6, 4)",
                                             "('6', 4)", "(6, 4))", "(6, (4,))", "None", "(6L, 4L)",
                                             "(1_0, 4)", "(+6, 4)", "(6, )", "(6,4,,)")),
        ]
        for header in headers:
            with self.subTest(header=header[:90]):
                # "(6, )" is a shape, but of rank 1.
                pattern = "rank is 1" if "(6, )" in header else "malformed"
                self.refuse_q(with_header(header, self.DATA), pattern)

    def test_length_of_the_header(self):
        good = header_of("(6, 4)")
        self.refuse_q(b"\x93NUMPY\x01\x00\xff\xff" + good.encode(), "not a whole")
        self.refuse_q(b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + good.encode(), "header has 4294967295")
        long = good[:-1] + " " * 70000 + "\n"
        self.refuse_q(with_header(long, self.DATA, version=(2, 0)), "must be at most 65535")

    def test_versions(self):
        for version in ((0, 0), (0, 1), (1, 1), (2, 7), (4, 0), (255, 255)):
            with self.subTest(version=version):
                self.refuse_q(with_header(header_of("(6, 4)"), self.DATA, version=version),
                              f"format is {version[0]}.{version[1]}: must be")

    def test_trailing_bytes(self):
        for extra in (1, 3, 4, 100000):
            with self.subTest(extra=extra):
                self.refuse_q(npy(normal(6, 4)) + b"\0" * extra, f"{extra} bytes follow the 96")
        self.refuse_q(npy(np.zeros((0, 4), np.float32)) + b"\0", "1 bytes follow the 0")

    def test_no_regular_file(self):
        (self.folder / "q.npy").unlink()
        self.refuse(r"cannot read q\.npy: No such file")
        (self.folder / "q.npy").mkdir()
        self.refuse(r"cannot read q\.npy: not a regular file")
        (self.folder / "q.npy").rmdir()
        os.mkfifo(self.folder / "q.npy")
        self.refuse(r"cannot read q\.npy: not a regular file")

    @unittest.skipIf(os.geteuid() == 0, "root may read everything")
    def test_unreadable(self):
        (self.folder / "q.npy").chmod(0)
        done = self.attempt()
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot read q.npy: Permission denied", done.stderr)


class Shapes(ToolTest):
    def mismatch(self, q, k, v, *words):
        self.save(normal(*q), normal(*k), normal(*v))
        with self.subTest(q=q, k=k, v=v):
            self.refuse(".*".join(map(re.escape, words)))

    def test_ranks_differ(self):
        self.mismatch((3, 4), (1, 5, 4), (1, 5, 4), "q.npy has rank 2, k.npy has rank 3")
        self.mismatch((1, 3, 4), (1, 5, 4), (5, 4), "k.npy has rank 3, v.npy has rank 2")

    def test_sizes_differ(self):
        self.mismatch((3, 4), (5, 6), (5, 4), "head_dim is 4 in q.npy [3, 4] and 6 in k.npy [5, 6]")
        self.mismatch((3, 4), (5, 4), (7, 4), "keys is 5 in k.npy [5, 4] and 7 in v.npy [7, 4]")
        self.mismatch((2, 3, 4), (2, 5, 4), (1, 5, 4), "KV heads is 2 in k.npy", "1 in v.npy")
        self.mismatch((3, 1, 3, 4), (2, 1, 5, 4), (2, 1, 5, 4), "batch is 3 in q.npy", "2 in k.npy")
        self.mismatch((2, 1, 3, 4), (2, 1, 5, 4), (3, 1, 5, 4), "batch is 2 in k.npy", "3 in v.npy")

    def test_heads_that_are_no_multiple(self):
        self.mismatch((5, 3, 4), (2, 5, 4), (2, 5, 4), "q.npy has 5 heads, k.npy has 2")
        self.mismatch((2, 3, 4), (4, 5, 4), (4, 5, 4), "q.npy has 2 heads, k.npy has 4")
        self.mismatch((2, 3, 4), (0, 5, 4), (0, 5, 4), "q.npy has 2 heads, k.npy has 0")

    def test_the_library_refuses(self):
        self.mismatch((3, 0), (5, 0), (5, 4), "head_dim")


class Writing(ToolTest):
    def test_an_old_result_is_replaced(self):
        (self.folder / "out.npy").write_bytes(b"old")
        self.compare(self.run_tool(), oracle(**self.arrays)[0])
        self.assertEqual(sorted(self.contents()), ["k.npy", "out.npy", "q.npy", "v.npy"])

    def test_a_link_is_followed(self):
        (self.folder / "far").mkdir()
        (self.folder / "far" / "real.npy").write_bytes(b"old")
        (self.folder / "out.npy").symlink_to("far/real.npy")
        self.run_tool()
        self.assertTrue((self.folder / "out.npy").is_symlink())
        self.assertEqual(os.listdir(self.folder / "far"), ["real.npy"])

    def test_numpy_reads_the_file_and_the_data_is_aligned(self):
        self.run_tool("--lse", "lse.npy")
        for name in ("out.npy", "lse.npy"):
            array = self.load(name)
            self.assertEqual((self.folder / name).read_bytes()[-array.nbytes:], array.tobytes())
            self.assertTrue(array.flags.c_contiguous)
            self.assertEqual(((self.folder / name).stat().st_size - array.nbytes) % 64, 0)
        self.save(normal(3, 4), normal(5, 4), normal(5, 4))
        self.run_tool("--lse", "lse.npy")
        self.assertEqual(self.load("lse.npy").shape, (3,))

    def test_results_that_cannot_be_written(self):
        for option in ("out", "lse"):
            (self.folder / "folder").mkdir(exist_ok=True)
            for target in ("none/x.npy", "folder", "folder/", ".", "", "q.npy/x.npy", "x" * 300,
                           "/x" * 3000):
                with self.subTest(option=option, target=target[:20]):
                    if option == "out":
                        self.refuse("cannot write", out=target)
                    else:
                        self.refuse("cannot write", "--lse", target)

    def test_no_device_is_replaced(self):
        os.mkfifo(self.folder / "pipe")
        self.refuse("cannot write pipe: not a regular file", out="pipe")
        self.refuse("cannot write pipe: not a regular file", "--lse", "pipe")
        self.refuse("cannot write /dev/null: not a regular file", out="/dev/null")

    @unittest.skipIf(os.geteuid() == 0, "root may write everything")
    def test_unwritable_folder(self):
        (self.folder / "locked").mkdir(mode=0o555)
        self.refuse("cannot write locked/x.npy: Permission denied", out="locked/x.npy")

    def test_one_file_for_two_results(self):
        for other in ("out.npy", "./out.npy", "../" + self.folder.name + "/out.npy"):
            with self.subTest(lse=other):
                self.refuse("name one file", "--lse", other)

    def test_a_full_disk(self):
        """A limit on the file size has the effect of a full disk. The old result must stay."""
        self.save(normal(500, 8), normal(5, 8), normal(5, 8))
        (self.folder / "out.npy").write_bytes(b"old")
        for limit in (100, 128, 5000, 16127):
            with self.subTest(limit=limit):
                self.refuse(r"cannot write out\.npy: File too large", preexec_fn=lambda:
                            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))

    def test_a_full_disk_at_the_second_result(self):
        self.save(normal(500, 1), normal(5, 1), normal(5, 8))
        self.refuse(r"cannot write out\.npy: File too large", "--lse", "lse.npy", preexec_fn=lambda:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000)))
        self.save(normal(500, 8), normal(5, 8), normal(5, 1))
        self.refuse("cannot write", "--lse", "lse.npy", preexec_fn=lambda:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (2127, 2127)))

    def test_a_signal_leaves_no_files(self):
        before = self.contents()
        process = subprocess.Popen(
            [*COMMAND, "run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "-o", "out.npy",
             "--repeat", "1000000", "--threads", "2"], cwd=self.folder, env=ENVIRONMENT,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.3)
        process.terminate()
        process.communicate(timeout=TIME_LIMIT)
        self.assertEqual(process.returncode, -signal.SIGTERM)
        self.assertEqual(self.contents(), before)

    def test_a_full_standard_output_is_noticed(self):
        for arguments in (("--help",), ("--version",), ("info",), ("run", "--help")):
            with self.subTest(arguments=arguments), open("/dev/full", "w") as full:
                done = attnkit(*arguments, stdout=full)
                self.assertEqual(done.returncode, 1)
                self.assertIn("cannot write standard output", done.stderr)


class Usage(ToolTest):
    def usage_error(self, pattern, *arguments):
        before = self.contents()
        done = attnkit(*arguments, folder=self.folder)
        with self.subTest(arguments=arguments):
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(done.stdout, "")
            self.assertRegex(done.stderr, pattern)
            self.assertEqual(self.contents(), before)

    def test_help_and_version(self):
        for arguments in (("--help",), ("-h",), ("run", "--help"), ("info", "--help"),
                          ("run", "--q", "none.npy", "--help")):
            with self.subTest(arguments=arguments):
                done = attnkit(*arguments)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn("attnkit", done.stdout)
                self.assertLessEqual(max(map(len, done.stdout.split("\n"))), 100)
        self.assertRegex(attnkit("--version").stdout, r"^attnkit \d+\.\d+\.\d+\n$")

    def test_help_of_run_names_every_option(self):
        text = attnkit("run", "--help").stdout
        self.assertEqual(tuple(re.findall(r"^  (-\S+)", text, re.MULTILINE)), RUN_OPTIONS)

    def test_no_such_command(self):
        self.usage_error("attnkit run", *())
        self.usage_error("unknown command 'walk'", "walk")
        self.usage_error("unknown option '--run'", "--run")

    def test_unknown_options_are_named(self):
        self.usage_error("unknown option '--foo'", "run", "--foo", "1")
        self.usage_error("unknown option '--foo=1'", "run", "--foo=1")
        self.usage_error("unknown option '--thread'", "run", "--thread", "1")  # options cannot be abbreviated
        self.usage_error("unknown option '--threadss'", "run", "--threadss", "1")
        self.usage_error("unknown argument 'q.npy'", "run", "q.npy")
        self.usage_error("unknown option '--q'", "info", "--q")

    def test_help_and_version_take_no_further_argument(self):
        for option in ("--version", "--help", "-h"):
            for more in (("x",), ("",), ("--help",), ("--version",), ("run", "--help")):
                self.usage_error(f"unknown argument '{more[0]}' after {option}: ", option, *more)
            self.usage_error(f"unknown option '{option}=1'", f"{option}=1")
        for command in ("info", "run", "layer"):
            for words in (("x",), ("--help", "x"), ("x", "--help"), ("",)):
                self.usage_error("unknown argument 'x?'", command, *words)
            for word in ("-h", "--version", "--"):
                self.usage_error(f"unknown option '{word}'", command, "--help", word)

    def test_no_option_is_taken_for_an_argument(self):
        files = ("--q", "q.npy", "--k", "k.npy", "--v", "v.npy")
        self.usage_error("option -o needs an argument, FILE, before --help: write -o=--help if",
                         "run", *files, "-o", "--help")
        self.usage_error("option --q needs an argument, FILE, before --k=k.npy", "run", "--q",
                         "--k=k.npy")
        for words in (("-o=--help",), ("-o", "--none")):
            done = attnkit("run", *files, *words, folder=self.folder)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        for name in ("--help", "--none"):
            self.compare(self.load(name), oracle(**self.arrays)[0])

    def test_options_without_their_arguments(self):
        for option in RUN_OPTIONS[:-1]:
            if option == "--integers":
                continue
            self.usage_error(f"option {option} needs an argument", "run", option)
            self.usage_error(f"option {option} is given twice", "run", option, "1", option, "1")
        self.usage_error("option --integers takes no argument", "run", "--integers=1")
        self.usage_error("option --integers is given twice", "run", "--integers", "--integers")
        self.usage_error("option --help takes no argument", "run", "--help=1")
        self.usage_error("option --isas takes no argument", "info", "--isas=1")

    def test_missing_options(self):
        files = {"--q": "q.npy", "--k": "k.npy", "--v": "v.npy", "-o": "out.npy"}
        for missing in files:
            arguments = [word for pair in files.items() if pair[0] != missing for word in pair]
            self.usage_error(f"option {missing} is missing", "run", *arguments)

    def test_bad_values(self):
        for option, values in {
                "--threads": ("0", "-1", "257", "1.5", "x", "", "1x", str(2 ** 64)),
                "--repeat": ("0", "-1", "1000001", "x", ""),
                "--scale": ("", "x", "1,5", "0.5x"),
                "--causal": ("", "diagonal", "1.5", "upper", str(2 ** 63), str(-2 ** 63 - 1)),
        }.items():
            for value in values:
                with self.subTest(option=option, value=value):
                    self.refuse(option, option, value, code=2)

    def test_scales_that_the_library_refuses(self):
        for scale in ("nan", "inf", "-inf"):
            with self.subTest(scale=scale):
                self.refuse("scale", "--scale", scale)

    def test_unknown_isa(self):
        for isa in ("mmx", "", "AVX2", "scalar "):
            with self.subTest(isa=isa):
                self.refuse("scalar", "--isa", isa)
        self.refuse("scalar", env={**ENVIRONMENT, "ATTNKIT_ISA": "mmx"})

    def test_isas_that_cannot_run_here(self):
        known = re.findall(r"^(\w+) +(?:yes|no) +no ", attnkit("info").stdout, re.MULTILINE)
        for isa in known:
            with self.subTest(isa=isa):
                self.refuse(isa, "--isa", isa)


class Info(ToolTest):
    def test_info(self):
        text = attnkit("info").stdout
        for word in ("attnkit", "CPU", "features", "ISA", "prefill", "decode"):
            self.assertRegex(text, f"(?m)^{word} ")
        self.assertEqual(re.findall(r"^(\w+) +yes +yes ", text, re.MULTILINE), ISAS)
        self.assertRegex(text, rf"(?m)^prefill +{ISAS[-1]}(\+\w+)? ")

    def test_the_scalar_kernels_always_run(self):
        self.assertEqual(ISAS[0], "scalar")

    def test_the_environment_chooses(self):
        for isa in ISAS:
            text = attnkit("info", env={**ENVIRONMENT, "ATTNKIT_ISA": isa}).stdout
            self.assertRegex(text, rf"(?m)^prefill +{isa}(\+\w+)? .*ATTNKIT_ISA")
            self.assertRegex(text, rf"(?m)^decode +{isa} .*ATTNKIT_ISA")

    def test_info_ends_with_an_error_about_a_bad_environment(self):
        done = attnkit("info", env={**ENVIRONMENT, "ATTNKIT_ISA": "mmx"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("mmx", done.stderr)
        self.assertRegex(done.stdout, r"(?m)^scalar +yes +yes ")


if __name__ == "__main__":
    unittest.main()
