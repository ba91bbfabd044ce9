# SPDX-License-Identifier: Apache-2.0
"""Tests of tests/python/packaged.py. A file of tests that exceeds its time limit is a failure, and the suite goes on.

    python3 tests/test_packaged.py
"""

import contextlib
import io
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "python"))

import packaged  # noqa: E402

FILES = {"test_a.py": """
import time, unittest
class A(unittest.TestCase):
    def test_1_works(self):
        pass
    def test_2_hangs(self):
        time.sleep(100)
""", "test_b.py": """
import unittest
class B(unittest.TestCase):
    def test_works(self):
        pass
"""}


class PackagedTest(unittest.TestCase):
    def test_a_file_that_takes_too_long(self):
        tap, output = packaged.Tap(), io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(output):
            for name, content in FILES.items():
                pathlib.Path(folder, name).write_text(content)
            packaged.run_tests(tap, sys.executable, pathlib.Path(folder), os.environ, time_limit=10)
        lines = [line for line in output.getvalue().splitlines() if line.startswith(("ok", "not ok"))]
        self.assertEqual(lines, ["ok 1 - test_a: test_1_works", "not ok 2 - test_a: all of its tests",
                                 "ok 3 - test_b: test_works", "ok 4 - test_b: all of its tests"])
        self.assertIn("# time-out\n", output.getvalue())


if __name__ == "__main__":
    unittest.main()
