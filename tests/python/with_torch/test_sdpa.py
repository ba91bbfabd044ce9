# SPDX-License-Identifier: Apache-2.0
"""Tests PyTorch's scaled_dot_product_attention on attnkit. The calls that attnkit computes must agree with PyTorch's
own functions, in forward and backward. All other calls must have PyTorch's own bits, or PyTorch's own errors."""

import os
import subprocess
import sys
import threading
import unittest

import attnkit.torch
import torch
from formula import TYPES, active, drawn, drawn_qkv, formula, ran, with_gradients
from torch.nn.attention import activate_flash_attention_impl, register_flash_attention_impl
from torch.nn.functional import scaled_dot_product_attention as sdpa

FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def masks(dtype):
    """Returns the options of calls: all kinds of masks, and scales."""
    seen = drawn(4, 5, 7) < 0.5
    seen[:, 0] = True
    seen[2] = False  # a row that sees no key
    return [{}, {"is_causal": True}, {"scale": 0.3}, {"scale": -0.3}, {"is_causal": True, "scale": 0.7},
            {"attn_mask": seen}, {"attn_mask": seen[None, None, :, :1].expand(1, 1, 5, 7)},
            {"attn_mask": drawn(5, 5, 7, dtype=dtype)}, {"attn_mask": drawn(6, 2, 1, 5, 7, dtype=dtype)},
            {"attn_mask": drawn(7, 2, 4, 5, 1, dtype=dtype)}, {"attn_mask": drawn(8, 1, 1, 1, 7, dtype=dtype)},
            {"attn_mask": torch.where(seen, 0.0, -torch.inf).to(dtype)},
            {"attn_mask": drawn(9, 2, 4, 7, 5).mT.to(dtype)}]


