# SPDX-License-Identifier: Apache-2.0
"""The command line options of compare.py. They are parsed twice: by compare.py, and by main.py in the virtual
environment."""

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CASES = 600


def environment_folder():
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "attnkit" / "pytorch-{}.{}".format(*sys.version_info[:2])


def parse():
    options = argparse.ArgumentParser(prog="compare.py")
    add = options.add_argument
    add("build", nargs="?", type=Path, default=ROOT / "build", help="build folder of attnkit; build/ by default")
    add("--seed", type=int, default=1, help="seed of the cases; 1 by default")
    add("--cases", metavar="N", type=int, default=CASES, help=f"number of random cases; {CASES} by default")
    add("--case", metavar="NUMBER", type=int, help="run only this case")
    add("--isa", metavar="NAME", help="instruction set; by default, all that can run here")
    parsed = options.parse_args()
    library = parsed.build / "dispatch" / "libattnkit.so"
    if not library.exists():
        sys.exit(f"compare.py: no {library}: build attnkit, or name another build folder")
    parsed.library = str(library.resolve())
    return parsed
