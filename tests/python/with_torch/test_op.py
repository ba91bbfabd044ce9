# SPDX-License-Identifier: Apache-2.0
"""Tests attnkit.torch.attention and attnkit.torch.scaled_dot_product_attention. Results of attnkit.torch.attention must
have the bits of attnkit.attention on arrays. Gradients must be close to PyTorch's gradients. A call that cannot compute
a gradient must raise an error that names the cause. Wrong arguments must be refused."""

import unittest

import attnkit
import attnkit.torch
import numpy as np
import torch
from attnkit.torch import attention
from formula import TYPES, drawn, drawn_qkv, formula, with_gradients

OP = torch.ops.attnkit.attention.default
PLAIN = (None, None, False, 0, None, None, False, -1, -1, 0, 0.0, None, None, None)  # the options from mask to scale


def as_array(value):
    return value.numpy() if torch.is_tensor(value) else value


class SameBits(unittest.TestCase):
    """Compares results with attnkit.attention, with other calls of attnkit.torch.attention, or with the formula."""

    def options(self):
        mask, bias = drawn(4, 2, 1, 5, 7) < 0.6, drawn(5, 4, 5, 7)
        slopes, sinks = drawn(6, 4).abs(), drawn(7, 4)
        lens = torch.tensor([3, 7])
        yield from ({}, {"scale": 0.0}, {"scale": -0.4}, {"softcap": 2.0}, {"sinks": sinks}, {"mask": mask},
                    {"mask": mask[0, 0]}, {"mask": mask[..., :1]}, {"mask": mask[:, :, 0, 0, None, None]},
                    {"bias": bias}, {"bias": bias[:, :, :1]}, {"bias": bias.half()}, {"bias": bias.mT.contiguous().mT},
                    {"mask": mask, "bias": bias}, {"kv_lens": lens}, {"kv_lens": lens.int()})
        for causal in ("upper-left", "bottom-right"):
            yield {"causal": causal}
            yield {"causal": causal, "window": (2, 0)}
            yield {"causal": causal, "window": (None, 1, 2), "alibi_slopes": slopes}
        yield {"causal": True, "q_offsets": torch.tensor([2, -1])}
        yield {"causal": True, "q_offsets": torch.tensor([9, 2, 8, -1])[1::2]}
        yield {"causal": "bottom-right", "mask": mask, "bias": bias, "kv_lens": lens, "window": (3, None),
               "softcap": 3.0, "sinks": sinks, "alibi_slopes": slopes, "scale": 0.3}

    def check(self, q, k, v, **options):
        out, lse = attention(q, k, v, return_lse=True, **options)
        wanted, wanted_lse = attnkit.attention(*map(as_array, (q, k, v)), return_lse=True,
                                               **{name: as_array(value) for name, value in options.items()})
        self.assertEqual(out.numpy().tobytes(), wanted.tobytes())
        self.assertEqual(lse.numpy().tobytes(), wanted_lse.tobytes())

    def test_options(self):
        for kv_heads in (1, 2, 4):
            for options in self.options():
                with self.subTest(kv_heads=kv_heads, options=options):
                    self.check(*drawn_qkv(kv_heads=kv_heads), **options)

    def test_types(self):
        q, k, v = drawn_qkv()
        self.check(q.half(), k.half(), v.half())
        self.check(q, k.half(), v)
        half = attention(q.bfloat16(), k.bfloat16(), v.bfloat16())
        self.assertEqual(half.dtype, torch.bfloat16)
        whole = attention(q.bfloat16().float(), k.bfloat16().float(), v.bfloat16().float())
        self.assertTrue(torch.equal(half, whole.bfloat16()))

    def test_products_of_bf16(self):
        """Calls with bf16_products, and with both bf16_products and short_weights, have the bits of attnkit.attention,
        compiled or not. These two results differ from each other and from the result without these options."""
        q, k, v = (drawn(i, 2, heads, rows, 64, dtype=torch.bfloat16) for i, heads, rows in
                   ((1, 4, 50), (2, 2, 300), (3, 2, 300)))
        results = [attention(q, k, v, causal="bottom-right")]
        for options in ({"bf16_products": True}, {"bf16_products": True, "short_weights": True}):
            def call(q):
                return attention(q, k, v, causal="bottom-right", **options)
            wanted = torch.empty_like(q)
            attnkit.attention(q, k, v, causal="bottom-right", out=wanted, **options)
            self.assertTrue(torch.equal(call(q), wanted))
            self.assertTrue(torch.equal(torch.compile(call, fullgraph=True)(q), wanted))
            self.assertFalse(any(torch.equal(wanted, other) for other in results))
            results.append(wanted)
        with self.assertRaisesRegex(RuntimeError, "ATTNKIT_BF16_PRODUCTS"):
            attention(q.float(), k, v, bf16_products=True)
        with self.assertRaisesRegex(RuntimeError, "ATTNKIT_SHORT_WEIGHTS"):
            attention(q, k, v, short_weights=True)

    def test_values_of_another_length(self):
        q, k, _ = drawn_qkv()
        self.check(q, k, drawn(4, 2, 4, 7, 24))

    def test_strides(self):
        q, k, v = drawn_qkv()
        dense = attention(q, k, v)
        for turn in (lambda t: t.transpose(1, 2).contiguous().transpose(1, 2), lambda t: t.mT.contiguous().mT,
                     lambda t: torch.stack((t, t), dim=-1)[..., 0],
                     lambda t: t.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1)):
            self.assertTrue(torch.equal(attention(turn(q), turn(k), turn(v)), dense))
        self.assertTrue(torch.equal(attention(torch._neg_view(-q), k, v), dense))
        rows_first = q.transpose(1, 2).contiguous().transpose(1, 2)
        self.assertEqual(attention(rows_first, k, v).stride(), rows_first.stride())

    def test_rows_first(self):
        """The result lies as [batch, rows, heads, elements], whatever the strides of q are, and has the same bits as
        without rows_first."""
        q, k, v = drawn_qkv()
        for q in (q, q.mT.contiguous().mT, q[:, :, :1], q[:, :, :0]):
            for values in (v, drawn(4, *v.shape[:3], 24)):
                out = attention(q, k, values, rows_first=True)
                self.assertTrue(out.transpose(1, 2).is_contiguous())
                self.assertTrue(torch.equal(out, attention(q, k, values)))

    def test_nothing_to_compute(self):
        for batch, q_len, kv_len in ((0, 5, 7), (2, 0, 7), (2, 5, 0)):
            q, k = torch.ones(batch, 4, q_len, 16), torch.ones(batch, 2, kv_len, 16)
            out, lse = attention(q, k, k, return_lse=True, mask=torch.ones(q_len, kv_len, dtype=torch.bool))
            self.assertTrue(torch.equal(out, torch.zeros_like(q)))
            self.assertTrue(torch.equal(lse, torch.full((batch, 4, q_len), -torch.inf)))

    def test_the_signature_of_torch(self):
        """Some of the calls are of kinds that activate() leaves to PyTorch: with a value_dim other than head_dim, with
        2 or 5 dimensions, or with dimensions that are broadcast."""
        ours = attnkit.torch.scaled_dot_product_attention
        q, k, v = drawn_qkv()
        seen = drawn(4, 5, 7) < 0.6
        cases = [((q, k, v), {}), ((q, k, drawn(4, 2, 4, 7, 24)), {"is_causal": True}), ((q[0], k, v), {}),
                 ((q[0, 0], k[0, 0], v[0, 0]), {}), ((q[0], k[0], v[0]), {"attn_mask": seen}),
                 ((q, k[:, :1], v[:, :1]), {}),
                 ((q[None], k[None], v[None]), {"attn_mask": drawn(5, 2, 1, 5, 7), "scale": 0.3}),
                 ((q, k[:, :2], v[:, :2]), {"enable_gqa": True}), ((q, k[:1, :2], v[:, :2]), {"enable_gqa": True})]
        for tensors, options in cases:
            with self.subTest(shapes=[t.shape for t in tensors], options=options):
                torch.testing.assert_close(ours(*tensors, **options), formula(*tensors, **options).float())
        with self.assertRaisesRegex(NotImplementedError, "dropout_p"):
            ours(q, k, v, None, 0.1)
        with self.assertRaisesRegex(ValueError, "attn_mask"):
            ours(q, k, v, seen, is_causal=True)
        with self.assertRaisesRegex(RuntimeError, "float32, float16 or bfloat16"):
            ours(q.double(), k.double(), v.double())
        with self.assertRaises(RuntimeError):
            ours(q, k[:, :2], v[:, :2])

    def test_arrays_take_tensors(self):
        """attnkit.attention takes tensors like other arrays. An `out` may not overlap an input."""
        q, k, v = drawn_qkv()
        out = torch.empty_like(q)
        self.assertIs(attnkit.attention(q, k, v, out=out), out)
        self.assertTrue(torch.equal(out, attention(q, k, v)))
        with self.assertRaisesRegex(ValueError, "overlap"):
            attnkit.attention(q, k, v, out=q)


