# SPDX-License-Identifier: Apache-2.0
"""Runs the snippets of docs/python.md one after the other. Each snippet must print the text that follows the snippet on
the page."""

import contextlib
import io
import re
import unittest
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
FENCE = re.compile(r"^```(python|text)\n(.*?)^```$", re.S | re.M)


class Tutorial(unittest.TestCase):
    def test_snippets_print_the_text_below_them(self):
        fences, names = FENCE.findall(PAGE.read_text()), {}
        self.assertGreater(len(fences), 15)
        for (kind, code), (follows, text) in zip(fences[::2], fences[1::2]):
            self.assertEqual((kind, follows), ("python", "text"), code)
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, str(PAGE), "exec"), names)  # the page is a file of this tree
            self.assertEqual(printed.getvalue(), text, code)
        self.assertEqual(len(fences) % 2, 0)


if __name__ == "__main__":
    unittest.main()
