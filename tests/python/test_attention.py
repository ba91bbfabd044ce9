# SPDX-License-Identifier: Apache-2.0
"""Tests attention, scaled_dot_product_attention, attention_varlen and merge. Results must agree with float64 within a
bound, or have the bits of the same call by ctypes or of another call."""

import unittest

import attnkit
import ml_dtypes
import numpy as np
from reference import by_ctypes, drawn, library_attention, oracle
# reference.py makes attnkit_structs importable.
from attnkit_structs import ATTEND, BOOL, BOTTOM_RIGHT, CAUSAL, OFFSETS, SCALE_GIVEN, SOFTMAX, UPPER_LEFT, tensor
from attnkit_structs import AttentionArgs, new

B, H, G, L, K, D, E = 2, 4, 2, 20, 150, 64, 48
CLOSE = 2e-6  # tolerance for results of about 1


def inputs(q_len=L, kv_len=K, dtype=np.float32):
    return (drawn(1, B, H, q_len, D, dtype=dtype), drawn(2, B, G, kv_len, D, dtype=dtype),
            drawn(3, B, G, kv_len, E, dtype=dtype))


POSITIONS, KEYS = np.arange(L)[:, None], np.arange(K)[None]


class Attention(unittest.TestCase):
    """Tests options alone, and many options together."""

    def same_bits(self, ours, theirs):
        self.assertEqual(ours.shape, theirs.shape)
        self.assertEqual(ours.tobytes(), theirs.tobytes())

    def check(self, options, fields, expected, flags=0, **more):
        """Makes a call with the Python options `options`. Its result must have the bits of the C call with the fields
        `fields`, and be close to the result of the oracle with the options `expected`."""
        q, k, v = inputs()
        out, lse = attnkit.attention(q, k, v, return_lse=True, **options)
        wanted, wanted_lse = oracle(q, k, v, **expected)
        self.assertLess(np.abs(out - wanted).max(), CLOSE)
        finite = np.isfinite(wanted_lse)
        self.assertLess(np.abs(lse[finite] - wanted_lse[finite]).max(), 1e-5)
        self.assertTrue((lse[~finite] == -np.inf).all())
        c_out, c_lse = library_attention(q, k, v, flags=flags, **fields, **more)
        self.same_bits(out, c_out)
        self.same_bits(lse, c_lse)
        self.same_bits(out, attnkit.attention(q, k, v, threads=3, **options))

    def test_plain(self):
        self.check({}, {}, {})

    def test_causal(self):
        self.check({"causal": "upper-left"}, {"align": UPPER_LEFT}, {"seen": KEYS <= POSITIONS}, flags=CAUSAL)
        self.check({"causal": "bottom-right"}, {"align": BOTTOM_RIGHT},
                   {"seen": KEYS <= POSITIONS + K - L}, flags=CAUSAL)

    def test_q_offsets(self):
        for offsets in (np.array([5, 100]), np.array([5, 100], np.int32), [5, 100]):
            given = np.asarray(offsets)
            self.check({"causal": True, "q_offsets": offsets}, {"align": OFFSETS, "q_offsets": given},
                       {"seen": KEYS <= POSITIONS + given[:, None, None, None]}, flags=CAUSAL)
        self.check({"causal": True, "q_offsets": 7}, {"align": OFFSETS, "q_offsets": np.array([7, 7])},
                   {"seen": KEYS <= POSITIONS + 7}, flags=CAUSAL)

    def test_kv_lens(self):
        lens = np.array([K, 0])
        self.check({"kv_lens": lens}, {"kv_lens": lens}, {"seen": KEYS < lens[:, None, None, None]})
        self.check({"kv_lens": [11, 12]}, {"kv_lens": np.array([11, 12])},
                   {"seen": KEYS < np.array([11, 12])[:, None, None, None]})

    def test_window(self):
        near = (KEYS <= POSITIONS) & (KEYS >= POSITIONS - 9)
        self.check({"causal": "upper-left", "window": (9, 0)}, {"align": UPPER_LEFT, "left": 9, "right": 0},
                   {"seen": near}, flags=CAUSAL)
        self.check({"q_offsets": 0, "window": (None, 3)},
                   {"align": OFFSETS, "q_offsets": np.zeros(2, np.int64), "left": -1, "right": 3},
                   {"seen": KEYS <= POSITIONS + 3})
        self.check({"causal": "upper-left", "window": (4, 0, 2)},
                   {"align": UPPER_LEFT, "left": 4, "right": 0, "keep_first": 2},
                   {"seen": (KEYS <= POSITIONS) & ((KEYS >= POSITIONS - 4) | (KEYS < 2))}, flags=CAUSAL)

    def test_scores(self):
        slopes, sinks = drawn(4, H), drawn(5, H)
        self.check({"softcap": 2.5}, {"softcap": 2.5}, {"softcap": 2.5})
        self.check({"scale": 0.0}, {"scale": 0.0}, {"scale": 0.0}, flags=SCALE_GIVEN)
        self.check({"scale": -0.2}, {"scale": -0.2}, {"scale": -0.2}, flags=SCALE_GIVEN)
        self.check({"sinks": sinks}, {"sinks": sinks}, {"sinks": sinks})
        distance = slopes[:, None, None].astype(float) * (KEYS - POSITIONS)
        self.check({"alibi_slopes": slopes / 16, "causal": "upper-left"},
                   {"alibi_slopes": slopes / 16, "align": UPPER_LEFT},
                   {"bias": distance / 16, "seen": KEYS <= POSITIONS}, flags=CAUSAL)

    def test_masks(self):
        rng = np.random.default_rng(6)
        for shape in ((B, H, L, K), (1, 1, L, K), (L, K), (B, 1, 1, K), (K,), (B, H, L, 1), (H, 1, K)):
            seen = rng.random(shape) < 0.7
            full = np.ascontiguousarray(np.broadcast_to(seen, (B, H, L, K)))
            self.check({"mask": seen}, {"mask": tensor(full, BOOL), "mask_kind": ATTEND}, {"seen": seen})
            bias = drawn(7, *shape)
            full = np.ascontiguousarray(np.broadcast_to(bias, (B, H, L, K)))
            self.check({"bias": bias}, {"bias": full}, {"bias": bias})
            half = bias.astype(np.float16)
            full = np.ascontiguousarray(np.broadcast_to(half, (B, H, L, K)))
            self.check({"bias": half}, {"bias": full}, {"bias": half.astype(float)})

    def test_together(self):
        seen, bias, sinks = drawn(8, B, 1, L, K) < 0.8, drawn(9, H, L, K), drawn(10, H)
        fields = {"mask": tensor(np.ascontiguousarray(np.broadcast_to(seen, (B, H, L, K))), BOOL),
                  "mask_kind": ATTEND, "bias": np.ascontiguousarray(np.broadcast_to(bias, (B, H, L, K))),
                  "sinks": sinks, "softcap": 5.0, "align": BOTTOM_RIGHT, "left": 50, "right": 0,
                  "kv_lens": np.array([150, 75])}
        keys = np.array([150, 75])[:, None, None, None]
        place = POSITIONS + keys - L
        self.check({"mask": seen, "bias": bias, "sinks": sinks, "softcap": 5.0, "causal": "bottom-right",
                    "window": (50, 0), "kv_lens": [150, 75]}, fields,
                   {"bias": bias, "sinks": sinks, "softcap": 5.0,
                    "seen": seen & (KEYS < keys) & (KEYS <= place) & (KEYS >= place - 50)}, flags=CAUSAL)

    def test_dropout(self):
        q, k, v = inputs()
        seeds = np.array([11, 12], np.uint64)
        out = attnkit.attention(q, k, v, dropout=0.5, seeds=seeds, q_offsets=0)
        fields = {"align": OFFSETS, "q_offsets": np.zeros(2, np.int64), "dropout": 0.5}
        self.same_bits(out, library_attention(q, k, v, dropout_seeds=seeds, **fields)[0])
        self.same_bits(attnkit.attention(q, k, v, dropout=0.5, seeds=11, q_offsets=0)[:1], out[:1])
        self.assertGreater(np.abs(out - attnkit.attention(q, k, v)).max(), 0.01)

    def test_weights(self):
        q, k, v = inputs()
        out, lse, weights = attnkit.attention(q, k, v, return_lse=True, return_weights=True)
        self.assertEqual(weights.shape, (B, H, L, K))
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
        c_weights = np.empty_like(weights)
        library_attention(q, k, v, weights=c_weights, kind=SOFTMAX)
        self.same_bits(weights, c_weights)
        scaled = attnkit.attention(q, k, v, return_weights="scaled")[1]
        wanted = q.astype(float) @ np.repeat(k, 2, 1).astype(float).swapaxes(-1, -2) / 8
        self.assertLess(np.abs(scaled - wanted).max(), 1e-5)

    def test_types(self):
        for name in ("float16", "bfloat16"):
            dtype = np.dtype(getattr(ml_dtypes, name, name))
            q, k, v = inputs(dtype=dtype)
            out, lse = attnkit.attention(q, k, v, return_lse=True)
            self.assertEqual(out.dtype, dtype)
            wanted = oracle(*(x.astype(np.float64) for x in (q, k, v)))[0]
            self.assertLess(np.abs(out.astype(float) - wanted).max(), 0.01)
            bits = [x.view(np.uint16) if name == "bfloat16" else x for x in (q, k, v)]
            self.same_bits(out, library_attention(*bits)[0])
            out32 = np.empty((B, H, L, E), np.float32)
            self.assertIs(attnkit.attention(q, k, v, out=out32), out32)
            self.assertLess(np.abs(out32 - wanted).max(), CLOSE)

    def test_dims(self):
        q, k, v = inputs()
        whole = attnkit.attention(q, k, v)
        self.same_bits(attnkit.attention(q[0], k[0], v[0]), whole[0])
        self.same_bits(attnkit.attention(q[0, 0], k[0, 0], v[0, 0]), whole[0, 0])
        five = [np.stack([x, x[::-1]]) for x in (q, k, v)]
        self.same_bits(attnkit.attention(*five)[0], whole)
        self.same_bits(attnkit.attention(*five)[1], whole[::-1])
        seen = drawn(1, 2, 1, 1, L, K) < 0.5
        self.same_bits(attnkit.attention(*five, mask=seen)[1],
                       attnkit.attention(q[::-1], k[::-1], v[::-1], mask=seen[1]))


