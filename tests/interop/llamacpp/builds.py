# SPDX-License-Identifier: Apache-2.0
"""What the tests of the backend for ggml run: stock builds of ggml and its test of operators, which stay
in the user's cache folder, and in the build folder of attnkit the backend and programs of this folder.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tools" / "peers"))

import llamacpp  # noqa: E402

COMPILER = ["c++", "-std=c++17", "-O1", "-pthread"]


def libraries(openmp=True):
    """The folder of a stock ggml, with threads by OpenMP or of its own."""
    if openmp:
        return llamacpp.built("ggml")
    return llamacpp.built("ggml", "without-openmp", ["-DGGML_OPENMP=OFF"])


def compile_program(program, source, folder):
    """Links with the ggml in a folder."""
    ggml = llamacpp.source() / "ggml" / "include"
    llamacpp.run(f"compiling {source.name}", *COMPILER, "-I", ggml, "-o", program, source, "-L", folder,
                 "-lggml", "-lggml-cpu", "-lggml-base", f"-Wl,-rpath,{folder}")


def test_backend_ops():
    """llama.cpp's test of operators."""
    folder = libraries()
    program = llamacpp.folder() / "test-backend-ops"
    with llamacpp.alone("test-backend-ops"):
        if not program.exists():
            part = program.with_suffix(".part")
            compile_program(part, llamacpp.source() / "tests" / "test-backend-ops.cpp", folder)
            part.rename(program)
    return program


def program(build, name, openmp=True):
    """One of this folder's."""
    made = build / "llamacpp" / (name if openmp else f"{name}-without-openmp")
    made.parent.mkdir(exist_ok=True)
    compile_program(made, HERE / f"{name}.cpp", libraries(openmp))
    return made


def backend(build, name="backend", ggml=None):
    """libggml-attnkit.so by ggml/CMakeLists.txt, with the attnkit in a build folder."""
    folder = build / "llamacpp" / name
    llamacpp.run("cmake", "cmake", "-S", ROOT / "ggml", "-B", folder,
                 f"-DGGML_SOURCE={ggml or llamacpp.source() / 'ggml'}",
                 f"-DATTNKIT_LIBRARY={build / 'dispatch' / 'libattnkit.a'}")
    llamacpp.run("the backend's build", "cmake", "--build", folder)
    return folder / "libggml-attnkit.so"


def output(*command, **environment):
    """Status, stdout, stderr; `environment` is all that the program has."""
    done = subprocess.run([str(word) for word in command], text=True, errors="replace",
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={"PATH": "/usr/bin:/bin", **environment})
    return done.returncode, done.stdout, done.stderr
