# SPDX-License-Identifier: Apache-2.0
"""Runs the snippets of docs/transformers.md one after the other. Each snippet must print the text that follows the
snippet on the page."""

import contextlib
import io
import re
import unittest
from pathlib import Path

import attnkit.transformers

PAGE = Path(__file__).resolve().parents[3] / "docs" / "transformers.md"
FENCE = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.S | re.M)


class Page(unittest.TestCase):
    """All snippets are one program. The first snippet prints nothing."""

    def test_snippets_print_the_text_below_them(self):
        self.addCleanup(attnkit.transformers.restore)
        fences, names = FENCE.findall(PAGE.read_text()), {}
        self.assertGreater(len(fences), 3)
        self.assertEqual([bool(text) for _, text in fences], [False] + [True] * (len(fences) - 1))
        for code, text in fences:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, str(PAGE), "exec"), names)  # the page is a file of this tree
            self.assertEqual(printed.getvalue(), text, code)


if __name__ == "__main__":
    unittest.main()