class Torch(unittest.TestCase):
    """Tests the function with the signature of torch.nn.functional.scaled_dot_product_attention."""

    def test_meaning(self):
        q, k, v = drawn(1, 2, 4, 9, 32), drawn(2, 2, 4, 12, 32), drawn(3, 2, 4, 12, 16)
        sdpa = attnkit.scaled_dot_product_attention
        seen, bias = drawn(4, 9, 12) < 0.5, drawn(5, 2, 1, 9, 12)
        upper = np.arange(12)[None] <= np.arange(9)[:, None]
        for ours, wanted in ((sdpa(q, k, v), oracle(q, k, v)), (sdpa(q, k, v, seen), oracle(q, k, v, seen)),
                             (sdpa(q, k, v, bias), oracle(q, k, v, bias=bias)),
                             (sdpa(q, k, v, is_causal=True), oracle(q, k, v, upper)),
                             (sdpa(q, k, v, None, 0.0, True, scale=0.3), oracle(q, k, v, upper, scale=0.3)),
                             (sdpa(q, k[:, :2], v[:, :2], enable_gqa=True), oracle(q, k[:, :2], v[:, :2]))):
            self.assertLess(np.abs(ours - wanted[0]).max(), CLOSE)

    def test_refuses(self):
        q = drawn(1, 2, 4, 9, 32)
        sdpa = attnkit.scaled_dot_product_attention
        with self.assertRaisesRegex(NotImplementedError, "dropout_p"):
            sdpa(q, q, q, dropout_p=0.1)
        with self.assertRaisesRegex(ValueError, "enable_gqa"):
            sdpa(q, q[:, :2], q[:, :2])
        with self.assertRaisesRegex(ValueError, "attn_mask"):
            sdpa(q, q, q, np.ones((9, 9), bool), is_causal=True)


