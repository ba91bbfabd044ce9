#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs several sequences in one context of llama.cpp with the backend for ggml, and each sequence alone, and compares
the bits of the logits (sequences.cpp). ggml is built without llamafile, so that products of many rows have the bits of
products of single rows.

    tests/interop/llamacpp/sequences.py [BUILD]     prints TAP
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools" / "llamacpp"))

import builds  # noqa: E402


def main():
    build = Path(sys.argv[1] if len(sys.argv) > 1 else builds.ROOT / "build")
    program = builds.model_program(build, "tests/interop/llamacpp/sequences.cpp")
    status, out, log = builds.output(program, GGML_BACKEND_PATH=str(builds.backend(build)),
                                     LD_LIBRARY_PATH=str(builds.libraries(plain=True)))
    if "loaded ATTNKIT backend" not in log or "left to the CPU" in log:
        sys.exit(f"sequences.py: the backend did not compute every operator\n{log}")
    print(out if status == 0 else out + log, end="")
    return status


if __name__ == "__main__":
    sys.exit(main())
