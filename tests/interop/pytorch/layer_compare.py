# SPDX-License-Identifier: Apache-2.0
"""Runs the cases of layers.py. attnkit's layer must agree with PyTorch's result within the bound of layer_reference.py.
This bound is a hundred to ten thousand times as large as real errors. So a result must also be close by a second
measure E, for which no bound is proved. With u = 2^-24:

    E = |error| / (u (|result of attention| |W_O|ᵀ + |b_o|))

The seeds of the cases are fixed. With these seeds, the largest E of a case was between 3.2 and 5.8. A case with its own
limit `close` may have a larger E. The limit of all other cases is 4 times 5.8. If q, k or v were rounded to binary16, E
would be 150 to 1300. E does not count the last rounding of a 16-bit out.
"""

from collections import namedtuple

import numpy as np

import layers
from layer_call import Layer
from layer_reference import expected
from reference import ROUNDING, UNIT

SAME = 1e-11  # largest allowed difference of PyTorch and layer_reference.py in float64, relative to the largest element
CLOSE = 4 * 5.8  # largest allowed E of a case without its own limit

Figures = namedtuple("Figures", "part close relative")


def largest(array):
    """Returns the largest element, but at least 0. NaN counts as infinity."""
    return float(np.nan_to_num(array, nan=np.inf).max(initial=0))


def part_of(got, wanted, bound):
    """Returns the largest quotient of an error and its bound. The quotient of an error of 0 is 0."""
    error = abs(got.astype(np.float64) - wanted)
    with np.errstate(invalid="ignore"):
        return largest(np.where(error == 0, 0, error / bound))


def check_reference(case, wanted):
    """Checks that layer_reference.py, which computes the bound, has PyTorch's results."""
    for theirs, ours in ((case.out, wanted.out), (case.weights_out, wanted.weights),
                         (case.mean_out, wanted.mean)):
        if theirs is not None:
            assert abs(theirs - ours.value).max() <= SAME * abs(ours.value).max(), "reference"


def figures(case, wanted, got):
    out, size = case.out.numpy(), wanted.size.numpy()
    parts = [part_of(got.out, out, wanted.out.error.numpy())]
    for weights, known in ((got.weights, wanted.weights), (got.mean, wanted.mean)):
        parts.append(part_of(weights, known.value.numpy(), known.error.numpy()))
    error = abs(got.out - out)
    relative, least = ROUNDING[case.out_type]
    before = np.maximum(error - relative * abs(out) - least, 0)  # the error before the last rounding
    return Figures(max(parts), largest(before / (UNIT * size)), largest(error) / abs(out).max())


def compare(library, isa, case, wanted):
    """Runs the case twice. Only the first run asks for the weights of the softmax. out and lse must have the same bits
    in the two runs. Returns the figures of the errors of the first run."""
    layer = Layer(library, isa, **case.given)
    got = layer(case.x, weights=True, **case.arguments())
    without = layer(case.x, **case.arguments())
    for name in ("out", "lse"):
        ours, again = getattr(got, name), getattr(without, name)
        assert np.array_equal(ours.view(np.uint32), again.view(np.uint32)), name
    return figures(case, wanted, got)


def run_case(library, isa, make, case, wanted, tap):
    """Runs a case on an instruction set, prints its figures, and reports whether the result is inside the bound and
    close. Returns the figures, with E = 0 for a case with its own limit, and whether the case passed."""
    found, name = compare(library, isa, case, wanted), make.__name__.replace("_", " ")
    ok = found.part <= 1 and found.close <= (case.close or CLOSE)
    print(f"# {isa}: layer: {name}: E {found.close:.1f}, {found.relative:.1e} of the largest number, "
          f"{found.part:.4f} of the bound")
    tap.line(f"{isa}: layer: {name}", ok)
    return found._replace(close=found.close if case.close is None else 0), ok


def run(library, isas, tap):
    results = {isa: [] for isa in isas}
    for make in layers.ALL:
        case = make()
        wanted = expected(case)
        check_reference(case, wanted)
        for isa in isas:
            results[isa].append(run_case(library, isa, make, case, wanted, tap))
    for isa, found in results.items():
        close, part = (max(getattr(figures, name) for figures, _ in found) for name in ("close", "part"))
        print(f"# PyTorch: {isa}: layers: {len(found)} cases, {sum(not ok for _, ok in found)} differ, "
              f"largest E {close:.1f}, largest error {part:.2f} of the bound")
