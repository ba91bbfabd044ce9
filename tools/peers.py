#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attnkit beside PyTorch, ONNX Runtime, OpenVINO and NumPy on this machine's CPU: a table, a plot.

    tools/peers.py [BUILD] [--quick] [--only attnkit,numpy] ...

Makes a virtual environment with the versions of tools/peers/requirements.txt, then measures in it.
PyTorch's wheel does not load without the CUDA libraries: with it that is 2.6 GB to download and 4.3 GB
on the disk, without it 0.2 and 0.5 GB. tools/peers/measure.py says how it measures.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent / "peers"
sys.path.insert(0, str(HERE))

import options as command_line  # noqa: E402

NEEDED = {"torch": 8.0, "": 1.0}  # GB of disk while it is installed
STAMP = "installed.txt"           # in the environment: the packages that are completely in it


def requirements(only):
    """Peer -> its packages; a section of the file begins with '# peer: '."""
    sections, name = {}, None
    for line in (HERE / "requirements.txt").read_text().splitlines():
        heading = re.match(r"# (\w+): ", line)
        name = heading[1] if heading else name
        if line and not line.startswith("#"):
            sections.setdefault(name, []).append(line)
    return {name: packages for name, packages in sections.items() if name in ("all", *only)}


def fail(what, advice):
    sys.exit(f"peers.py: {what}\n{advice}")


def make(venv):
    """A virtual environment; one that was not finished is completed."""
    stamp = venv / STAMP
    if stamp.exists():
        return
    print(f"peers.py: makes a virtual environment in {venv}", file=sys.stderr)
    done = subprocess.run([sys.executable, "-m", "venv", str(venv)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        fail(f"no virtual environment: {done.stdout.strip()}",
             "On Debian that needs the package python3-venv. --no-venv takes this Python as it is.")
    stamp.write_text("")


def check_space(venv, name):
    needed = NEEDED.get(name, NEEDED[""])
    free = shutil.disk_usage(venv).free * 1e-9
    if free < needed:
        fail(f"{venv}: installing {name} needs {needed:.0f} GB, free are {free:.1f} GB",
             advice_without(name))


def advice_without(name):
    rest = [peer for peer in command_line.columns.NAMES if peer != name]
    return f"To go on without it: --only {','.join(rest)}" if name != "all" else \
        "To go on with what this Python has: --no-venv --only attnkit,numpy"


def install(venv, sections):
    """All that is not yet there, a peer at a time."""
    stamp = venv / STAMP
    there = stamp.read_text().split()
    for name, packages in sections.items():
        missing = [package for package in packages if package not in there]
        if not missing:
            continue
        check_space(venv, name)
        print(f"peers.py: installs {', '.join(missing)}", file=sys.stderr)
        done = subprocess.run([str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps",
                               "--no-cache-dir", "--disable-pip-version-check", *missing])
        if done.returncode:
            fail(f"pip could not install the packages for {name}; see above", advice_without(name))
        there += missing
        stamp.write_text("\n".join(there) + "\n")


def main():
    options = command_line.complete(command_line.parser(__doc__.splitlines()[0]).parse_args())
    python = sys.executable
    if options.no_venv and not importlib.util.find_spec("numpy"):
        fail(f"{python} has no NumPy", "Leave out --no-venv, or take a Python that has it.")
    if not options.no_venv:
        make(options.venv)
        install(options.venv, requirements(options.only))
        python = str(options.venv / "bin" / "python")
    os.execv(python, [python, str(HERE / "main.py"), *sys.argv[1:]])


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
