#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `attnkit bench` on tiny rows and checks its output. How fast the rows are does not matter.

    bench/smoke.py ATTNKIT_OR_ATTNKIT_BENCH [bench]
"""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

COMMAND = [str(Path(sys.argv[1]).resolve()), *sys.argv[2:]]
ROOT = Path(__file__).resolve().parents[1]
TINY = "B2_H8_L3x5_D64"
TIME_LIMIT = 120


class Smoke(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def bench(self, *arguments):
        return subprocess.run([*COMMAND, *arguments], cwd=self.folder, text=True,
                              capture_output=True, timeout=TIME_LIMIT)

    def refuse(self, pattern, *arguments):
        done = self.bench(*arguments)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, pattern)
        self.assertEqual(done.stdout, "")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_json(self):
        name = f"prefill/f32/scalar/{TINY}"
        done = self.bench("--filter", f"^{name}$", "--json", "result.json", "--quick")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"[1/1] {name}", done.stderr)
        self.assertRegex(done.stdout, rf"(?m)^{name} .* us .* GFLOP/s .* %")
        self.assertEqual([path.name for path in self.folder.iterdir()], ["result.json"])
        result = json.loads((self.folder / "result.json").read_text())
        row, = result["benchmarks"]
        self.assertEqual(row["name"], name)
        self.assertGreater(row["roof_pct"], 0)
        self.assertGreater(row["GFLOPS"], 0)
        self.assertGreater(row["real_time"], 0)
        self.assertIn("attnkit", result["context"])

    def test_history(self):
        for _ in range(2):
            done = self.bench("--filter", f"^prefill/f32/scalar/{TINY}$", "--quick", "--history", "runs")
            self.assertEqual(done.returncode, 0, done.stderr)
        files = sorted((self.folder / "runs").iterdir())
        self.assertEqual(len(files), 2)
        for file in files:
            self.assertRegex(file.name, r"^\d{8}T\d{6}Z-(unknown|[0-9a-f]{12}(-dirty)?)-\d+\.json$")
            result = json.loads(file.read_text())
            context, rows = result["context"], {row["name"]: row for row in result["benchmarks"]}
            self.assertEqual(context["commit"], file.stem[17:].rsplit("-", 1)[0])
            for key in "cpu", "cpu_model", "compiler":
                self.assertIn(key, context)
            self.assertEqual({f"fma/{isa}" for isa in context["isas"].split()},
                             {name for name in rows if name.startswith("fma/")})
            self.assertGreater(rows["read/dram"]["roof_GBps"], 0)
            # Each head has 3 rows of Q and of out, and 5 rows of K and of V, each of 64 floats.
            self.assertAlmostEqual(rows[f"prefill/f32/scalar/{TINY}"]["FLOP_per_byte"],
                                   4 * 64 * 3 * 5 / (4 * 64 * 2 * (3 + 5)))

    @unittest.skipUnless((ROOT / ".git").exists() and shutil.which("git"), "no git")
    def test_the_commit_is_one_of_git(self):
        self.bench("--filter", f"^prefill/f32/scalar/{TINY}$", "--quick", "--json", "result.json")
        commit = json.loads((self.folder / "result.json").read_text())["context"]["commit"]
        commit = commit.removesuffix("-dirty") + "^{commit}"
        subprocess.run(["git", "-C", ROOT, "cat-file", "-e", commit], check=True)

    def test_a_given_shape(self):
        done = self.bench("--shape", "B1_H2_1_L4x9_D8x16_causal_pad", "--isa", "scalar", "--quick")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("prefill/f32/scalar/B1_H2_1_L4x9_D8x16_causal_pad", done.stdout)
        done = self.bench("--shape", "B1_H3_2_L4_D8", "--quick")
        self.assertEqual(done.returncode, 1)
        self.assertIn("not measured: q_heads is 3", done.stdout)
        done = self.bench("--shape", "B1_H1_L1x64_D8", "--type", "q8_0", "--quick")
        self.assertEqual(done.returncode, 1)
        self.assertIn("not measured: head_dim is 8", done.stdout)

    def test_a_plan(self):
        for shape in (TINY, "B2_H4_2_L1x39_D32x64_pad_tiles", "B1_H2_L3x40_D32_bias",
                      "B1_H2_L3x40_D32_token_weights"):
            for kv in ("f32", "i8"):
                done = self.bench("--shape", shape + "/planned", "--type", kv, "--isa", "scalar",
                                  "--quick")
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertRegex(done.stdout, rf"(?m)^\w+/{kv}/scalar/{shape}/planned .* %")
        done = self.bench("--shape", "B1_H3_2_L4_D8/planned", "--quick")
        self.assertEqual(done.returncode, 1)
        self.assertIn("not measured: q_heads is 3", done.stdout)

    def test_warm_rows(self):
        done = self.bench("--shape", "B1_H2_L1x40_D32/warm", "--isa", "scalar", "--quick")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^decode/f32/scalar/B1_H2_L1x40_D32/warm .* GFLOP/s .* %")

    def test_types_and_layouts(self):
        for kv in ("f32", "f16", "bf16", "i8", "q8_0"):
            for shape in "B2_H4_2_L1x9_D32x64_pad_token", "B2_H4_2_L1x39_D32x64_pad_tiles":
                done = self.bench("--shape", shape, "--type", kv, "--isa", "scalar", "--quick")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stdout, rf"(?m)^decode/{kv}/scalar/{shape} .* GB/s .* %")
        shape = "B2_H4_2_L1x9_D128_pad_token"
        for kv in ("q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "q1_0", "q2_0", "f8_e4m3"):
            done = self.bench("--shape", shape, "--type", kv, "--isa", "scalar", "--quick")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, rf"(?m)^decode/{kv}/scalar/{shape} .* GB/s .* %")
        done = self.bench("--shape", "B1_H1_L1x16_D32_tiles", "--type", "q4_0", "--quick")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there are no tiles (ATTNKIT_TILED) of ATTNKIT_Q4_0", done.stdout)
        done = self.bench("--shape", "R3_I64_O24", "--type", "q5_0", "--quick")
        self.assertEqual(done.returncode, 1)
        self.assertIn("must be ATTNKIT_F32 (0), ATTNKIT_F16 (1)", done.stdout)

    def test_the_bytes_of_a_decode(self):
        keys = 2 * (16 + 15)  # keys of both KV heads; the second batch entry has 15/16 of 16 keys
        for kv, key in (("f32", 4 * 96), ("bf16", 2 * 96), ("i8", 96 + 2 * 4), ("q8_0", 3 * 34),
                        ("q4_0", 3 * 18), ("q5_1", 3 * 24), ("f8_e4m3", 96 + 2 * 4)):
            done = self.bench("--shape", "B2_H4_2_L1x16_D32x64_pad", "--type", kv, "--isa", "scalar",
                              "--quick", "--json", "result.json")
            self.assertEqual(done.returncode, 0, done.stderr)
            row, = json.loads((self.folder / "result.json").read_text())["benchmarks"]
            self.assertAlmostEqual(row["GBps"] * row["real_time"], keys * key, delta=keys)

    def test_a_linear_map(self):
        done = self.bench("--shape", "R37_I40_O24", "--isa", "scalar", "--quick")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^linear/f32/scalar/R37_I40_O24 .* GFLOP/s .* %")
        done = self.bench("--shape", "R37_I64_O24_integers", "--isa", "scalar", "--type", "q8_0", "--quick")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^linear/q8_0/scalar/R37_I64_O24_integers .* GFLOP/s .* %")
        done = self.bench("--shape", "R37_I64_O24_integers", "--isa", "scalar", "--quick")
        self.assertEqual(done.returncode, 1)
        self.assertIn("not measured: flags has ATTNKIT_INTEGERS, but w.type is 0", done.stdout)
        done = self.bench("--shape", "R3_I40_O24", "--isa", "scalar", "--type", "q8_0", "--quick")
        self.assertEqual(done.returncode, 1)
        self.assertIn("not measured: in_dim is 40", done.stdout)

    def test_the_bytes_of_a_matrix(self):
        for packed, element in (("f32", 4), ("f16", 2), ("bf16", 2), ("q8_0", 34 / 32)):
            done = self.bench("--shape", "R1_I96_O24", "--type", packed, "--isa", "scalar", "--quick",
                              "--json", "result.json")
            self.assertEqual(done.returncode, 0, done.stderr)
            row, = json.loads((self.folder / "result.json").read_text())["benchmarks"]
            self.assertEqual(row["name"], f"linear/{packed}/scalar/R1_I96_O24")
            self.assertAlmostEqual(row["GBps"] * row["real_time"], 32 * 96 * element, delta=32)

    def test_the_bytes_of_bf16_inputs(self):
        """FLOP_per_byte counts 2 bytes for an element of q or x in bf16."""
        done = self.bench("--shape", TINY, "--type", "bf16_bf16", "--isa", "scalar", "--quick", "--json", "result.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        row, = json.loads((self.folder / "result.json").read_text())["benchmarks"]
        self.assertAlmostEqual(row["FLOP_per_byte"], 4 * 64 * 3 * 5 / (64 * (2 * 3 + 4 * 3 + 2 * 2 * 5)))
        done = self.bench("--shape", "R1_I96_O24", "--type", "bf16_bf16", "--isa", "scalar", "--quick",
                          "--json", "result.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        row, = json.loads((self.folder / "result.json").read_text())["benchmarks"]
        packed = row["GBps"] * row["real_time"]
        self.assertAlmostEqual(row["FLOP_per_byte"], 2 * 96 * 24 / (packed + 2 * 96 + 4 * 24), delta=1e-3)
        flops = []
        for name, element in (("f32", 4), ("bf16_f32", 2)):
            done = self.bench("--shape", "B2_H4_2_L1x64_D32_M128", "--type", name, "--isa", "scalar", "--quick",
                              "--json", "result.json")
            self.assertEqual(done.returncode, 0, done.stderr)
            row, = json.loads((self.folder / "result.json").read_text())["benchmarks"]
            self.assertEqual(row["name"], f"layer/{name}/scalar/B2_H4_2_L1x64_D32_M128")
            read = row["GBps"] * row["real_time"]
            flops.append(row["FLOP_per_byte"] * (read + 2 * 128 * (element + 4)))
        self.assertAlmostEqual(flops[1] / flops[0], 1, delta=1e-5)

    def test_a_layer(self):
        done = self.bench("--shape", "B1_H4_2_L30_D32_M64_causal", "--isa", "scalar", "--quick")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^layer/f32/scalar/B1_H4_2_L30_D32_M64_causal .* GFLOP/s")
        done = self.bench("--shape", "B1_H2_L3_D32_M48", "--isa", "scalar", "--type", "q8_0", "--quick")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, "not measured: .*multiple of 32")

    def test_a_layer_with_a_cache(self):
        for packed, element in (("f32", 4), ("f16", 2), ("q8_0", 34 / 32)):
            for layout in "", "_token", "_tiles", "_causal_tiles_window64":
                shape = "B2_H4_2_L1x64_D32x64_M128" + layout
                done = self.bench("--shape", shape, "--type", packed, "--isa", "scalar", "--quick",
                                  "--json", "result.json")
                self.assertEqual(done.returncode, 0, done.stderr)
                row, = json.loads((self.folder / "result.json").read_text())["benchmarks"]
                self.assertEqual(row["name"], f"layer/{packed}/scalar/{shape}")
                elements = 6 * 96 * 128 + 2 * 2 * 64 * 96  # weights; K and V
                # The description of the packed layer is less than a KB.
                self.assertAlmostEqual(row["GBps"] * row["real_time"], elements * element, delta=1024)

    def test_rows_of_quick(self):
        rows = self.bench("--list", "--quick").stdout.split()
        best = sum(row.startswith("fma/") and row != "fma/scalar" for row in rows) > 0
        for shape in ("R512_I4096_O4096", "R1_I4096_O4096", "B1_H32_8_L512_D128_M4096_causal"):
            self.assertEqual(sum(row.endswith("/" + shape) for row in rows), best)

    def test_few_rows_for_many_keys(self):
        done = self.bench("--shape", "B1_H2_L2x64_D8_causal", "--isa", "scalar", "--quick")
        self.assertRegex(done.stdout, r"(?m)^few/f32/scalar/B1_H2_L2x64_D8_causal .* GFLOP/s .* %")

    def test_an_interrupted_run_leaves_nothing(self):
        runs = self.folder / "runs"
        runs.mkdir()
        for where in ("--json", "runs/result.json"), ("--history", "runs"):
            process = subprocess.Popen([*COMMAND, "--filter", "prefill", *where],
                                       cwd=self.folder, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            while not list(runs.iterdir()):
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(TIME_LIMIT), -signal.SIGINT)
            self.assertEqual(list(runs.iterdir()), [])

    def test_refusals(self):
        self.refuse("no row is left", "--filter", "no such row")
        self.refuse(r"--filter is '\('", "--filter", "(")
        self.refuse("must look like", "--shape", "B1_L7")
        self.refuse("must look like", "--shape", TINY + "_token_tiles")
        self.refuse("must look like", "--shape", "R1_I4")
        for wrong in "R1_I4_O4/planned", TINY + "/plan", TINY + "/warm/planned", TINY + "/":
            self.refuse("must look like", "--shape", wrong)
        for wrong in "L9x4_D8_M8", "L4_D8_M8_tiles", "L4_D8_M8_pad", "L4_D8_M8_alibi":
            self.refuse("must look like", "--shape", "B1_H2_" + wrong)
        self.refuse("--type is 'f64': must be f32, f16", "--shape", TINY, "--type", "f64")
        self.refuse("--type needs --shape", "--type", "f16")
        self.refuse("no such instruction set", "--isa", "mmx")
        self.refuse("cannot write none/x.json", "--filter", TINY, "--json", "none/x.json")
        self.refuse("cannot make the folder none/x: No such file", "--filter", TINY, "--history",
                    "none/x")
        self.refuse("--history is '/dev/null': must be a folder", "--filter", TINY, "--history", "/dev/null")
        self.refuse("give one", "--json", "x.json", "--history", "x")
        self.refuse("cannot write /dev/null", "--filter", TINY, "--json", "/dev/null")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
