# SPDX-License-Identifier: Apache-2.0
"""The machine's roofs as `attnkit bench` measures them: the speed of fused multiply-adds, and of reading memory. The
roofs are measured on as many threads as the compared calls use."""

import json
import subprocess
import tempfile
from pathlib import Path

TIME_LIMIT = 120
# FILTER: rows of `attnkit bench` that measure a roof on one thread. SHAPE: calls beside which the bench measures a roof
# on several threads.
FILTER = {"fma": "^fma/", "read": "^read/dram"}
SHAPE = {"fma": "B1_H2_L128_D64", "read": "B1_H32_8_L1x4096_D128"}
KEY = {"fma": "roof_GFLOPS", "read": "roof_GBps"}


class Roofs:
    """The roofs. If `attnkit bench` cannot measure a roof, `missing` has the reason, and this roof and all later roofs
    are None."""

    def __init__(self, build, threads):
        self.command = Path(build) / "tools" / "attnkit"
        self.threads = threads
        self.missing = None

    def burst(self, kind):
        """Returns the roof in FLOP/s or byte/s. If several instruction sets have roofs, the fastest roof counts."""
        if self.missing:
            return None
        try:
            return max(row[KEY[kind]] for row in self.rows(kind) if KEY[kind] in row) * 1e9
        except (OSError, ValueError, subprocess.SubprocessError) as problem:
            text = getattr(problem, "stderr", None) or str(problem)
            self.missing = text.strip().splitlines()[-1]
            return None

    def rows(self, kind):
        which = ["--filter", FILTER[kind]]
        if self.threads > 1:
            which = ["--shape", SHAPE[kind], "--threads", str(self.threads)]
        with tempfile.NamedTemporaryFile() as file:
            subprocess.run([str(self.command), "bench", "--quick", "--json", file.name, *which],
                           check=True, text=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, timeout=TIME_LIMIT)
            return json.loads(Path(file.name).read_text())["benchmarks"]
