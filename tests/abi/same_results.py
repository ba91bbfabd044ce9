#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs builds of client.c, each with the headers of one version and the library of another. All of
them print what the first one does.

    tests/abi/same_results.py CLIENT...
"""

import subprocess
import sys
from pathlib import Path

LEAST_LINES = 12


def main():
    clients = sys.argv[1:]
    expected = None
    bad = 0
    for client in clients:
        done = subprocess.run([client], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        expected = expected or done.stdout
        right = done.returncode == 0 and done.stdout == expected
        right = right and len(done.stdout.splitlines()) >= LEAST_LINES
        print(f"{Path(client).name}: {'the same results' if right else 'WRONG'}")
        if not right:
            print(f"exit status {done.returncode}\n{done.stdout}")
        bad += not right
    return 1 if bad or len(clients) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