class Packed(unittest.TestCase):
    """Tests sequences that are packed one after the other."""

    def test_each_is_as_alone(self):
        q, k, v = drawn(1, 30, 4, 64), drawn(2, 41, 2, 64), drawn(3, 41, 2, 32)
        cu_q, cu_k = [0, 9, 9, 30], np.array([0, 16, 20, 41], np.int32)
        out, lse = attnkit.attention_varlen(q, k, v, cu_q, cu_k, causal="bottom-right", return_lse=True)
        self.assertEqual((out.shape, lse.shape), ((30, 4, 32), (4, 30)))
        for i in range(3):
            rows, keys = slice(cu_q[i], cu_q[i + 1]), slice(cu_k[i], cu_k[i + 1])
            alone = attnkit.attention(q[rows].swapaxes(0, 1), k[keys].swapaxes(0, 1), v[keys].swapaxes(0, 1),
                                      causal="bottom-right", return_lse=True)
            self.assertEqual(out[rows].swapaxes(0, 1).tobytes(), alone[0].tobytes())
            self.assertEqual(lse[:, rows].tobytes(), alone[1].tobytes())
        given = np.zeros((30, 4, 32), np.float32)
        self.assertIs(attnkit.attention_varlen(q, k, v, cu_q, cu_k, causal="bottom-right", out=given), given)
        self.assertEqual(given.tobytes(), out.tobytes())

    def test_bits_of_ctypes(self):
        q, k, v = drawn(1, 30, 4, 64), drawn(2, 41, 4, 64), drawn(3, 41, 4, 64)
        cu_q, cu_k = np.array([0, 9, 30]), np.array([0, 20, 41])
        swapped = [np.ascontiguousarray(x.swapaxes(0, 1)) for x in (q, k, v)]
        out = np.empty_like(swapped[0])
        by_ctypes(new(AttentionArgs, batch=2, q_heads=4, kv_heads=4, q_len=30, kv_len=41, head_dim=64, value_dim=64,
                      q=swapped[0], k=swapped[1], v=swapped[2], out=out, cu_seqlens_q=cu_q, cu_seqlens_kv=cu_k))
        ours = attnkit.attention_varlen(q, k, v, cu_q, cu_k)
        self.assertEqual(ours.swapaxes(0, 1).tobytes(), out.tobytes())

    def test_refuses(self):
        q = drawn(1, 6, 2, 32)
        for cu in ([0, 3, 2, 6], [1, 6], [0, 7]):
            with self.assertRaisesRegex(ValueError, "cu_seqlens_q"):
                attnkit.attention_varlen(q, q, q, cu, [0] * (len(cu) - 1) + [6])
        with self.assertRaisesRegex(ValueError, "cu_seqlens_kv"):
            attnkit.attention_varlen(q, q, q, [0, 6], [0, 3, 6])


