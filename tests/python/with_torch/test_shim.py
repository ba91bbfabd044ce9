# SPDX-License-Identifier: Apache-2.0
"""Tests that attnkit declares functions of torch with the types of torch's own headers."""

import os
import shutil
import subprocess
import unittest
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[3]


def compiled(*more):
    command = [os.environ.get("CXX") or shutil.which("c++") or "g++", "-std=c++20", "-fsyntax-only", *more, "-I", ROOT,
               "-isystem", Path(torch.__file__).parent / "include", Path(__file__).with_name("shim.cpp")]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True)


class Shim(unittest.TestCase):
    """Compiles shim.cpp, which has an assertion for each function."""

    def test_types_equal_the_types_of_torch(self):
        done = compiled()
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_another_type_is_noticed(self):
        done = compiled("-Daoti_torch_get_dim=aoti_torch_get_sizes")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("aoti_torch_get_sizes", done.stderr)


if __name__ == "__main__":
    unittest.main()
