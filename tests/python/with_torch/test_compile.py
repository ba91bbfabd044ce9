# SPDX-License-Identifier: Apache-2.0
"""Tests torch.compile with whole graphs and dynamic shapes, torch.export, and AOTInductor. A compiled program must give
the result of eager mode. Results of torch.compile without cpp_wrapper and of torch.export must have the same bits.
Gradients, and results of AOTInductor and cpp_wrapper, need only be close. docs/pytorch.md says which programs run on
attnkit."""

import io
import tempfile
import unittest

import attnkit.torch
import torch
from attnkit.torch import attention
from formula import active, drawn, drawn_qkv, ran
from torch.nn.functional import scaled_dot_product_attention as sdpa

LENGTHS = ((5, 7), (6, 9), (33, 40))


def by_op(q, k, v):
    return attention(q + 1, k, v, causal="upper-left", scale=0.2)


def with_options(q, k, v):
    return attention(q + 1, k, v, causal="bottom-right", window=(3, 0), softcap=3.0, return_lse=True)


def rows_first(q, k, v):
    return attention(q + 1, k, v, rows_first=True)


def by_sdpa(q, k, v):
    return sdpa(q + 1, k, v, is_causal=True, enable_gqa=True)


class Compile(unittest.TestCase):
    """Compiles functions with one call of attention each."""

    def setUp(self):
        torch._dynamo.reset()

    def check(self, function, compiled, q_len, kv_len):
        tensors = drawn_qkv(q_len=q_len, kv_len=kv_len, kv_heads=2)
        with active():
            ours, count = ran(lambda: compiled(*tensors))
            wanted = function(*tensors)
        self.assertEqual(count, 1)
        for mine, eager in zip(ours, wanted):
            self.assertTrue(torch.equal(mine, eager))

    def test_whole_graphs(self):
        for dynamic in (False, True):
            for function in (by_op, with_options, rows_first, by_sdpa):
                torch._dynamo.reset()
                compiled = torch.compile(function, fullgraph=True, dynamic=dynamic)
                for lengths in LENGTHS:
                    with self.subTest(function.__name__, dynamic=dynamic, lengths=lengths):
                        self.check(function, compiled, *lengths)

    def test_a_graph_follows_activation(self):
        """The graph holds torch's op, so that activate() and restore() act on programs that are compiled already."""
        compiled = torch.compile(by_sdpa, fullgraph=True)
        tensors = drawn_qkv()
        theirs, count = ran(lambda: compiled(*tensors))
        self.assertEqual(count, 0)
        self.check(by_sdpa, compiled, 5, 7)
        again, count = ran(lambda: compiled(*tensors))
        self.assertEqual(count, 0)
        self.assertTrue(torch.equal(again, theirs))

    def test_gradients(self):
        for function in (by_op, by_sdpa):
            torch._dynamo.reset()
            compiled = torch.compile(function, fullgraph=True)
            tensors = [tensor.requires_grad_() for tensor in drawn_qkv(kv_heads=2)]
            with self.subTest(function.__name__), active():
                grad = drawn(9, 2, 4, 5, 16)
                mine = torch.autograd.grad(compiled(*tensors), tensors, grad)
                for got, eager in zip(mine, torch.autograd.grad(function(*tensors), tensors, grad)):
                    torch.testing.assert_close(got, eager)

    def test_no_gradient_is_an_error(self):
        tensors = [tensor.requires_grad_() for tensor in drawn_qkv()]
        with self.assertRaisesRegex(Exception, "attnkit: there is no gradient"):
            torch.compile(with_options, fullgraph=True)(*tensors)

    def test_export(self):
        q_len, kv_len = torch.export.Dim("q_len"), torch.export.Dim("kv_len")
        for function in (by_op, with_options, by_sdpa):
            module = torch.nn.Module()
            module.forward = function
            with self.subTest(function.__name__):
                program = torch.export.export(module, drawn_qkv(kv_heads=2), dynamic_shapes={
                    "q": {2: q_len}, "k": {2: kv_len}, "v": {2: kv_len}})
                file = io.BytesIO()
                torch.export.save(program, file)
                file.seek(0)
                loaded = torch.export.load(file).module()
                for lengths in LENGTHS:
                    self.check(function, loaded, *lengths)

    def programs(self, function, tensors):
        yield "cpp_wrapper", torch.compile(function, fullgraph=True, options={"cpp_wrapper": True})
        module = torch.nn.Module()
        module.forward = function
        with tempfile.TemporaryDirectory() as folder:
            file = torch._inductor.aoti_compile_and_package(torch.export.export(module, tensors),
                                                            package_path=folder + "/program.pt2")
            yield "AOTInductor", torch._inductor.aoti_load_package(file)

    def test_ahead_of_time(self):
        """A program of AOTInductor or cpp_wrapper calls PyTorch's function by its address, so activate() does not
        send this call to attnkit. attnkit's own op runs on attnkit."""
        tensors = drawn_qkv(kv_heads=2)
        for function, calls in ((with_options, 1), (by_sdpa, 0)):
            for name, program in self.programs(function, tensors):
                with self.subTest(name, function=function.__name__), active():
                    ours, count = ran(lambda: program(*tensors))
                    for mine, eager in zip(ours, function(*tensors)):
                        torch.testing.assert_close(mine, eager)
                    self.assertEqual(count, calls)


if __name__ == "__main__":
    unittest.main()
