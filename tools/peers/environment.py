# SPDX-License-Identifier: Apache-2.0
"""Makes a virtual environment with the requested packages of requirements.txt, in a given folder. tools/peers.py,
tools/plot_rows.py, tools/llamacpp_speed.py, `tools/test torch` and `tools/test transformers` use this module."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import columns
import llamacpp

HERE = Path(__file__).resolve().parent
PROGRAM = Path(sys.argv[0]).name
NEEDED = {"torch": 8.0, "": 1.0}  # GB of disk for the installation of a section; "" stands for the other sections
STAMP = "installed.txt"           # a file in the environment that lists its fully installed packages


def requirements(only):
    """Returns a dict: name of a section of requirements.txt -> its packages, with options of pip. The dict has the
    sections that `only` names, and "all". A section begins with its name, such as '# torch: '."""
    sections, name = {}, None
    for line in (HERE / "requirements.txt").read_text().splitlines():
        heading = re.match(r"# (\w+): ", line)
        name = heading[1] if heading else name
        if line and not line.startswith("#"):
            sections.setdefault(name, []).append(line)
    return {name: packages for name, packages in sections.items() if name in ("all", *only)}


def fail(what, advice):
    sys.exit(f"{PROGRAM}: {what}\n{advice}")


def make(venv):
    """Makes a virtual environment, or completes an unfinished one."""
    stamp = venv / STAMP
    if stamp.exists():
        return
    print(f"{PROGRAM}: makes a virtual environment in {venv}", file=sys.stderr)
    done = subprocess.run([sys.executable, "-m", "venv", str(venv)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        fail(f"no virtual environment: {done.stdout.strip()}",
             "On Debian, this needs the package python3-venv; --help shows the option that needs no environment.")
    stamp.write_text("")


def check_space(venv, name, advice):
    needed = NEEDED.get(name, NEEDED[""])
    free = shutil.disk_usage(venv).free * 1e-9
    if free < needed:
        fail(f"{venv}: installing {name} needs {needed:.0f} GB: only {free:.1f} GB are free",
             advice(name))


def advice_without(name):
    rest = [peer for peer in columns.NAMES if peer != name]
    return f"To go on without this library: --only {','.join(rest)}" if name != "all" else \
        "To go on with what this Python has: --no-venv (with peers.py also --only attnkit,numpy)"


def words_of(package):
    """Returns pip's arguments for a package. The package with a hash is llama-cpp-python, which is built from source.
    Instead of its name, the arguments have the path of the file with this hash."""
    name, *options = package.split()
    if not any(option.startswith("--hash=") for option in options):
        return [name, *options]
    return [str(llamacpp.sdist()), *(option for option in options if not option.startswith("--hash="))]


def install(venv, sections, advice):
    """Installs all missing packages, one section of requirements.txt after the other."""
    stamp = venv / STAMP
    there = stamp.read_text().split()
    for name, packages in sections.items():
        missing = [package for package in packages if package.split()[0] not in there]
        if not missing:
            continue
        check_space(venv, name, advice)
        names = [package.split()[0] for package in missing]
        print(f"{PROGRAM}: installs {', '.join(names)}", file=sys.stderr)
        words = [word for package in missing for word in words_of(package)]
        done = subprocess.run([str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps",
                               "--no-cache-dir", "--disable-pip-version-check", *words])
        if done.returncode:
            fail(f"pip could not install the packages for {name}; see above", advice(name))
        there += names
        stamp.write_text("\n".join(there) + "\n")


def complete(venv, only, advice=advice_without):
    """Makes the environment, or completes it, with the packages of requirements(only). Returns the path of its Python.
    If the packages of a section cannot be installed, ends the program with a message. The message ends with the text
    that advice(name of the section) returns."""
    make(venv)
    install(venv, requirements(only), advice)
    return str(venv / "bin" / "python")


def take_matplotlib(venv):
    """Continues in a Python that has matplotlib. If this Python has no matplotlib, starts the program again in the
    Python of the environment."""
    if not importlib.util.find_spec("matplotlib"):
        python = complete(venv, [])
        os.execv(python, [python, *sys.argv])