class Merge(unittest.TestCase):
    """Tests that two parts merge to one result."""

    def test_is_attention_over_all_keys(self):
        q, k, v = inputs()
        whole, whole_lse = oracle(q, k, v)
        parts = [attnkit.attention(q, k[:, :, part], v[:, :, part], return_lse=True)
                 for part in (slice(0, 100), slice(100, K))]
        outs, lses = zip(*parts)
        out, lse = attnkit.merge(list(outs), list(lses), return_lse=True)
        self.assertLess(np.abs(out - whole).max(), CLOSE)
        self.assertLess(np.abs(lse - whole_lse).max(), 1e-5)
        self.assertEqual(attnkit.merge(outs[:1], lses[:1], threads=2).tobytes(), outs[0].tobytes())
        views = attnkit.merge([outs[0][:, :, ::-1], outs[1][:, :, ::-1]], [lses[0][:, :, ::-1], lses[1][:, :, ::-1]])
        self.assertEqual(views.tobytes(), out[:, :, ::-1].tobytes())

    def test_refuses(self):
        out, lse = drawn(1, 2, 3, 4), drawn(2, 2, 3)
        for outs, lses, text in (([], [], "lses"), ([out], [], "lses"), ([out, out[:1]], [lse, lse], r"outs\[1\]"),
                                 ([out], [lse[:1]], "lses")):
            with self.assertRaisesRegex(ValueError, text):
                attnkit.merge(outs, lses)
        with self.assertRaisesRegex(TypeError, r"lses\[0\] is float64"):
            attnkit.merge([out], [lse.astype(float)])


if __name__ == "__main__":
    unittest.main()
