# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/peers.py as a user runs it, but without network or virtual environment. Some tests run workloads with
attnkit and NumPy. Other tests check what happens if libraries are missing or crash, or if Ctrl-C interrupts the script.
Further tests check the oracles and tensors of the script.

    ATTNKIT_BUILD=build python3 tests/perf/test_peers.py

The tests need NumPy.
"""

import dataclasses
import importlib
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import uuid

import numpy as np

from processes import marked

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = os.path.abspath(os.environ["ATTNKIT_BUILD"])
PEERS = ROOT / "tools" / "peers.py"
TIME_LIMIT = 300
MARK = "ATTNKIT_TEST_PEERS"  # in the environment of every process that a test starts

sys.path.insert(0, str(ROOT / "tools" / "peers"))

import layers  # noqa: E402
import tensors  # noqa: E402
import workloads  # noqa: E402
from columns import MODES, PEERS as LIBRARIES  # noqa: E402
from libraries import forms  # noqa: E402

MISSING = {"torch": 'raise ImportError("no torch here")',
           "matplotlib": 'raise ImportError("no matplotlib here")',
           "openvino": 'import os\nprint("last words", flush=True)\nos.abort()'}


class PeersTest(unittest.TestCase):
    """Gives each test a folder for the results, and a folder of modules that Python finds before installed modules."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.results, modules = self.folder / "results", self.folder / "modules"
        modules.mkdir()
        for name, source in MISSING.items():
            (modules / f"{name}.py").write_text(source + "\n")
        self.mark = uuid.uuid4().hex
        self.environment = {**os.environ, "PYTHONPATH": str(modules), MARK: self.mark}

    def command(self, *options, build=BUILD):
        return [sys.executable, str(PEERS), build, "--no-venv",
                "--json", str(self.results / "r.json"), "--markdown", str(self.results / "r.md"),
                "--plot", str(self.results / "r"), *options]

    def peers(self, *options, code=0, **more):
        done = subprocess.run(self.command(*options, **more), env=self.environment, text=True,
                              capture_output=True, timeout=TIME_LIMIT)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(marked(MARK, self.mark), [])
        return done

    def files(self):
        return sorted(p.name for p in self.results.iterdir()) if self.results.exists() else []