class Reached(unittest.TestCase):
    """Calls that attnkit computes."""

    def check(self, dtype, kv_heads, options):
        """Checks that attnkit computes the call, and that the result and each gradient have PyTorch's type, shape and
        strides. The error of the result, and of each gradient, has a limit: the larger of twice the error of PyTorch's
        functions, and 8 epsilons of the type times the largest magnitude in the exact tensor."""
        q, k, v = drawn_qkv(dtype, kv_heads=kv_heads)
        wanted = with_gradients(formula, q, k, v, enable_gqa=True, **options)
        theirs = with_gradients(sdpa, q, k, v, enable_gqa=True, **options)
        with active():
            ours, count = ran(lambda: with_gradients(sdpa, q, k, v, enable_gqa=True, **options))
        self.assertEqual(count, 1)
        for mine, own, exact in zip(ours, theirs, wanted):
            self.assertEqual((mine.dtype, mine.shape, mine.stride()), (own.dtype, own.shape, own.stride()))
            error, of_torch = ((tensor.double() - exact).abs().max() for tensor in (mine, own))
            few = 8 * torch.finfo(dtype).eps * exact.abs().max()
            self.assertLessEqual(error, max(2 * of_torch, few))

    def test_results_and_gradients(self):
        for dtype in TYPES:
            for kv_heads in (4, 2, 1):
                for options in masks(dtype):
                    with self.subTest(dtype=dtype, kv_heads=kv_heads, options=options):
                        self.check(dtype, kv_heads, options)

    def test_three_dimensions(self):
        q, k, v = drawn_qkv()
        with active():
            out, count = ran(lambda: sdpa(q[0], k[0], v[0]))
            self.assertTrue(torch.equal(out, sdpa(q, k, v)[0]))
        self.assertEqual(count, 1)

    def test_a_row_that_sees_no_key(self):
        q, k, v = drawn_qkv()
        seen = torch.ones(5, 7, dtype=torch.bool)
        seen[2] = False
        with active():
            out, dq, dk, dv = with_gradients(sdpa, q, k, v, attn_mask=seen)
            lse = FLASH(q, k, v, attn_mask=torch.where(seen, 0.0, -torch.inf))[1]
        self.assertFalse(out[:, :, 2].any() or dq[:, :, 2].any() or lse[:, :, 2].any())
        self.assertTrue(all(tensor.isfinite().all() for tensor in (out, dq, dk, dv)))

    def layouts(self):
        yield "rows first", lambda seed: drawn(seed, 2, 5, 4, 16).transpose(1, 2)
        yield "part of a row", lambda seed: drawn(seed, 2, 5, 4, 48)[..., 16:32].transpose(1, 2)
        yield "all dimensions turned", lambda seed: drawn(seed, 5, 4, 2, 16).permute(2, 1, 0, 3)
        yield "one row repeated", lambda seed: drawn(seed, 1, 1, 5, 16).expand(2, 4, 5, 16)
        yield "every other row", lambda seed: drawn(seed, 2, 4, 10, 16)[:, :, ::2]
        yield "a negative view", lambda seed: torch._neg_view(drawn(seed, 2, 4, 5, 16))
        yield "columns first", lambda seed: drawn(seed, 2, 4, 16, 5).mT
        yield "every other column", lambda seed: drawn(seed, 2, 4, 5, 32)[..., ::2]
        yield "one column", lambda seed: drawn(seed, 2, 4, 5, 3)[..., 1:2]

    def test_strides(self):
        """Whatever the strides of q, k and v, results have the bits of contiguous tensors. The strides of the results
        are the strides of PyTorch's result, on tensors and on fake tensors."""
        for name, make in self.layouts():
            q, k, v = make(1), make(2), make(3)
            theirs = FLASH(q, k, v)
            with torch._subclasses.FakeTensorMode() as mode:
                fakes = FLASH(*map(mode.from_tensor, (q, k, v)))
            with self.subTest(name), active():
                dense = FLASH(*(torch.empty(t.shape).copy_(t) for t in (q, k, v)))
                ours, count = ran(lambda: FLASH(q, k, v))
                self.assertEqual(count, 1)
                for i in range(2):
                    self.assertTrue(torch.equal(ours[i], dense[i]))
                    self.assertEqual(ours[i].stride(), theirs[i].stride())
                    self.assertEqual(ours[i].stride(), fakes[i].stride())

    def test_modes(self):
        q, k, v = drawn_qkv()
        with active():
            expected = sdpa(q, k, v)
            for mode in (torch.no_grad, torch.inference_mode):
                with mode():
                    out, count = ran(lambda: sdpa(q, k, v))
                self.assertTrue(torch.equal(out, expected))
                self.assertEqual(count, 1)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out, count = ran(lambda: sdpa(q, k, v))
            self.assertEqual((out.dtype, count), (torch.bfloat16, 1))

    def test_modules(self):
        """In training or with gradients, MultiheadAttention runs on attnkit if it returns no weights
        (need_weights=False). Layers that contain such a MultiheadAttention run on attnkit, too."""
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        x = drawn(1, 2, 9, 32)
        theirs = layer(x)
        with active():
            ours, count = ran(lambda: layer(x))
        self.assertEqual(count, 1)
        torch.testing.assert_close(ours, theirs)

    def test_any_number_of_threads_has_the_same_bits(self):
        q, k, v = drawn_qkv(q_len=70, kv_len=3000, head_dim=64)
        before = torch.get_num_threads()
        try:
            with active():
                found = []
                for threads in (1, 2, 3, 7):
                    torch.set_num_threads(threads)
                    found.append(sdpa(q, k, v))
        finally:
            torch.set_num_threads(before)
        self.assertTrue(all(torch.equal(found[0], out) for out in found))

    def test_calls_of_several_threads(self):
        q, k, v = drawn_qkv(q_len=70, kv_len=900, head_dim=64)
        wrong = []
        with active():
            expected = sdpa(q, k, v)

            def work():
                for _ in range(10):
                    if not torch.equal(sdpa(q, k, v), expected):
                        wrong.append(1)
            workers = [threading.Thread(target=work) for _ in range(4)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        self.assertEqual(wrong, [])


class LeftToTorch(unittest.TestCase):
    """Calls that attnkit does not compute. Their results have the bits of PyTorch without attnkit."""

    def same_bits(self, function):
        torch.manual_seed(1)
        theirs = function()
        with active():
            torch.manual_seed(1)
            ours, count = ran(function)
        self.assertEqual(count, 0)
        self.assertEqual(type(ours), type(theirs))
        for mine, own in zip(ours.unbind(), theirs.unbind()) if ours.is_nested else [(ours, theirs)]:
            self.assertTrue(torch.equal(mine, own))

    def test_float64(self):
        q, k, v = (tensor.double().requires_grad_() for tensor in drawn_qkv(kv_heads=2))
        self.same_bits(lambda: sdpa(q, k, v, enable_gqa=True, is_causal=True))
        self.same_bits(lambda: torch.autograd.grad(sdpa(q, k, v, enable_gqa=True).sum(), k)[0])

    def test_gradients_of_a_mask(self):
        q, k, v = drawn_qkv()
        mask = drawn(4, 5, 7).requires_grad_()
        self.same_bits(lambda: torch.autograd.grad(sdpa(q, k, v, attn_mask=mask).square().sum(), mask)[0])

    def test_dropout(self):
        q, k, v = drawn_qkv()
        self.same_bits(lambda: sdpa(q, k, v, dropout_p=0.4))
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.3, batch_first=True)
        self.same_bits(lambda: layer(drawn(1, 2, 9, 32)))

    def test_nested_tensors(self):
        heads_first = torch.nested.nested_tensor([drawn(1, 4, 3, 16), drawn(2, 4, 6, 16)])
        rows_first = torch.nested.nested_tensor([drawn(1, 3, 4, 16), drawn(2, 6, 4, 16)], layout=torch.jagged)
        for nested in (heads_first, rows_first.transpose(1, 2)):
            self.same_bits(lambda: sdpa(nested, nested, nested))

    def test_values_of_another_length(self):
        q, k, _ = drawn_qkv()
        self.same_bits(lambda: sdpa(q, k, drawn(4, 2, 4, 7, 24)))

    def test_other_dimensions(self):
        q, k, v = drawn_qkv()
        self.same_bits(lambda: sdpa(q[0], k, v))
        self.same_bits(lambda: sdpa(q[0, 0], k[0, 0], v[0, 0]))

    def test_multihead_attention_in_evaluation(self):
        layer = torch.nn.MultiheadAttention(32, 4, batch_first=True).eval()
        x = drawn(1, 2, 9, 32)
        with torch.no_grad():
            self.same_bits(lambda: layer(x, x, x, need_weights=False)[0])

    def test_nothing_to_compute(self):
        for batch, q_len, kv_len in ((0, 5, 7), (2, 0, 7), (2, 5, 0), (0, 0, 0)):
            q, k = torch.ones(batch, 4, q_len, 16), torch.ones(batch, 4, kv_len, 16)
            with self.subTest(batch=batch, q_len=q_len, kv_len=kv_len):
                self.same_bits(lambda: sdpa(q, k, k))
                with active():  # without attnkit, FLASH divides by 0 here, and ends the process
                    out, lse = FLASH(q, k, k)
                self.assertTrue(torch.equal(out, torch.zeros_like(q)))
                self.assertTrue(torch.equal(lse, torch.zeros(batch, 4, q_len)))

    def test_errors_equal_the_errors_of_torch(self):
        """A call that PyTorch's function refuses is refused in PyTorch's words, even while attnkit is active."""
        q, k, v = drawn_qkv()
        for call, words in ((lambda: FLASH(q, k, v, 0.3), "dropout"),
                            (lambda: FLASH(q, k, v, attn_mask=torch.ones(5, 7, dtype=torch.bool)), "same data type"),
                            (lambda: FLASH(q, k, v, attn_mask=torch.ones(7)), "mask dim"),
                            (lambda: FLASH(q, k, drawn(1, 2, 4, 7, 8)), "same head size"),
                            (lambda: FLASH(q[None], k[None], v[None]), "4"),
                            (lambda: FLASH(q, k, v, attn_mask=torch.ones(1, 1, 1, 5, 7)), "mask dim"),
                            (lambda: FLASH(q.int(), k.int(), v.int()), "[Ff]loat|not implemented|data type"),
                            (lambda: sdpa(q, k.half(), v), "same dtype")):
            with self.assertRaisesRegex(RuntimeError, words):
                call()
            with active(), self.assertRaisesRegex(RuntimeError, words):
                call()


