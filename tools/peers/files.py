# SPDX-License-Identifier: Apache-2.0
"""Files that appear complete or not at all."""

import contextlib
import os
from pathlib import Path


@contextlib.contextmanager
def whole(path):
    """Yields a name beside the file to write to. It is renamed to the file at the end."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
