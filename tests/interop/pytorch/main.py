# SPDX-License-Identifier: Apache-2.0
"""The program that compare.py runs in the virtual environment. It runs the random cases, the layers and the recipes, or
a single random case, and prints TAP."""

import functools
import sys
import traceback
from pathlib import Path

# tools/peers comes last in the path, so that `layers` is this folder's layers.py.
sys.path.append(str(Path(__file__).resolve().parents[3] / "tools" / "peers"))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.attention.flex_attention as flex  # noqa: E402

import call  # noqa: E402
import compare_options  # noqa: E402
import layer_compare  # noqa: E402
import layer_recipes  # noqa: E402
import recipes  # noqa: E402
from cases import KINDS, Case  # noqa: E402
from layer_call import Layer  # noqa: E402
from libraries import with_attnkit  # noqa: E402
from reference import expected  # noqa: E402

# Without this setting, PyTorch compiles flex_attention anew for each shape. With this setting, PyTorch computes the
# plain formula in float64.
flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True

REPORTED = 5  # how many failing cases are described, at most, for each instruction set


class Tap:
    """Prints a TAP line for each test, and counts tests and failures."""

    def __init__(self):
        self.count = self.failures = 0

    def line(self, name, ok):
        self.count += 1
        self.failures += not ok
        print(f"{'ok' if ok else 'not ok'} {self.count} - {name}", flush=True)

    def test(self, name, function):
        try:
            function()
        except Exception:
            print("# " + traceback.format_exc().strip().replace("\n", "\n# "))
            self.line(name, False)
        else:
            self.line(name, True)


def used(error, bound):
    """Returns the largest quotient of an error and its bound. A NaN counts as larger than any bound."""
    with np.errstate(invalid="ignore"):
        part = np.where(error == 0, 0, error / bound)
    return float(np.nan_to_num(part, nan=np.inf).max(initial=0))


def difference(got, wanted):
    """Returns the magnitudes of the elements' differences. The difference of equal infinities is 0."""
    with np.errstate(invalid="ignore"):
        return np.where(got == wanted, 0, abs(got.astype(np.float64) - wanted))


class Figures:
    """The results of all cases on an instruction set."""

    def __init__(self):
        self.cases, self.outside, self.worst = dict.fromkeys(KINDS, 0), 0, 0.0

    def add(self, case, wanted, got):
        """Adds the quotients of a case's errors and bounds. A 16-bit out does not count in `worst`, because its last
        rounding uses nearly the whole bound. Returns the largest quotient of each result as a dict: out, lse, weights.
        """
        self.cases[case.kind] += 1
        parts = {"out": used(difference(got.out, wanted.out), wanted.out_bound),
                 "lse": used(difference(got.lse, wanted.lse), wanted.lse_bound)}
        if case.weights:
            parts["weights"] = used(difference(got.weights, wanted.weights), wanted.weights_bound)
        self.outside += max(parts.values()) > 1
        self.worst = max(self.worst, *(part for name, part in parts.items()
                                       if name != "out" or case.out_type == "float32"))
        return parts


def run_case(library, isa, case, wanted, figures, seed):
    got = call.attention(library, isa, case.q, case.k, case.v, case.out_type, case.weights,
                         **case.fields)
    worst = figures.add(case, wanted, got)
    if max(worst.values()) > 1 and figures.outside <= REPORTED:
        parts = ", ".join(f"{name} {part:.3g}" for name, part in worst.items())
        print(f"# {isa}: {case}\n#     parts of the bound: {parts}\n#     again: "
              f"tests/interop/pytorch/compare.py --seed {seed} --case {case.number} --isa {isa}", flush=True)


def run_cases(options, isas, numbers):
    figures = {isa: Figures() for isa in isas}
    for number in numbers:
        case = Case(options.seed, number)
        wanted = expected(case)
        for isa in isas:
            run_case(options.library, isa, case, wanted, figures[isa], options.seed)
    return figures


def random_cases(options, isas, tap):
    numbers = range(options.cases) if options.case is None else [options.case]
    for isa, figures in run_cases(options, isas, numbers).items():
        cases = ", ".join(f"{count} {kind}" for kind, count in figures.cases.items())
        print(f"# PyTorch: {isa}: {len(numbers)} cases, {figures.outside} differ, largest error "
              f"{figures.worst:.2f} of the bound ({cases})")
        tap.line(f"{isa}: random cases are inside the bound", figures.outside == 0)


def run_recipes(options, isas, tap):
    """Runs the recipes. A recipe takes a function that calls attention, or makes a layer, on one instruction set."""
    for module, given in ((recipes, call.attention), (layer_recipes, Layer)):
        for recipe in module.ALL:
            for isa in isas:
                name = recipe.__name__.replace("_", " ")
                tap.test(f"{isa}: {name}", functools.partial(
                    recipe, functools.partial(given, options.library, isa)))


def main():
    options = compare_options.parse()
    torch.set_grad_enabled(False)
    isas = with_attnkit.isas(options.library, scalar=True)
    if options.isa:
        isas = [isa for isa in isas if isa == options.isa] or sys.exit(
            f"compare.py: --isa {options.isa} cannot run here; these can: {', '.join(isas)}")
    print(f"# PyTorch {torch.__version__}, seed {options.seed}", flush=True)
    tap = Tap()
    random_cases(options, isas, tap)
    if options.case is None:
        layer_compare.run(options.library, isas, tap)
        run_recipes(options, isas, tap)
    print(f"1..{tap.count}")
    return 1 if tap.failures else 0


if __name__ == "__main__":
    sys.exit(main())