class Registry(unittest.TestCase):
    """Tests activate() and restore()."""

    def test_on_and_off(self):
        q, k, v = drawn_qkv()
        theirs = sdpa(q, k, v)
        for _ in range(3):
            attnkit.torch.activate()
            attnkit.torch.activate()
            self.assertTrue(attnkit.torch.is_active())
            self.assertEqual(torch.nn.attention.current_flash_attention_impl(), "attnkit")
            self.assertEqual(ran(lambda: sdpa(q, k, v))[1], 1)
            attnkit.torch.restore()
            attnkit.torch.restore()
            self.assertFalse(attnkit.torch.is_active())
            out, count = ran(lambda: sdpa(q, k, v))
            self.assertEqual(count, 0)
            self.assertTrue(torch.equal(out, theirs))

    def test_pytorch_lists_attnkit(self):
        self.assertIn("attnkit", torch.nn.attention.list_flash_attention_impls())

    def test_another_implementation(self):
        """Torch's registry has at most one active implementation. restore() ends attnkit's activation and no other."""
        removed = []
        handle = type("Handle", (), {"remove": lambda self: removed.append(1)})
        register_flash_attention_impl("other", register_fn=lambda: handle())
        attnkit.torch.activate()
        activate_flash_attention_impl("other")
        q, k, v = drawn_qkv()
        self.assertEqual(ran(lambda: sdpa(q, k, v))[1], 0)
        attnkit.torch.restore()
        self.assertEqual((torch.nn.attention.current_flash_attention_impl(), removed), ("other", []))
        attnkit.torch.activate()
        self.assertEqual(removed, [1])
        attnkit.torch.restore()

    def test_nothing_is_printed(self):
        """Import, activation and a call print nothing, not even a warning."""
        code = ("import attnkit.torch, torch; attnkit.torch.activate(); q = torch.ones(1, 1, 2, 8);"
                "torch.nn.functional.scaled_dot_product_attention(q, q, q); attnkit.torch.restore()")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual((done.stdout, done.stderr), ("", ""))

    def test_unknown_instruction_set(self):
        code = ("import attnkit.torch, torch; attnkit.torch.activate(); q = torch.ones(1, 1, 2, 8)\n"
                "try:\n    torch.nn.functional.scaled_dot_product_attention(q, q, q)\n"
                "except RuntimeError as error:\n    print(error)")
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "ATTNKIT_ISA": "mmx"},
                              capture_output=True, text=True, check=True)
        self.assertRegex(done.stdout, "attnkit: ATTNKIT_BAD_ISA: .*mmx")


if __name__ == "__main__":
    unittest.main()
