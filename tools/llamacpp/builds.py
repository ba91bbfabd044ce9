# SPDX-License-Identifier: Apache-2.0
"""Makes the builds that the tests and measurements of the backend for ggml need. Stock builds of ggml and llama.cpp
stay in the user's cache folder. The backend and the programs of this source tree are built in the build folder of
attnkit.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tools" / "peers"))

import llamacpp  # noqa: E402

COMPILER = ["c++", "-std=c++17", "-O1", "-pthread"]


def libraries(plain=False):
    """Returns the folder of a stock ggml. With `plain`, ggml is built with its own threads instead of OpenMP, and
    without the tiles of llamafile. Without these tiles, a product of many rows has the same bits as products of single
    rows."""
    if not plain:
        return llamacpp.built("ggml")
    return llamacpp.built("ggml", "plain", ["-DGGML_OPENMP=OFF", "-DGGML_LLAMAFILE=OFF"])


def compile_program(program, sources, folder, *more, compiler=tuple(COMPILER)):
    """Compiles a program and links it with the ggml in `folder`. The program runs with this ggml, unless
    LD_LIBRARY_PATH names a folder with another ggml."""
    include = [f"-I{llamacpp.source() / path}" for path in ("ggml/include", "ggml/src", "include")]
    program.parent.mkdir(exist_ok=True)
    llamacpp.run(f"compiling {program.name}", *compiler, *include, "-I", ROOT, "-o", program, *sources,
                 "-L", folder, *more, "-lggml", "-lggml-cpu", "-lggml-base", f"-Wl,-rpath,{folder}")


def test_backend_ops():
    """Builds llama.cpp's test of operators."""
    folder = libraries()
    program = llamacpp.folder() / "test-backend-ops"
    with llamacpp.alone("test-backend-ops"):
        if not program.exists():
            part = program.with_suffix(".part")
            compile_program(part, [llamacpp.source() / "tests" / "test-backend-ops.cpp"], folder)
            part.rename(program)
    return program


def ops_program(build, source):
    """Builds a program that calls ggml. `source` is its source file in this tree."""
    made = build / "llamacpp" / Path(source).stem
    compile_program(made, [ROOT / source], libraries())
    return made


def model_program(build, source):
    """Builds a program that runs a model with random weights. `source` is its source file in this tree. The program
    may call attnkit."""
    made = build / "llamacpp" / Path(source).stem
    compile_program(made, [ROOT / source, HERE / "random_model.cpp"], llamacpp.built("llama"), "-lllama",
                    "-I", ROOT / "include", attnkit_library(build))
    return made


def llama_server():
    return llamacpp.built("llama-server") / "llama-server"


def attnkit_library(build):
    return build / "dispatch" / "libattnkit.a"


def backend(build, name="backend", ggml=None):
    """Builds libggml-attnkit.so by ggml/CMakeLists.txt, with the attnkit of a build folder. Returns the path of the
    library. `name` is the name of the backend's build folder. `ggml` is a folder with ggml's headers. The
    default is the folder of the pinned ggml."""
    folder = build / "llamacpp" / name
    llamacpp.run("cmake", "cmake", "-S", ROOT / "ggml", "-B", folder,
                 f"-DGGML_SOURCE={ggml or llamacpp.source() / 'ggml'}",
                 f"-DATTNKIT_LIBRARY={attnkit_library(build)}")
    llamacpp.run("the backend's build", "cmake", "--build", folder)
    return folder / "libggml-attnkit.so"


def output(*command, **environment):
    """Runs a program. Returns its exit status, stdout and stderr. The program's environment has only PATH and
    `environment`."""
    done = subprocess.run([str(word) for word in command], text=True, errors="replace",
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={"PATH": "/usr/bin:/bin", **environment})
    return done.returncode, done.stdout, done.stderr
