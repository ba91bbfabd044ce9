#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Passes the state file of examples/portable_state.c between two builds, in both directions. One build writes the file,
with each of its instruction sets. The other build continues from it, with each of its own instruction sets. All results
must be the same. Files that are cut off, changed or from another kind of machine must be refused.

    tests/interop/portable.py EXAMPLE [WRAPPER... EXAMPLE]

The second program is from a build for another machine, and WRAPPER runs it. Without a second program, one build writes
the file and continues from it. Prints TAP."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HEADER = 72  # size of the header in bytes
BYTE_ORDER, VERSION, LIBRARY = 8, 12, 16  # offsets in the header, in bytes


def run(command, isa, *arguments):
    done = subprocess.run([*command, *map(str, arguments)], env=dict(os.environ, ATTNKIT_ISA=isa), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def isas(command):
    """Returns the instruction sets that a program can run. The program lists them in its error message for an unknown
    name."""
    _, output = run(command, "none", "write", os.devnull)
    found = re.search(r"possible here: (.*)", output)
    return found[1].split(", ") if found else []


def crossings(writer, reader, folder):
    """Yields (instruction sets of writer and reader, hash of the reader's result, output of the program that ran last).
    If the writer or reader failed, the hash is None or False."""
    for written in isas(writer):
        file = folder / "state"
        status, output = run(writer, written, "write", file)
        if status != 0:
            yield f"{written}, which writes nothing", None, output
            continue
        for read in isas(reader):
            status, output = run(reader, read, "go_on", file)
            went_well = re.fullmatch(r"result (\w+): the same bits as one call over all keys\n", output)
            yield f"{written} to {read}", went_well and status == 0 and went_well[1], output


def refusals(command, folder):
    """Yields (the fault of a file, whether the program refuses the file with the right message, the output)."""
    good = folder / "good"
    isa = isas(command)[0]
    run(command, isa, "write", good)
    data = good.read_bytes()
    flipped = data[:BYTE_ORDER] + data[BYTE_ORDER:VERSION][::-1] + data[VERSION:]
    bad_files = {
        "no header": (b"", "cut off"),
        "half of a header": (data[:HEADER // 2], "cut off"),
        "a byte too few": (data[:-1], "cut off"),
        "a byte too many": (data + b"\0", "longer than it should be"),
        "ends of lines changed": (data.replace(b"\r\n", b"\n", 1), "not a file of"),
        "the other byte order": (flipped, "other byte order"),
        "another version": (data[:VERSION] + b"\2" + data[VERSION + 1:], "version that is not known"),
        "another version of attnkit": (data[:LIBRARY] + b"9" + data[LIBRARY + 1:], "another version"),
        "other shapes": (data[:HEADER - 1] + b"\1" + data[HEADER:], "shapes"),
    }
    for name, (content, words) in bad_files.items():
        bad = folder / "bad"
        bad.write_bytes(content)
        status, output = run(command, isa, "go_on", bad)
        yield name, status == 1 and words in output, output


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    here, elsewhere = [sys.argv[1]], sys.argv[2:] or [sys.argv[1]]
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for writer, reader in ((here, elsewhere), (elsewhere, here)) if elsewhere != here else ((here, here),):
            results += crossings(writer, reader, Path(folder))
        hashes = {hash for _, hash, _ in results}
        lines = [(f"goes on from {name}", hash, output) for name, hash, output in results]
        lines += [("all results are the same", len(hashes) == 1 and None not in hashes, str(hashes))]
        lines += [(f"refuses: {name}", ok, output) for name, ok, output in refusals(elsewhere, Path(folder))]
    print(f"1..{len(lines)}")
    for number, (name, ok, output) in enumerate(lines, 1):
        print(f"{'ok' if ok else 'not ok'} {number} - {name}")
        if not ok:
            print("".join(f"# {line}\n" for line in output.splitlines()), end="")
    return 0 if all(ok for _, ok, _ in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
