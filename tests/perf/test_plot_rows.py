# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/plot_rows.py: its results on made-up rows with known times and, if the benches are built, on real rows
of `attnkit bench`. If matplotlib is installed, the plot is also tested.

    ATTNKIT_BUILD=build python3 tests/perf/test_plot_rows.py
"""

import argparse
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["ATTNKIT_BUILD"]).resolve()

sys.path.insert(0, str(ROOT / "tools"))

import plot_rows  # noqa: E402

# A stand-in for `attnkit`. A call of n rows takes n + 3 us, and the first call of each n takes ten times as long. Calls
# reach 1 GFLOP/s or 1 GB/s, and the roofs are 2 GFLOP/s and 2 GB/s.
MADE_UP = """#!{python}
import json, pathlib, re, sys
rows = int(re.search(r"_L(\\d+)x", sys.argv[sys.argv.index("--shape") + 1])[1])
seen = pathlib.Path(__file__).with_name(f"seen{{rows}}")
slowness = 1 if seen.exists() else 10
seen.touch()
kind = "GFLOPS" if rows > 1 else "GBps"
row = {{"name": f"few/{{sys.argv[sys.argv.index('--type') + 1]}}/avx2/shape", "roof_pct": 50,
       "real_time": slowness * 1000.0 * (rows + 3), "cpu_time": 1000.0, kind: 1.0,
       "roof_" + kind: 2.0}}
json.dump({{"benchmarks": [row], "context": {{"cpu": "none", "attnkit": "0"}}}},
          open(sys.argv[sys.argv.index("--json") + 1], "w"))
"""


class PlotRows(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.options = argparse.Namespace(build=self.folder, type="f16", isa=None, threads="1",
                                          keys=64, rows=4)

    def make_up(self):
        command = self.folder / "tools" / "attnkit"
        command.parent.mkdir()
        command.write_text(MADE_UP.format(python=sys.executable))
        command.chmod(0o755)
        with contextlib.redirect_stderr(io.StringIO()) as self.progress:
            return plot_rows.measure(self.options)

    def test_points(self):
        results = self.make_up()
        self.assertEqual([p["rows"] for p in results["points"]], [1, 2, 3, 4])
        for p in results["points"]:
            self.assertAlmostEqual(p["seconds_of_a_row"] * p["rows"], 1e-6 * (p["rows"] + 3))
        self.assertEqual((results["isa"], results["type"]), ("avx2", "f16"))
        self.assertIn("[12/12] few/f16/avx2/shape", self.progress.getvalue())

    def test_bounds(self):
        # At the roofs, reading K and V once takes half of 4 us. The multiply-adds of n > 1 rows take half of n + 3 us.
        bounds = plot_rows.bounds(self.make_up())
        for n, bound in enumerate(bounds, 1):
            self.assertAlmostEqual(bound * n, 0.5e-6 * max(4, n + 3 if n > 1 else 0))

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "no matplotlib")
    def test_plot(self):
        made_up = self.folder / "made_up.json"
        made_up.write_text(json.dumps(self.make_up()))
        subprocess.run([sys.executable, ROOT / "tools" / "plot_rows.py", "--no-venv", "--from",
                        made_up, "--output", self.folder / "plots" / "x"], check=True,
                       stdout=subprocess.DEVNULL)
        written = sorted(p.name for p in (self.folder / "plots").iterdir())
        self.assertEqual(written, ["x.png", "x.svg"])

    @unittest.skipUnless((BUILD / "bench" / "attnkit-bench").exists(), "no benches")
    def test_the_bench_and_what_it_refuses(self):
        self.options.build = BUILD
        self.options.isa = "scalar"
        row, context = plot_rows.bench(self.options, 2)
        self.assertEqual(row["name"], "few/f16/scalar/B1_H32_8_L2x64_D128_causal")
        self.assertGreater(plot_rows.point(2, row)["flops"], 4 * 128 * 32 * 2 * 62)
        self.assertIn("attnkit", context)
        self.options.type = "f64"
        with self.assertRaisesRegex(SystemExit, "--type is 'f64': must be f32"):
            plot_rows.bench(self.options, 2)

    def test_no_build(self):
        with self.assertRaisesRegex(SystemExit, "cannot start .*attnkit: No such file"):
            plot_rows.bench(self.options, 2)


if __name__ == "__main__":
    unittest.main()
