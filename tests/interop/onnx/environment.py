# SPDX-License-Identifier: Apache-2.0
"""Makes a virtual environment in the user's cache folder, with the packages of requirements.txt. Each version of
requirements.txt and of Python has its own environment."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parent / "requirements.txt"
STAMP = "complete"  # a file in the environment; it exists once everything is installed


def say(text):
    print(f"# onnx: {text}", file=sys.stderr, flush=True)


def fail(what, output, advice):
    sys.exit(f"onnx: {what}\n{output.strip()}\n{advice}")


def folder():
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attnkit"
    cache.mkdir(parents=True, exist_ok=True)
    version = "{}.{}".format(*sys.version_info[:2])
    return cache / f"onnx-{version}-{hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]}"


def run(*command):
    done = subprocess.run([str(word) for word in command], text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode == 0, done.stdout


def make(venv):
    say(f"makes a virtual environment in {venv}")
    shutil.rmtree(venv, ignore_errors=True)
    ok, output = run(sys.executable, "-m", "venv", venv)
    if not ok:
        fail(f"{sys.executable} cannot make a virtual environment in {venv}", output,
             "On Debian and Ubuntu, venv needs the package python3-venv.")
    say("installs its packages from PyPI")
    ok, output = run(venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps",
                     "--no-cache-dir", "--disable-pip-version-check", "--only-binary", ":all:",
                     "-r", REQUIREMENTS)
    if not ok:
        fail(f"pip cannot install {REQUIREMENTS}", output,
             "The cases of ONNX are in these packages. To install the packages, the first run needs PyPI\n"
             "and a Python of 3.10 or later.")
    (venv / STAMP).touch()


def complete():
    """Makes the environment, unless it is complete already, and returns the path of its Python. Other processes that
    need the environment wait."""
    venv = folder()
    python = venv / "bin" / "python"  # a link that may outlive its target
    with open(f"{venv}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ((venv / STAMP).exists() and python.exists()):
            make(venv)
    return str(python)