class Runs(PeersTest):
    def test_table_and_files(self):
        done = self.peers("--only", "attnkit,numpy", "--workloads", "W2", "--rounds", "2", "--no-plot")
        self.assertRegex(done.stdout, r"(?m)^workload .*NumPy +peer +/ best$")
        self.assertRegex(done.stdout, r"(?m)^W2 B2_H8_L3x5_D64 .* µs .* µs .* NumPy +[\d.]+x$")
        self.assertRegex(done.stdout, r"(?m)^largest error, float32 +\de-\d\d")
        self.assertNotIn("WRONG", done.stdout)
        self.assertEqual(self.files(), ["r.json", "r.md"])
        self.check_json(json.loads((self.results / "r.json").read_text()))
        table = [line for line in (self.results / "r.md").read_text().splitlines() if line[:1] == "|"]
        self.assertEqual(len(table), 4)
        self.assertEqual(len({line.count("|") for line in table}), 1)

    def test_types(self):
        done = self.peers("--only", "attnkit,numpy", "--workloads", "W5_4096_f16,W5_4096_bf16",
                          "--rounds", "1", "--no-plot", "--cold", "32")
        self.assertNotIn("WRONG", done.stdout)
        self.assertRegex(done.stdout, r"(?m)^largest error, float16 +\de-0[5-9]")
        self.assertRegex(done.stdout, r"(?m)^largest error, bfloat16 +\de-0[4-9]")
        results = json.loads((self.results / "r.json").read_text())
        half, brain = (entry["results"] for entry in results["workloads"])
        ours = [title for title, column in results["columns"].items() if column["isa"]]
        self.assertEqual({entry[title]["status"] for entry in (half, brain) for title in ours}, {"ok"})
        tried = {(name, form["wrong"]) for entry in (half, brain) for title in ours
                 for name, form in entry[title]["forms"].items()}
        self.assertEqual(tried, {("attnkit_attention", False), ("attnkit_attention, K in tiles", False)})
        self.assertEqual(half["NumPy"]["status"], "ok")
        self.assertEqual(brain["NumPy"], {"status": "cannot", "reason": "NumPy has no bfloat16"})

    def test_caches(self):
        names = "CACHE_4096_q8_0", "CACHE_cells", "CACHE_causal"
        done = self.peers("--only", "attnkit,numpy", "--workloads", ",".join(names), "--rounds", "1",
                          "--no-plot", "--cold", "32")
        self.assertNotIn("WRONG", done.stdout)
        results = json.loads((self.results / "r.json").read_text())
        ours = [title for title, column in results["columns"].items() if column["isa"]]
        half, full = "attnkit_attention, bias in f16", "attnkit_attention, bias in f32"
        forms_of = {"CACHE_4096_q8_0": {"attnkit_attention"}, "CACHE_cells": {half},
                    "CACHE_causal": {half, full}}
        self.assertEqual({entry["name"] for entry in results["workloads"]}, set(names))
        for entry in results["workloads"]:
            for title in ours:
                tried = entry["results"][title]["forms"]
                self.assertEqual(set(tried), forms_of[entry["name"]])
                self.assertFalse(any(form["wrong"] for form in tried.values()))
            numpy = entry["results"]["NumPy"]
            self.assertEqual(numpy["status"], "cannot" if entry["type"] == "q8_0" else "ok")

    def test_layers(self):
        done = self.peers("--only", "attnkit,numpy", "--workloads", "LINEAR_1,LAYER_1", "--rounds", "1",
                          "--no-plot", "--processor-time", "--cold", "128")
        self.assertRegex(done.stdout, r"(?m)^LINEAR_1 R1_I4096_O4096 .* [\d.]+x$")
        self.assertRegex(done.stdout, r"(?m)^LAYER_1 B1_H32_8_L1x4096_D128_M4096 .* [\d.]+x$")
        self.assertIn("in processor time", " ".join(done.stdout.split()))
        self.assertNotIn("WRONG", done.stdout)

    def test_modes(self):
        """Each mode of attnkit has a column. A mode is one or two flags of a call (columns.py). The column is empty for
        workloads without the mode."""
        names = ["NARROW_decode_bf16", "NARROW_decode_q8_0", "NARROW_linear_1_bf16", "NARROW_linear_1_q8_0"]
        done = self.peers("--only", "attnkit,numpy", "--workloads", ",".join(names), "--rounds", "1",
                          "--no-plot", "--cold", "32")
        self.assertNotIn("WRONG", done.stdout)
        self.assertIn("The columns attnkit integers, attnkit bf16 products, attnkit short weights are calls with flags",
                      " ".join(done.stdout.split()))
        results = json.loads((self.results / "r.json").read_text())
        modes_of = dict(zip(names, ({"bf16 products", "short weights"}, {"integers"}, set(), {"integers"})))
        self.assertEqual([entry["name"] for entry in results["workloads"]], names)
        for entry in results["workloads"]:
            for title, result in entry["results"].items():
                mode = title.partition(" ")[2]
                wanted = "none" if mode in MODES and mode not in modes_of[entry["name"]] else "ok"
                self.assertEqual(result["status"], "cannot" if title == "NumPy" else wanted, (entry["name"], title))
            errors = {result["error"] for result in entry["results"].values() if "error" in result}
            self.assertEqual(len(errors) > 1, bool(modes_of[entry["name"]]))  # a mode rounds in its own way

    def check_json(self, results):
        self.assertEqual((results["threads"], results["rounds"]), (1, 2))
        self.assertTrue(results["machine"]["cpu"] and results["date"])
        self.assertEqual(results["columns"]["NumPy"]["version"].split(",")[0], np.__version__)
        (entry,) = results["workloads"]
        self.assertEqual(entry["best_peer"], "NumPy")
        for result in entry["results"].values():
            self.assertEqual((result["status"], len(result["rounds"])), ("ok", 2))
            self.assertLess(result["error"], 1e-5)
            self.assertLessEqual(min(result["rounds"]), result["seconds"])
            self.assertLessEqual(result["seconds"], max(result["rounds"]))

    def test_missing_and_crashing_libraries_are_shown(self):
        done = self.peers("--only", "torch,openvino,numpy", "--workloads", "W2", "--rounds", "1",
                          "--no-plot")
        self.assertRegex(done.stdout, r"W2 .* cannot \[1\] +cannot \[2\] .* µs( ~)? +NumPy")
        self.assertIn("[1] no torch here", done.stdout)
        self.assertRegex(done.stdout, r"\[2\] its process ended: SIGABRT last words")
        results = json.loads((self.results / "r.json").read_text())["workloads"][0]["results"]
        self.assertEqual(results["PyTorch"], {"status": "cannot", "reason": "no torch here"})

    def test_without_matplotlib_only_the_plot_is_missing(self):
        done = self.peers("--only", "numpy", "--workloads", "W2", "--rounds", "1", code=1)
        self.assertIn("no plot: no matplotlib here", done.stderr)
        self.assertEqual(self.files(), ["r.json", "r.md"])

    def test_without_benches_there_are_speeds(self):
        done = self.peers("--only", "numpy", "--workloads", "W1", "--rounds", "1", "--no-plot",
                          build=str(self.folder))
        self.assertRegex(done.stdout, r"W1 .* GFLOP/s( ~)? +NumPy")
        self.assertIn("No percents: ", done.stdout)

    def test_ctrl_c_leaves_nothing(self):
        process = subprocess.Popen(self.command("--only", "numpy", "--workloads", "W2",
                                                "--rounds", "1000000", "--no-plot"),
                                   env=self.environment, text=True, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE)
        with process:
            while not process.stderr.readline().startswith("[1/1]"):
                self.assertIsNone(process.poll())
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            self.assertNotIn("Traceback", process.communicate(timeout=TIME_LIMIT)[1])
        self.assertEqual(process.returncode, 130)
        self.assertEqual((marked(MARK, self.mark), self.files()), ([], []))


