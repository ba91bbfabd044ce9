# SPDX-License-Identifier: Apache-2.0
"""Compares an output with the expected output: its type, its shape and its elements. Elements of
bfloat16 may differ by 2 units in the last place. Other elements may differ by the tolerance of ONNX's own runner."""

import ml_dtypes
import numpy

BFLOAT16_ULPS = 2


def ordered(array):
    """Maps bfloat16 numbers to integers. A larger number becomes a larger integer. Both zeros become 0."""
    bits = array.view(numpy.uint16).astype(numpy.int32)
    return numpy.where(bits & 0x8000, 0x8000 - bits, bits)


def close(got, expected, case):
    if expected.dtype != ml_dtypes.bfloat16:
        return numpy.isclose(got, expected, rtol=case.rtol, atol=case.atol, equal_nan=True)
    nan = numpy.isnan(expected)
    near = abs(ordered(got) - ordered(expected)) <= BFLOAT16_ULPS
    return numpy.where(nan, numpy.isnan(got), near & ~numpy.isnan(got))


def difference(got, expected, case):
    """Returns a description of the difference, or None if the output is right."""
    if (got.dtype, got.shape) != (expected.dtype, expected.shape):
        return f"is {got.dtype} {list(got.shape)}, not {expected.dtype} {list(expected.shape)}"
    wrong = ~close(got, expected, case)
    if not wrong.any():
        return None
    where = tuple(int(i) for i in numpy.argwhere(wrong)[0])
    return f"{wrong.sum()} of {wrong.size} elements; {list(where)} is {got[where]}, not {expected[where]}"


def spoilt(array):
    """Yields copies of the array. Each copy has one mistake: in an element, in the shape or in the type."""
    for where in (0, -1):
        for change in (lambda x: x * 1.02 + 0.01, lambda x: x * 0 + numpy.nan):
            copy = array.copy()
            old = copy.flat[where].astype(numpy.float32)
            copy.flat[where] = change(numpy.float32(1) if not numpy.isfinite(old) else old)
            yield copy
    yield array[..., :-1]
    yield array.astype(numpy.float64)


def blind(case):
    """Returns the indices of the outputs for which the comparison would miss a mistake, or would find a difference
    between the expected output and itself."""
    return [i for i, array in enumerate(case.outputs)
            if difference(array, array, case) or
            not all(difference(copy, array, case) for copy in spoilt(array))]
