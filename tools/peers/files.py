# SPDX-License-Identifier: Apache-2.0
"""Writes files that appear complete or not at all."""

import contextlib
import os
from pathlib import Path


@contextlib.contextmanager
def whole(path):
    """Yields the path of a temporary file in the folder of `path`. The caller writes to the temporary file. At the end,
    the temporary file is renamed to `path`, or removed if the caller raises an exception."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