class Gradients(unittest.TestCase):
    """Compares gradients with PyTorch's gradients of the formula in float64."""

    def cases(self, dtype):
        mask = drawn(4, 5, 7) < 0.5
        mask[:, 0] = True
        mask[2] = False
        bias = drawn(5, 2, 1, 5, 7, dtype=dtype)
        yield {}, {}
        yield {"causal": "upper-left"}, {"is_causal": True}
        yield {"scale": 0.3}, {"scale": 0.3}
        yield {"mask": mask}, {"attn_mask": mask}
        yield {"bias": bias}, {"attn_mask": bias}
        yield {"bias": bias[..., :1], "mask": mask}, {"attn_mask": torch.where(mask, bias[..., :1], -torch.inf)}

    def test_gradients_are_right(self):
        for dtype in TYPES:
            for kv_heads in (4, 2):
                q, k, v = drawn_qkv(dtype, kv_heads=kv_heads)
                for mine, theirs in self.cases(dtype):
                    ours = with_gradients(lambda *t: attention(*t, **mine), q, k, v)
                    wanted = with_gradients(formula, q, k, v, enable_gqa=True, **theirs)
                    for got, exact in zip(ours, wanted):
                        error = (got.double() - exact).abs().max()
                        self.assertLessEqual(error, 16 * torch.finfo(dtype).eps * exact.abs().max(), (dtype, mine))

    def lse_of_formula(self, q, k, mask):
        scores = q.double() @ k.double().mT * q.shape[-1] ** -0.5
        return torch.where(mask, scores, -torch.inf).logsumexp(-1)

    def test_through_lse(self):
        mask = drawn(4, 5, 7) < 0.5
        mask[:, 0] = True
        for with_out in (False, True):
            def by_attnkit(q, k, v):
                out, lse = attention(q, k, v, mask=mask, return_lse=True)
                return lse[..., None] * torch.ones(16) + (out if with_out else 0)

            def by_formula(q, k, v):
                out = formula(q, k, v, attn_mask=mask) if with_out else 0 * v.double().sum()
                return self.lse_of_formula(q, k, mask)[..., None] * torch.ones(16) + out

            for dtype, near in ((torch.float32, 1e-5), (torch.bfloat16, 0.05)):
                tensors = drawn_qkv(dtype)
                for got, exact in zip(with_gradients(by_attnkit, *tensors), with_gradients(by_formula, *tensors)):
                    torch.testing.assert_close(got.double(), exact.double(), rtol=near, atol=near)

    def test_strides(self):
        """Whatever the strides of q, k, v and the gradient of the result, the gradients of q, k and v stay close to the
        gradients of dense tensors."""
        def turned(tensor):
            return tensor.detach().mT.contiguous().mT

        q, k, v = drawn_qkv()
        grad = drawn(6, *q.shape)
        wanted = [t.detach().clone().requires_grad_() for t in (q, k, v)]
        attention(*wanted).backward(grad)
        for turns in range(1, 16):
            tensors = [turned(t) if turns >> i & 1 else t.detach().clone() for i, t in enumerate((q, k, v))]
            for tensor in tensors:
                tensor.requires_grad_()
            attention(*tensors).backward(turned(grad) if turns & 8 else grad)
            for got, exact in zip(tensors, wanted):
                with self.subTest(turns=turns):
                    torch.testing.assert_close(got.grad, exact.grad)

    def test_no_gradient_is_an_error(self):
        """A call that cannot compute gradients refuses tensors that need gradients."""
        q, k, v = (tensor.requires_grad_() for tensor in drawn_qkv())
        lens, four = torch.tensor([3, 7]), torch.zeros(4)
        cases = [({"causal": "bottom-right"}, "bottom-right"), ({"kv_lens": lens}, "kv_lens"),
                 ({"softcap": 1.0}, "softcap"),
                 ({"causal": "upper-left", "window": (1, 0)}, "window"), ({"sinks": four}, "sinks"),
                 ({"causal": "upper-left", "alibi_slopes": four}, "alibi_slopes"),
                 ({"causal": True, "q_offsets": lens}, "q_offsets"),
                 ({"bias": torch.zeros(5, 7, requires_grad=True)}, "bias")]
        for options, words in cases:
            with self.subTest(words), self.assertRaisesRegex(RuntimeError, f"no gradient with .*{words}"):
                attention(q, k, v, **options)
            with torch.no_grad():
                attention(q, k, v, **options)
        half = [tensor.detach().bfloat16().requires_grad_() for tensor in (q, k, v)]
        with self.assertRaisesRegex(RuntimeError, "no gradient with bf16_products"):
            attention(*half, bf16_products=True)
        with self.assertRaisesRegex(RuntimeError, "value_dim"):
            attention(q, k, drawn(1, 2, 4, 7, 8))
        with self.assertRaisesRegex(RuntimeError, "different types"):
            attention(q, k.half(), v)
        with self.assertRaisesRegex(RuntimeError, "sinks"):
            attention(q.detach(), k.detach(), v.detach(), sinks=torch.zeros(4, requires_grad=True))

    def test_no_second_derivative(self):
        q, k, v = (tensor.requires_grad_() for tensor in drawn_qkv())
        first, = torch.autograd.grad(attention(q, k, v).sum(), q, create_graph=True)
        with self.assertRaises(RuntimeError):
            torch.autograd.grad(first.sum(), k)


