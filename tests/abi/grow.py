#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the public headers of an imaginary later version of attnkit. In these headers, every struct that begins with
its size has more fields at its end.

    tests/abi/grow.py FOLDER_FOR_COPIES HEADER...
"""

import re
import sys
from pathlib import Path

SIZED = re.compile(r"^typedef struct (attnkit_\w+) \{\n    size_t size;.*?^(?=\} \1;)", re.M | re.S)
NEW_FIELDS = """
    int64_t grown_number;
    const void *grown_pointer;
    struct {
        double real;
        int32_t numbers[4];
    } grown_struct;
"""


def grown(text):
    """Returns the text of a header with longer structs, and the number of these structs."""
    return SIZED.subn(lambda match: match.group() + NEW_FIELDS, text)


def main():
    folder = Path(sys.argv[1])
    for header in map(Path, sys.argv[2:]):
        old = header.read_text()
        new, count = grown(old)
        if count == 0 or count != old.count("    size_t size;"):
            sys.exit(f"grow.py: {count} structs of {header} grow, "
                     f"{old.count('    size_t size;')} have a size")
        (folder / header.name).write_text(new)


if __name__ == "__main__":
    main()
