# SPDX-License-Identifier: Apache-2.0
"""Downloads source packages of Debian, which tests build once. The built programs are kept in the user's cache:
$XDG_CACHE_HOME/attnkit, or ~/.cache/attnkit if XDG_CACHE_HOME is not set. The sources come from the pool of a mirror,
and their hashes are checked."""

import contextlib
import fcntl
import os
import subprocess
from pathlib import Path

DEBIAN = "http://deb.debian.org/debian/"
# The archive has the packages of 1 August 2025, also if the mirrors have replaced them by newer versions.
ARCHIVE = "http://snapshot.debian.org/archive/debian/20250801T000000Z/"
APT_HELPER = "/usr/lib/apt/apt-helper"


class NotAvailable(Exception):
    """This system lacks something that a test needs."""


def cache_folder():
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "attnkit"


def must_run(command, folder):
    done = subprocess.run([str(word) for word in command], cwd=folder, text=True, errors="replace",
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    if done.returncode != 0:
        raise NotAvailable(f"{command[0]} failed:\n" + "\n".join(done.stdout.splitlines()[-20:]))
    return done.stdout


def mirrors():
    """Returns the addresses of the system's own mirrors of Debian, then the public mirror and the archive."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian"]
    own = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return list(dict.fromkeys([*own, DEBIAN, ARCHIVE]))


def download(source, sha256, target):
    """Downloads a file of the pool from the first mirror that has it. apt's helper downloads the file. The helper uses
    the system's proxies, and refuses a file with another hash."""
    if not os.access(APT_HELPER, os.X_OK):
        raise NotAvailable(f"no {APT_HELPER} (package apt) to get {source}")
    said = []
    for mirror in mirrors():
        try:
            return must_run([APT_HELPER, "-o", "APT::Sandbox::User=root", "download-file",
                             mirror + source, target, "SHA256:" + sha256], target.parent)
        except NotAvailable as error:
            said.append(f"{mirror}: {error}")
    raise NotAvailable(f"cannot get {source}\n" + "\n".join(said))


@contextlib.contextmanager
def alone(name):
    """Holds a lock of the cache, so that no other process builds the same thing at the same time."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with open(cache_folder() / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
