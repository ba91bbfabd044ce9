# SPDX-License-Identifier: Apache-2.0
"""Tests that attnkit declares functions of torch with the types of torch's own headers, and that a call fails if
torch's threads do not run its tasks."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[3]
TORCH = Path(torch.__file__).parent

# The source of a library that attnkit.torch loads in place of torch's own library. The only function of the source
# fails. The library is linked with torch's library, which has all other functions.
NO_THREADS = "int torch_parallel_for(void) { return 1; }"
CALL = """
import ctypes, sys
import torch
from attnkit import _core

ctypes.CDLL(sys.argv[1])
load = _core.torch_load
_core.torch_load = lambda path: load(sys.argv[1])
from attnkit.torch import attention

torch.set_num_threads(2)
q = torch.ones(1, 2, 200, 64)
attention(q[:, :, :2], q, q)
print("few rows on one thread")
try:
    attention(q, q, q)
except RuntimeError as error:
    print("RuntimeError", error)
"""


def compiled(*more):
    command = [os.environ.get("CXX") or shutil.which("c++") or "g++", "-std=c++20", "-fsyntax-only", *more, "-I", ROOT,
               "-isystem", TORCH / "include", Path(__file__).with_name("shim.cpp")]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True)


class Shim(unittest.TestCase):
    """Compiles shim.cpp, which has an assertion for each function of torch that attnkit declares."""

    def test_types_equal_the_types_of_torch(self):
        done = compiled()
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_another_type_is_noticed(self):
        done = compiled("-Daoti_torch_get_dim=aoti_torch_get_sizes")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("aoti_torch_get_sizes", done.stderr)


@unittest.skipUnless(sys.platform == "linux", "links as on Linux")
class Threads(unittest.TestCase):
    """Runs attention with a torch_parallel_for that fails."""

    def test_a_call_fails_if_its_tasks_did_not_run(self):
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "libno_threads.so"
            source = library.with_suffix(".c")
            source.write_text(NO_THREADS)
            cc = os.environ.get("CC") or shutil.which("cc") or "gcc"
            subprocess.run([cc, "-shared", "-fPIC", source, "-o", library, f"-L{TORCH / 'lib'}",
                            f"-Wl,-rpath,{TORCH / 'lib'}", "-Wl,--no-as-needed", "-Wl,--unresolved-symbols=ignore-all",
                            "-ltorch_cpu"], check=True)
            done = subprocess.run([sys.executable, "-W", "ignore", "-c", CALL, library], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, "^few rows on one thread\nRuntimeError a function of torch failed")


if __name__ == "__main__":
    unittest.main()
