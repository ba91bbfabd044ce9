#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the backend for ggml in unusual cases. odd_ops.cpp runs odd ops. The backend must compute an op with a result
close to the CPU backend's result, or leave the op to the CPU backend and log the reason. graphs.cpp computes graphs
with attention and other ops. Both programs run with a ggml that uses OpenMP, and with a ggml that has its own pool of
threads. Further tests load a backend that was built with headers of another version of ggml.

    tests/interop/llamacpp/odd.py [BUILD]     prints TAP
"""

import itertools
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools" / "llamacpp"))

import builds  # noqa: E402

API = "#define GGML_BACKEND_API_VERSION "


def other_ggml(build, name, file, old, new):
    """Builds the backend with changed headers of the pinned ggml. The headers then look like the headers of another
    version. Returns the path of the backend."""
    source, made = builds.llamacpp.source() / "ggml", build / "llamacpp" / name
    shutil.rmtree(made, ignore_errors=True)
    (made / "src").mkdir(parents=True)
    shutil.copytree(source / "include", made / "include")
    for path in (source / "CMakeLists.txt", *(source / "src").glob("*.h")):
        shutil.copy(path, made / path.relative_to(source))
    text = (made / file).read_text()
    assert text.count(old) == 1, f"{file} must have {old!r} exactly once"
    (made / file).write_text(text.replace(old, new))
    return builds.backend(build, f"backend-{name}", made)


def check_log(number, name, library, *wanted):
    """Checks that the log of test-backend-ops has the wanted words. The backend must not load into ggml, so
    test-backend-ops must list no attention op for the backend."""
    _, out, log = builds.output(builds.test_backend_ops(), "support", "-o", "FLASH_ATTN_EXT", "-b", "ATTNKIT",
                                GGML_BACKEND_PATH=str(library))
    ok = all(words in log for words in wanted) and "FLASH_ATTN_EXT(" not in out
    print(("" if ok else log) + f"{'ok' if ok else 'not ok'} {number} - {name}", flush=True)
    return ok


def run_program(number, build, library, name, plain):
    status, out, log = builds.output(builds.ops_program(build, f"tests/interop/llamacpp/{name}.cpp"), library,
                                     LD_LIBRARY_PATH=str(builds.libraries(plain)))
    failed = [line for line in out.splitlines() if not line.startswith("ok ")]
    ok = status == 0 and len(failed) == 1 and failed[0].startswith("1..")
    print(("" if ok else "\n".join([*failed, log, ""])) +
          f"{'ok' if ok else 'not ok'} {number} - odd: {name} on threads by {'a pool' if plain else 'OpenMP'}",
          flush=True)
    return ok


def main():
    build = Path(sys.argv[1] if len(sys.argv) > 1 else builds.ROOT / "build")
    library = builds.backend(build)
    print("1..7")
    ok = True
    for number, (name, plain) in enumerate(itertools.product(("odd_ops", "graphs"), (False, True)), 1):
        ok &= run_program(number, build, library, name, plain)
    api = (builds.llamacpp.source() / "ggml/src/ggml-backend-impl.h").read_text().split(API)[1].split()[0]
    newer = str(int(api) + 1)
    ok &= check_log(5, "odd: another GGML_BACKEND_API_VERSION is refused, and the log names both versions",
                    other_ggml(build, "other-api", "src/ggml-backend-impl.h", API + api, API + newer),
                    f"(backend: {newer}, current: {api})")
    ok &= check_log(6, "odd: a ggml that numbers its ops in another way is refused",
                    other_ggml(build, "other-ops", "include/ggml.h", "GGML_OP_FLASH_ATTN_EXT,",
                               "GGML_OP_OF_ANOTHER_GGML, GGML_OP_FLASH_ATTN_EXT,"),
                    "built for ggml", "whose tensors, ops or types differ")
    ok &= check_log(7, "odd: tensors of another layout are refused",
                    other_ggml(build, "other-tensors", "include/ggml.h", "int64_t ne[GGML_MAX_DIMS];",
                               "int64_t another; int64_t ne[GGML_MAX_DIMS];"),
                    "built for ggml", "whose tensors, ops or types differ")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
