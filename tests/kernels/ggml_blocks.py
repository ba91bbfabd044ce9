#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes ggml_blocks.h: some numbers, the blocks into which ggml's reference converts the numbers, and the numbers
into which the reference converts these blocks back.

    echo 'int ggml_abort, ggml_row_size, ggml_type_name, ggml_type_size;' > absent.c
    gcc -O1 -ffp-contract=off -fPIC -shared -I. -I../include ggml-quants.c absent.c -o libquants.so -lm
    python3 tests/kernels/ggml_blocks.py ./libquants.so > tests/kernels/ggml_blocks.h

Run the first two commands in ggml/src of a llama.cpp source tree. Move libquants.so to the root of attnkit's tree, and
run the third command there. absent.c defines the names that ggml-quants.c takes from other files of ggml. The present
ggml_blocks.h was made with ggml 0.25.3, from the source distribution of llama-cpp-python 0.3.36. No test runs this
script: the stored bytes are an independent reference."""

import ctypes
import random
import struct
import sys

# type: (elements of a block, bytes of a block)
TYPES = {"q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24), "iq4_nl": (32, 18),
         "q1_0": (128, 18), "q2_0": (64, 18)}
COUNT = 128


def numbers():
    """Returns four times 32 numbers: ordinary numbers, ties, small numbers, and zeros. The small numbers are so small
    that a block without larger numbers has a subnormal binary16 scale."""
    draw = random.Random(1)
    usual = [draw.uniform(-3.0, 3.0) for _ in range(32)]
    ties = [8.0, -8.0] + [i / 2.0 - 7.5 for i in range(30)]
    tiny = [draw.uniform(-1.0, 1.0) * 2.0 ** -draw.randrange(16, 24) for _ in range(32)]
    zeros = [0.0, -0.0] * 16
    packed = struct.pack(f"<{COUNT}f", *usual, *ties, *tiny, *zeros)
    return (ctypes.c_float * COUNT).from_buffer_copy(packed)


def quantise(library, name, x):
    elements, size = TYPES[name]
    blocks = (ctypes.c_ubyte * (COUNT // elements * size))()
    getattr(library, f"quantize_row_{name}_ref")(x, blocks, ctypes.c_int64(COUNT))
    return blocks


def widen(library, name, blocks):
    out = (ctypes.c_float * COUNT)()
    getattr(library, f"dequantize_row_{name}")(blocks, out, ctypes.c_int64(COUNT))
    return out


def lines(values, each):
    for i in range(0, len(values), each):
        print("    " + " ".join(f"{value}," for value in values[i:i + each]))


def print_words(name, floats):
    print(f"static const uint32_t {name}[{COUNT}] = {{")
    lines([f"0x{word:08x}" for word in struct.unpack(f"<{COUNT}I", bytes(floats))], 8)
    print("};\n")


def main():
    library = ctypes.CDLL(sys.argv[1])
    x = numbers()
    print("/* SPDX-License-Identifier: Apache-2.0\n *\n"
          " * Numbers, the blocks into which ggml's reference converts them, and the numbers that it reads from\n"
          " * these blocks. ggml_blocks.py has written this file; its docstring says how.\n */\n"
          "#ifndef ATTNKIT_TEST_GGML_BLOCKS_H\n#define ATTNKIT_TEST_GGML_BLOCKS_H\n\n"
          f"#include <stdint.h>\n\nenum {{ GGML_NUMBERS = {COUNT} }};\n\n/* clang-format off */")
    print_words("ggml_numbers", x)
    for name in TYPES:
        blocks = quantise(library, name, x)
        print(f"static const uint8_t ggml_{name}[] = {{")
        lines([f"0x{byte:02x}" for byte in blocks], 16)
        print("};\n")
        print_words(f"ggml_{name}_numbers", widen(library, name, blocks))
    print("/* clang-format on */\n\n#endif")


if __name__ == "__main__":
    main()
