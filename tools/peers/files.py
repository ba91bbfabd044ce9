# SPDX-License-Identifier: Apache-2.0
"""Files that are there as a whole or not at all."""

import contextlib
import os
from pathlib import Path


@contextlib.contextmanager
def whole(path):
    """The name to write to, beside the file that it becomes."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