class Checks(unittest.TestCase):
    """Runs torch.library.opcheck: schema, registration, fake tensors, tracing with dynamic shapes, and gradients."""

    def check(self, *arguments):
        self.assertEqual(set(torch.library.opcheck(OP, arguments).values()), {"SUCCESS"})

    def test_opcheck(self):
        mask, bias = drawn(4, 5, 7) < 0.5, drawn(5, 2, 1, 5, 7)
        for needs_gradients in (False, True):
            for dtype in TYPES:
                tensors = [t.requires_grad_(needs_gradients) for t in drawn_qkv(dtype, kv_heads=2)]
                self.check(*tensors)
                self.check(*tensors, mask, bias, True, 1)
                self.check(*[t.transpose(1, 2).contiguous().transpose(1, 2) for t in tensors])
                self.check(*[t.mT.contiguous().mT for t in tensors])
        q, k, _ = drawn_qkv()
        self.check(q, k, drawn(4, 2, 4, 7, 8), None, None, True, 2, None, torch.tensor([3, 7]), True, 3, 0, 1, 2.0,
                   torch.zeros(4), torch.ones(4), 0.3, True)
        self.check(q, k, k, *PLAIN, True)
        half = [t.bfloat16() for t in (q, k, k)]
        self.check(*half, *PLAIN, False, True, True)


