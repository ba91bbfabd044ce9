# SPDX-License-Identifier: Apache-2.0
"""Runs the samples of PyTorch's own tests: the calls of scaled_dot_product_attention, and of its op for the CPU, in
PyTorch's OpInfo database. Samples with dropout are left out. The types are float32, bfloat16 and float16. Results must
keep to the tolerances of the database, or of assert_close if the database has none. The error of a gradient may be at
most a little more than twice the error of PyTorch's gradient. Each sample is tested twice: by PyTorch's function while
attnkit is active in the registry, and by attnkit.torch.scaled_dot_product_attention. The first test reaches attnkit
only for some samples. The counts of samples are printed."""

import unittest

import attnkit.torch
import torch
from formula import TYPES, active, formula, leaves_for, ran
from torch.nn.functional import scaled_dot_product_attention as sdpa
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db

NAMES = ("nn.functional.scaled_dot_product_attention", "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu")


def tolerances(op, dtype):
    """Returns the tolerances that the database sets for a type, or the tolerances of assert_close."""
    for info in op.decorators:
        for decorator in getattr(info, "decorators", ()):
            if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
                return {"atol": decorator.d[dtype].atol, "rtol": decorator.d[dtype].rtol}
    atol, rtol = torch.testing._comparison._DTYPE_PRECISIONS[dtype][::-1]
    return {"atol": atol, "rtol": rtol}


def first(result):
    return result[0] if isinstance(result, tuple) else result


class OpInfo(unittest.TestCase):
    """Compares with the formula in float64. Every result has to be inside the tolerances.

    PyTorch's gradients do not keep to the tolerances, with attnkit or without. The error of a gradient may be at most
    the sum of three errors: twice the error of PyTorch's gradient, 4 epsilons of the gradient's type, and the largest
    magnitude of a score times the epsilon of float32. The second and the third error are relative to the largest
    magnitude in the exact gradient. The third error occurs because PyTorch's backward op computes the scores again,
    with other roundings than attnkit."""

    def with_gradients(self, function, sample):
        leaves = leaves_for(function, sample.input, *sample.args)
        out = first(function(*leaves, **sample.kwargs))
        grad = torch.linspace(-1, 1, out.numel()).to(out.dtype).view(out.shape)
        return out.detach(), torch.autograd.grad(out, leaves, grad)

    def check(self, sample, ours, theirs, exact, close):
        torch.testing.assert_close(ours[0].double(), exact[0], **close)
        scores = sample.input.double() @ sample.args[0].double().mT * sample.input.shape[-1] ** -0.5
        for mine, own, right in zip(ours[1], theirs[1], exact[1]):
            error, of_torch = ((gradient.double() - right).abs().max() for gradient in (mine, own))
            roundings = torch.finfo(torch.float32).eps * scores.abs().max() + 4 * torch.finfo(mine.dtype).eps
            self.assertLessEqual(error, 2 * of_torch + roundings * right.abs().max())

    def check_sample(self, function, sample, close):
        """Checks one sample. Returns how many attentions attnkit computed by the registry, and how many by its own
        op."""
        exact, theirs = self.with_gradients(formula, sample), self.with_gradients(function, sample)
        with active():
            ours, reached = ran(lambda: self.with_gradients(function, sample))
        self.check(sample, ours, theirs, exact, close)
        ours, by_op = ran(lambda: self.with_gradients(attnkit.torch.scaled_dot_product_attention, sample))
        self.check(sample, ours, theirs, exact, close)
        return reached, by_op

    def samples(self, op, dtype):
        for sample in op.sample_inputs("cpu", dtype):
            if not sample.kwargs.get("dropout_p"):
                yield sample
                yield sample.noncontiguous()

    def test_samples(self):
        ops = [op for op in op_db if op.name in NAMES]
        self.assertEqual(len(ops), len(NAMES))
        for op in ops:
            function = sdpa if op.name == NAMES[0] else torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
            for dtype in TYPES:
                close, samples, counts = tolerances(op, dtype), list(self.samples(op, dtype)), []
                for sample in samples:
                    with self.subTest(op.name, dtype=dtype, shapes=[sample.input.shape, sample.args[0].shape],
                                      options=sample.kwargs):
                        counts.append(self.check_sample(function, sample, close))
                reached, by_op = map(sum, zip(*counts))
                print(f"\n# OpInfo: {op.name.split('.')[-1]}, {dtype}: {len(counts)} of {len(samples)} samples pass; "
                      f"attnkit computed {reached} by the registry and {by_op} by its op", flush=True)
                self.assertEqual(by_op, len(samples))
                self.assertGreater(reached, 0)


if __name__ == "__main__":
    unittest.main()