class Refusals(PeersTest):
    def refuse(self, pattern, *options, code=2, **more):
        done = self.peers(*options, code=code, **more)
        self.assertRegex(done.stderr, pattern)
        self.assertEqual((done.stdout, self.files()), ("", []))

    def test_options(self):
        self.refuse(r"no workload W9; there are W1, ", "--workloads", "W1,W9")
        self.refuse(r"no jax; there are attnkit, torch, ", "--only", "jax")
        self.refuse(r"--rounds: is 0: must be a positive number", "--rounds", "0")
        self.refuse(r"--cold: is 0: must be a positive number", "--cold", "0")
        self.refuse(r"--processor-time needs --threads 1", "--processor-time", "--threads", "2", code=1)
        self.refuse(r"--threads 9999: there are only \d+ processors", "--threads", "9999", code=1)

    def test_no_build(self):
        self.refuse(r"no .*libattnkit\.so: build attnkit", code=1, build=str(self.folder))


class Parts(unittest.TestCase):
    def test_costs(self):
        by_name = {w.name: w for w in workloads.WORKLOADS}
        self.assertEqual(by_name["W1"].flops, 4 * 8 * 128 * 256 * 512)
        self.assertEqual(by_name["W4_causal"].flops, by_name["W4_full"].flops / 2)
        self.assertEqual(by_name["W5_4096"].work, 2 * 4 * 8 * 4096 * 128)
        self.assertEqual(by_name["W5_4096_bf16"].work, by_name["W5_4096"].work / 2)
        self.assertEqual(by_name["W6"].kv_lens, [384, 360, 336, 312, 288, 264, 240, 216])
        self.assertEqual(by_name["W7"].shape, "B1_H20_L448x1500_D64")
        self.assertEqual([w.name for w in workloads.find(["W4"])], ["W4_causal", "W4_full"])
        self.assertEqual(by_name["LINEAR_512"].flops, 2 * 512 * 4096 * 4096)
        self.assertEqual(by_name["LINEAR_1"].work, 4 * 4096 * 4096)
        projections = 2 * 4096 * 4096 + 2 * 1024 * 4096
        self.assertEqual(by_name["LAYER_512"].flops, by_name["W3_512"].flops + 2 * 512 * projections)
        self.assertEqual(by_name["LAYER_1"].work, by_name["W5_4096"].work + 4 * projections)
        self.assertEqual(by_name["LAYER_1"].shape, "B1_H32_8_L1x4096_D128_M4096")
        self.assertEqual(by_name["CACHE_4096_q8_0"].work, by_name["W5_4096"].work * 34 // 128)
        self.assertEqual(by_name["CACHE_causal"].flops, by_name["W4_causal"].flops)
        self.assertEqual(by_name["CACHE_tree"].flops, 16 * by_name["W5_4096"].flops)
        self.assertEqual(by_name["CACHE_tree"].cold_bytes, by_name["W5_4096_f16"].work)
        self.assertEqual(by_name["NARROW_linear_1_bf16"].work, by_name["LINEAR_1"].work / 2)
        self.assertEqual(by_name["NARROW_linear_1_q8_0"].work, by_name["LINEAR_1"].work * 34 // 128)
        self.assertEqual(by_name["NARROW_linear_512_bf16"].bytes, by_name["LINEAR_512"].bytes / 2)

    def test_the_benches_know_the_shapes(self):
        """For each attention workload, the benches have a row whose name ends with the shape of the workload."""
        for workload in workloads.WORKLOADS:
            if workload.kind == "attention":
                done = subprocess.run([os.path.join(BUILD, "tools", "attnkit"), "bench", "--list", "--shape",
                                       workload.shape], check=True, text=True, capture_output=True)
                self.assertIn(f"/{workload.shape}\n", done.stdout)

    def test_the_oracle_knows_right_from_wrong(self):
        for shape in ((3, 3), (1, 5)):
            workload = workloads.Workload("test", 2, 4, 2, *shape, 8, causal=shape == (3, 3))
            oracle = tensors.Oracle(workload)
            out = oracle.values.astype(np.float32)
            self.assertFalse(oracle.is_wrong(oracle.error(out)))
            self.assertEqual(oracle.values.shape, (2, 4, shape[0], 8))
            out[1, 3, -1, -1] += 0.01 * oracle.largest
            self.assertTrue(oracle.is_wrong(oracle.error(out)))
            out[0, 0, 0, 0] = np.nan
            self.assertTrue(oracle.is_wrong(oracle.error(out)))

    def test_masks(self):
        """Checks the masks row by row and key by key against the rules of bench/rows/masks.c."""
        def tree(row, key, first):
            if key < first:
                return True
            while row > key - first:
                row = (row - 1) // 2
            return row == key - first
        sees = {"half": lambda row, key, first: key <= first + row, "tree": tree,
                "cells": lambda row, key, _: key % 7 == row}
        for name, is_seen in sees.items():
            workload = workloads.Workload("test", 1, 4, 2, 7, 20, 8, mask=name)
            expected = np.array([[is_seen(row, key, 13) for key in range(20)] for row in range(7)])
            self.assertTrue((tensors.seen(workload) == expected).all(), name)
            self.assertTrue((tensors.seen(workload, np.array([2, 6])) == expected[[2, 6]]).all(), name)
            added = tensors.additive(workload, np.float16)
            self.assertTrue((added == np.where(expected, 0, -np.inf)).all(), name)
            self.assertEqual(added.shape, (1, 1, 7, 20))

    def test_the_oracle_takes_masks_and_orders(self):
        """With a mask, the oracle's result is attention over only the keys that a row sees. Token-major tensors give
        the same result."""
        workload = workloads.Workload("test", 1, 4, 2, 7, 20, 8, mask="cells")
        ours, oracle = tensors.Tensors(workload), tensors.Oracle(workload)
        (k, v), = ours.kv
        for h in range(4):
            for row in range(7):
                some = slice(row, None, 7)
                scores = ours.q[0, h, row].astype(np.float64) @ k[0, h // 2, some].T * 8 ** -0.5
                weights = np.exp(scores)
                out = weights @ v[0, h // 2, some] / weights.sum()
                self.assertLess(np.abs(out - oracle.values[0, h, row]).max(), 1e-12)
        tokens = dataclasses.replace(workload, token=True)
        (k_of_tokens, _), = tensors.Tensors(tokens).kv
        self.assertTrue((k_of_tokens == k).all())
        self.assertEqual((k.strides[1:3], k_of_tokens.strides[1:3]), ((20 * 32, 32), (32, 2 * 32)))
        self.assertTrue((tensors.Oracle(tokens).values == oracle.values).all())

    def test_the_oracle_of_a_linear_map(self):
        workload = workloads.Linear("test", 200, 5, 3)
        oracle, ours = layers.oracle_of(workload), layers.LinearTensors(workload)
        ours.forget_out()
        self.assertTrue(oracle.is_wrong(oracle.error(ours.out)))
        np.matmul(ours.x, ours.matrices[0].T, out=ours.out)
        self.assertFalse(oracle.is_wrong(oracle.error(ours.out)))
        ours.out[-1, -1] += 0.01 * oracle.largest
        self.assertTrue(oracle.is_wrong(oracle.error(ours.out)))

    def test_the_oracle_of_types_of_few_bits(self):
        """The oracle multiplies x and the matrix as LinearTensors rounds them. Its tolerance depends on the type."""
        for type, near in (("bfloat16", 1e-2), ("q8_0", 3e-2)):
            workload = workloads.Linear("NARROW_test", 20, 64, 3, type)
            oracle, ours = layers.oracle_of(workload), layers.LinearTensors(workload)
            x, w = (tensors.widened(array).astype(np.float64) for array in (ours.x, ours.matrices[0]))
            self.assertTrue((oracle.values == x @ w.T).all())
            out = oracle.values.astype(np.float32)
            out[-1, -1] += 0.9 * near * oracle.largest
            self.assertFalse(oracle.is_wrong(oracle.error(out)))
            out[-1, -1] += 0.2 * near * oracle.largest
            self.assertTrue(oracle.is_wrong(oracle.error(out)))

    def test_the_oracle_of_a_layer(self):
        """Compares the oracle, row by row, with attention over the keys that the row sees."""
        for q_len in (5, 1):
            attention = workloads.Workload("", 1, 4, 2, q_len, 5, 8, causal=q_len == 5)
            workload = workloads.Layer("test", attention, 24)
            ours, oracle = layers.LayerTensors(workload), layers.oracle_of(workload)
            (w,), x = ours.layers, ours.x
            k, v = (layers.heads(x @ m.T, 8) for m in (w.k, w.v))
            if q_len < 5:
                k, v = (np.concatenate([old[0, :, :4], new], axis=1) for old, new in zip(w.cache, (k, v)))
            for i in range(q_len):
                q, n = layers.heads(x[i:i + 1] @ w.q.T, 8), 5 - q_len + i + 1
                sees = np.ones((1, n), dtype=bool)
                attended = [tensors.head_oracle(q[h], k[h // 2, :n], v[h // 2, :n], sees)
                            for h in range(4)]
                out = np.concatenate(attended, axis=1) @ w.o.T
                self.assertLess(np.abs(out - oracle.values[i]).max(), 1e-5)

    def test_rounding(self):
        even, up = 1.0, 1.0 + 2.0 ** -7  # neighbours in bfloat16
        values = np.array([even, 1.0 + 2.0 ** -8, 1.0 + 2.0 ** -8 + 2.0 ** -20, 1.0 + 3 * 2.0 ** -8,
                           -3e38], dtype=np.float32)
        brain = tensors.widened(tensors.rounded(values, "bfloat16"))
        self.assertEqual(list(brain[:4]), [even, even, up, 1.0 + 2.0 ** -6])
        self.assertAlmostEqual(brain[4] / -3e38, 1, delta=2.0 ** -8)
        self.assertEqual(tensors.widened(tensors.rounded(values[:4], "float16"))[1], values[1])
        self.assertIs(tensors.widened(values), values)

    def test_blocks(self):
        values = np.random.default_rng(1).standard_normal((3, 96), dtype=np.float32)
        values[1, 32:64] = 0
        array = tensors.rounded(values, "q8_0")
        self.assertEqual((array.shape, array.itemsize), ((3, 3), 34))
        steps = np.repeat(array["scale"].astype(np.float32), 32, axis=1)
        self.assertTrue((np.abs(tensors.widened(array) - values) <= 0.51 * steps).all())
        self.assertEqual(np.abs(array["integers"]).max(), 127)
        # A block in memory is the scale, then the integers.
        scale, *integers = struct.unpack_from("<e32b", array.tobytes(), 34)
        self.assertTrue((np.float32(scale) * np.array(integers) == tensors.widened(array)[0, 32:64]).all())

    def test_the_names_in_the_roofline(self):
        """Each workload is named below its points. The names of workloads of one type and about equal intensity share a
        line, such as 'W5 4096, 16384'. The test needs no matplotlib, because a stand-in notes the text."""
        modules = ("matplotlib", *(f"matplotlib.{name}" for name in ("pyplot", "colors", "lines", "ticker")))
        with unittest.mock.patch.dict(sys.modules, {name: unittest.mock.MagicMock() for name in modules}):
            plot = importlib.import_module("plot")
        for only, expected in (("W5", ["W5 4096, 16384", "W5 4096, 16384 bf16", "W5 4096, 16384 f16"]),
                               ("LINEAR", ["LINEAR 1", "LINEAR 512"]),
                               ("NARROW", ["NARROW decode bf16", "NARROW decode q8_0", "NARROW full bf16",
                                           "NARROW linear 1 bf16", "NARROW linear 1 q8_0", "NARROW linear 512 bf16",
                                           "NARROW linear 512 q8_0", "NARROW prompt bf16", "NARROW prompt q8_0"])):
            axes = unittest.mock.MagicMock()
            plot.name_points(axes, [{"name": w.name, "type": w.type, "flops": w.flops, "bytes": w.bytes,
                                     "cold_bytes": w.cold_bytes, "roof": {"kind": w.roof}}
                                    for w in workloads.find([only])])
            lines = [line for call in axes.text.call_args_list for line in call.args[2].split("\n")]
            self.assertEqual(sorted(lines), expected)

    def test_a_forgotten_output_is_nan(self):
        for kind in workloads.BYTES:
            ours = tensors.Tensors(workloads.Workload("test", 1, 1, 1, 2, 3, 8, type=kind))
            self.assertEqual(ours.out.itemsize, workloads.BYTES[kind])
            ours.forget_out()
            self.assertTrue(np.isnan(tensors.widened(ours.out)).all())

    def test_cold_copies_do_not_fit_into_a_cache(self):
        for workload in workloads.WORKLOADS:
            copies = tensors.cold_copies(workload)
            if workload.kind != "attention" or workload.decode or workload.few:
                self.assertGreater(copies * workload.cold_bytes, 2 * tensors.last_level_cache())
                self.assertEqual(tensors.cold_copies(workload, 1), 1)
            else:
                self.assertEqual(copies, 1)
        few = workloads.Linear("test", 1, 1024, 100)
        self.assertEqual(tensors.cold_copies(few, 1), 3)  # copies of 400 KiB each

    def test_fold(self):
        workload = workloads.Workload("test", 1, 4, 2, 1, 5, 3)
        q = np.arange(12).reshape(1, 4, 1, 3)
        self.assertTrue((forms.fold(q, workload)[0, 1, 1] == q[0, 3, 0]).all())
        workload = workloads.Workload("test", 1, 4, 2, 3, 5, 1, mask="half")
        q, mask = np.arange(12).reshape(1, 4, 3, 1), forms.mask_of(workload, np.float32, folded=True)
        for head, row in ((0, 1), (3, 2)):
            at = head % 2 * 3 + row
            self.assertEqual(forms.fold(q, workload)[0, head // 2, at], q[0, head, row])
            self.assertTrue((mask[0, 0, at] == tensors.additive(workload, np.float32)[0, 0, row]).all())

    def test_every_library_has_pinned_packages(self):
        text = (ROOT / "tools" / "peers" / "requirements.txt").read_text()
        for name in ("all", *LIBRARIES):
            self.assertTrue(name == "numpy" or re.search(rf"(?m)^# {name}: ", text), name)
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        self.assertEqual([line for line in lines if not re.fullmatch(r"[\w-]+==[\w.]+( --\S+)*", line)], [])


if __name__ == "__main__":
    unittest.main()