class WrongArguments(unittest.TestCase):
    """Checks that wrong arguments raise errors. Most errors name the argument."""

    def refused(self, words, change=(), error=RuntimeError, **options):
        tensors = dict(zip("qkv", drawn_qkv()))
        tensors.update(change)
        with self.subTest(words), self.assertRaisesRegex(error, words):
            attention(**tensors, **options)

    def test_types(self):
        q, k, v = drawn_qkv()
        for name, tensor in zip("qkv", (q, k, v)):
            for wrong in (torch.float64, torch.int32, torch.bool, torch.complex64):
                self.refused(f"{name} must be float32, float16 or bfloat16", {name: tensor.to(wrong)})
        self.refused("mask must be bool", mask=torch.zeros(5, 7))
        self.refused("bias must be float32", bias=torch.zeros(5, 7, dtype=torch.bool))
        self.refused("bias must be float32", bias=torch.zeros(5, 7, dtype=torch.float64))
        self.refused("kv_lens must be int32 or int64", kv_lens=torch.ones(2))
        self.refused("sinks must be float32", sinks=torch.zeros(4, dtype=torch.float16))
        self.refused("argument 'q'", {"q": q.numpy()})

    def test_shapes(self):
        q, k, v = drawn_qkv()
        self.refused(r"\[batch, heads, rows, elements\]", {"q": q[0]})
        self.refused("q has 5 dimensions", {"q": q[None]})
        self.refused(r"k has the shape \(1, 4, 7, 16\)", {"k": k[:1]})
        self.refused(r"k has the shape \(2, 4, 7, 8\)", {"k": k[..., :8]})
        self.refused(r"v has the shape \(2, 4, 6, 16\)", {"v": v[:, :, :6]})
        self.refused("v has rows of no element", {"v": v[..., :0]})
        self.refused("q_heads|multiple", {"k": k[:, :3], "v": v[:, :3]})
        self.refused("head_dim", {"q": q[..., :0], "k": k[..., :0]})
        self.refused(r"mask has the shape \(3, 1, 5, 7\): must broadcast to \(2, 4, 5, 7\)",
                     mask=torch.ones(3, 1, 5, 7, dtype=torch.bool))
        self.refused("mask has 5 dimensions", mask=torch.ones(1, 1, 1, 5, 7, dtype=torch.bool))
        self.refused(r"bias has the shape \(5, 6\)", bias=torch.ones(5, 6))
        self.refused(r"sinks has the shape \(3,\): must be \(4,\)", sinks=torch.ones(3))
        self.refused(r"kv_lens has the shape \(1, 2\)", kv_lens=torch.tensor([[3, 7]]))

    def test_values(self):
        self.refused(r"kv_lens\[1\] is 8", kv_lens=torch.tensor([3, 8]))
        self.refused("softcap", softcap=-1.0)
        self.refused("scale", scale=float("inf"))
        self.refused("left", causal="upper-left", window=(-2, 0))
        self.refused("window: must be", error=ValueError, causal="upper-left", window=(1,))
        self.refused("window needs to know where", error=ValueError, window=(1, 0))
        self.refused("alibi_slopes needs to know where", error=ValueError, alibi_slopes=torch.ones(4))
        self.refused("causal is 'left'", error=ValueError, causal="left")
        self.refused("causal is True", error=ValueError, causal=True)
        self.refused("causal is 'upper-left': with q_offsets", error=ValueError, causal="upper-left",
                     q_offsets=torch.tensor([0, 0]))

    def test_tensors_on_other_devices(self):
        q, k, v = drawn_qkv()
        self.refused("mask is on the device meta, and q on cpu", mask=torch.ones(5, 7, dtype=torch.bool, device="meta"))
        self.refused("k is on the device meta", {"k": k.to("meta")})
        for tensors in ((q.to_sparse(), k, v), (q, k.to_sparse(), v)):
            with self.assertRaises((RuntimeError, NotImplementedError)):
                attention(*tensors)
        out = attention(*(t.to("meta") for t in (q, k, v)))
        self.assertEqual((out.shape, out.device.type), (q.shape, "meta"))

    def test_negative_strides(self):
        """PyTorch has no negative strides, so torch.from_numpy itself refuses an array with negative strides."""
        with self.assertRaisesRegex(ValueError, "negative"):
            torch.from_numpy(np.ones((2, 4, 5, 16), np.float32)[:, :, ::-1])

    def test_memory_that_is_not_aligned(self):
        raw = torch.zeros(2 * 4 * 5 * 16 * 4 + 1, dtype=torch.uint8)
        q = torch.frombuffer(memoryview(raw.numpy())[1:], dtype=torch.float32).view(2, 4, 5, 16)
        self.refused("align", {"q": q})


if __name__ == "__main__":
    unittest.main()
