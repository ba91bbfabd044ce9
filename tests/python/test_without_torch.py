# SPDX-License-Identifier: Apache-2.0
"""If PyTorch is missing or does not fit, the import of attnkit.torch must raise an error that says so, and attnkit
itself must stay usable. tools/test torch tests attnkit.torch with PyTorch."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TRY = "try:\n    import attnkit.{}\nexcept ImportError as error:\n    print(error)\nimport attnkit; attnkit.info()"


def said(before="", path=None, module="torch"):
    """Imports attnkit.`module` in a new process, and returns the text that the process prints. The code `before`, or
    the folder `path`, decides which torch is found."""
    start = f"import sys; sys.path[:0] = {[path] if path else []!r}\n{before}\n"
    done = subprocess.run([sys.executable, "-c", start + TRY.format(module)], capture_output=True, text=True,
                          check=True)
    return done.stdout.strip()


class WithoutTorch(unittest.TestCase):
    """Imports attnkit.torch, or attnkit.transformers, with torch hidden. Also imports attnkit.torch with stand-ins for
    other builds of torch."""

    def test_missing(self):
        self.assertEqual(said("sys.modules['torch'] = None"), "attnkit.torch needs PyTorch: pip install torch")

    def test_attnkit_transformers_names_pytorch_too(self):
        self.assertEqual(said("sys.modules['torch'] = None", module="transformers"),
                         "attnkit.torch needs PyTorch: pip install torch")

    def stand_in(self, registry):
        """Makes a folder with a package that stands in for torch 2.3.1, and returns the folder. `registry` is the code
        of torch.nn.attention."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name, text in (("torch", "__version__ = '2.3.1'"), ("torch/nn", ""), ("torch/nn/attention", registry)):
            (Path(folder.name) / name).mkdir()
            (Path(folder.name) / name / "__init__.py").write_text(text)
        return folder.name

    def test_pytorch_is_too_old(self):
        self.assertEqual(said(path=self.stand_in("")), "attnkit.torch needs PyTorch 2.11 or newer; this is 2.3.1")

    def test_another_build(self):
        """The stand-in for torch has not loaded libtorch_cpu from its own folder."""
        text = said(path=self.stand_in("def restore_flash_attention_impl(): pass"))
        self.assertRegex(text, r"^attnkit.torch does not fit PyTorch 2.3.1: torch has not loaded .*libtorch_cpu")


if __name__ == "__main__":
    unittest.main()
