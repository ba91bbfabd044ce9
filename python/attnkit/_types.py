# SPDX-License-Identifier: Apache-2.0
"""The types of stored elements by name: the number of each type in attnkit.h, and the bytes of a row."""

import numpy

FLOATS = {"float32": 0, "float16": 1, "bfloat16": 2}
BLOCKS = {"q8_0": (4, 34), "q4_0": (5, 18), "q5_0": (7, 22)}  # number, bytes of 32 elements
INT8 = 3
CACHED = [*FLOATS, "int8", *BLOCKS]
MATRICES = [*FLOATS, "q8_0"]


def number_of(name: str, names: list) -> int:
    if name not in names:
        raise ValueError(f"type is {name!r}: must be one of {', '.join(names)}")
    return INT8 if name == "int8" else FLOATS[name] if name in FLOATS else BLOCKS[name][0]


def row_bytes(name: str, elements: int) -> int:
    if name in BLOCKS:
        if elements % 32:
            raise ValueError(f"type is {name!r}: rows of {elements} elements are no whole number of blocks of 32")
        return elements // 32 * BLOCKS[name][1]
    return elements * {"float32": 4, "int8": 1}.get(name, 2)


def aligned_bytes(count: int) -> numpy.ndarray:
    """Returns `count` bytes of new memory whose address is a multiple of 64."""
    memory = numpy.empty(count + 64, numpy.uint8)
    start = -memory.ctypes.data % 64
    return memory[start:start + count]
