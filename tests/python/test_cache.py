# SPDX-License-Identifier: Apache-2.0
"""Tests KVCache and State. Attention with a State, or with a KVCache of float32, has the bits of attention over all
keys at once. Attention with a KVCache of another type agrees with float64 within a limit. For each type, every layout
that a cache can have gives the same bits."""

import unittest

import attnkit
import numpy as np
from reference import drawn, library_attention, oracle

B, H, G, D, E, K = 2, 4, 2, 64, 32, 70


def layouts():
    for paged in (None, 16, 48):
        for tiled in (False, True):
            yield {"paged": paged, "tiled": tiled}
    yield {"paged": 5}


class KVCache(unittest.TestCase):
    """Tests that a cache attends over the keys that were appended to it."""

    def setUp(self):
        self.q, self.k, self.v = drawn(1, B, H, K, D), drawn(2, B, G, K, D), drawn(3, B, G, K, E)

    def filled(self, cache, *ends):
        for start, end in zip((0, *ends), ends):
            cache.append(self.k[:, :, start:end], self.v[:, :, start:end])
        return cache

    def test_every_layout_has_the_bits_of_arrays(self):
        whole = attnkit.attention(self.q, self.k, self.v, causal="upper-left")
        for layout in layouts():
            cache = attnkit.KVCache(B, G, K + 3, D, E, **layout)
            for start, end in ((0, 50), (50, 51), (51, K)):
                cache.append(self.k[:, :, start:end], self.v[:, :, start:end], threads=2)
                out, lse = cache.attend(self.q[:, :, start:end], return_lse=True)
                self.assertEqual(out.tobytes(), whole[:, :, start:end].tobytes(), layout)
            self.assertEqual(cache.lens.tolist(), [K, K])

    def test_types(self):
        limits = {"float32": 2e-6, "float16": 3e-3, "bfloat16": 3e-2, "int8": 5e-2, "q8_0": 5e-2, "q5_0": 0.25,
                  "q4_0": 0.5}
        wanted = oracle(self.q, self.k, self.v)[0]
        for name, limit in limits.items():
            results = set()
            for layout in layouts():
                if layout.get("tiled") and name in ("q5_0", "q4_0"):
                    continue
                cache = self.filled(attnkit.KVCache(B, G, K, D, E, type=name, **layout), 33, K)
                out = cache.attend(self.q, causal=None)
                self.assertLess(np.abs(out - wanted).max(), limit, name)
                results.add(out.tobytes())
            self.assertEqual(len(results), 1, name)
        half = self.filled(attnkit.KVCache(B, G, K, D, E, type="float16"), K).attend(self.q, causal=None)
        self.assertEqual(half.tobytes(), library_attention(
            self.q, self.k.astype(np.float16), self.v.astype(np.float16))[0].tobytes())
        small = attnkit.KVCache(B, G, K, D, E, type="q4_0").nbytes
        self.assertEqual(small, B * G * K * (D + E) // 32 * 18)

    def test_integers(self):
        """With integers=True the result has the same bits in every layout. The last row has the same bits in a call of
        its own. The result is near the result with integers=False."""
        for name in ("int8", "q8_0"):
            results = set()
            for layout in layouts():
                cache = self.filled(attnkit.KVCache(B, G, K, D, E, type=name, **layout), 33, K)
                plain = cache.attend(self.q)
                self.assertEqual(cache.attend(self.q, integers=False).tobytes(), plain.tobytes())
                out = cache.attend(self.q, integers=True, threads=2)
                self.assertNotEqual(out.tobytes(), plain.tobytes())
                self.assertLess(np.abs(out - plain).max(), 2e-4)
                self.assertEqual(cache.attend(self.q[:, :, -1:], integers=True).tobytes(), out[:, :, -1:].tobytes())
                results.add(out.tobytes())
            self.assertEqual(len(results), 1, name)
        for dims, name, text in (((D, E), "float16", "k.type is 1"), ((48, E), "int8", "k_scale_group is 0")):
            cache = attnkit.KVCache(B, G, K, *dims, type=name)
            cache.append(self.k[..., :dims[0]], self.v)
            with self.assertRaisesRegex(NotImplementedError, f"flags has ATTNKIT_INTEGERS(, but| and) {text}"):
                cache.attend(self.q[..., :dims[0]], integers=True)

    def test_lengths_of_each_sequence(self):
        cache = attnkit.KVCache(B, G, K, D, E, paged=8)
        cache.append(self.k[:, :, :20], self.v[:, :, :20], [20, 7])
        cache.append(self.k[:, :, 20:21], self.v[:, :, 20:21], np.array([1, 0]))
        self.assertEqual(cache.lens.tolist(), [21, 7])
        out = cache.attend(self.q[:, :, :1])
        for b, n in enumerate((21, 7)):
            alone = attnkit.attention(self.q[b, :, :1], self.k[b, :, :n], self.v[b, :, :n])
            self.assertEqual(out[b].tobytes(), alone.tobytes())

    def test_options(self):
        cache = self.filled(attnkit.KVCache(B, G, 100, D, E), K)
        seen, sinks = drawn(4, B, 1, K, K) < 0.7, drawn(5, H)
        options = {"mask": seen, "sinks": sinks, "softcap": 4.0, "window": (30, 0)}
        self.assertEqual(cache.attend(self.q, **options).tobytes(),
                         attnkit.attention(self.q, self.k, self.v, causal="bottom-right", **options).tobytes())
        rows = drawn(6, B, 1, K, 1) < 0.7
        self.assertEqual(cache.attend(self.q, mask=rows).tobytes(),
                         attnkit.attention(self.q, self.k, self.v, mask=rows, causal="bottom-right").tobytes())
        self.assertEqual(cache.attend(self.q[:, :, :2], q_offsets=[5, 6]).tobytes(),
                         attnkit.attention(self.q[:, :, :2], self.k, self.v, causal=True, q_offsets=[5, 6]).tobytes())

    def test_truncate_frees_pages(self):
        cache = self.filled(attnkit.KVCache(B, G, K, D, E, paged=10, pages=14), K)
        with self.assertRaisesRegex(ValueError, "capacity is 70"):
            cache.append(self.k[:, :, :1], self.v[:, :, :1])
        cache.truncate([5, 70])
        cache.append(self.k[:, :, 5:], self.v[:, :, 5:], [65, 0])
        self.assertEqual(cache.attend(self.q).tobytes(),
                         attnkit.attention(self.q, self.k, self.v, causal="bottom-right").tobytes())
        cache.truncate(0)
        self.assertTrue((cache.attend(self.q, causal=None) == 0).all())

    def test_refuses(self):
        for settings, text in (({"type": "q9"}, "type is 'q9'"), ({"paged": 0}, "paged is 0"),
                               ({"paged": 8, "tiled": True}, "paged is 8"), ({"pages": 3}, "pages")):
            with self.assertRaisesRegex(ValueError, text):
                attnkit.KVCache(B, G, K, D, E, **settings)
        with self.assertRaisesRegex(ValueError, "blocks of 32"):
            attnkit.KVCache(B, G, K, 40, type="q8_0")
        with self.assertRaisesRegex(ValueError, "batch is 0"):
            attnkit.KVCache(0, G, K, D)
        cache = attnkit.KVCache(B, G, K, D, E, paged=16, pages=3)
        for kind, text, k, v in ((ValueError, "^k has the shape", self.k[:1, :, :9], self.v[:1, :, :9]),
                                 (ValueError, "^v has the shape", self.k[:, :, :9], self.v[:, :, :9, :9]),
                                 (ValueError, "^v has 8 rows", self.k[:, :, :9], self.v[:, :, :8]),
                                 (TypeError, "^k is float64", self.k[:, :, :9].astype(float), self.v[:, :, :9]),
                                 (MemoryError, "3 free pages", self.k, self.v)):
            with self.assertRaisesRegex(kind, text):
                cache.append(k, v)
        with self.assertRaisesRegex(ValueError, "lens"):
            cache.append(self.k[:, :, :2], self.v[:, :, :2], [3, 0])
        with self.assertRaisesRegex(ValueError, "lens"):
            cache.truncate(1)
        self.assertEqual(cache.lens.tolist(), [0, 0])
        cache.append(self.k[:, :, :40], self.v[:, :, :40], [40, 0])  # all pages are free after the failed calls
        cache.truncate(0)
        cache.append(self.k[:, :, :2], self.v[:, :, :2])
        with self.assertRaisesRegex(ValueError, "^q has the shape .* batch 2"):
            cache.attend(self.q[:1])
        with self.assertRaisesRegex(ValueError, "^q has the shape .* rows of 64"):
            cache.attend(self.q[..., :32])


class State(unittest.TestCase):
    """Tests attention over one part of the keys at a time."""

    def test_has_the_bits_of_one_call(self):
        q, k, v = drawn(1, 1, H, 9, D), drawn(2, 1, G, 1200, D), drawn(3, 1, G, 1200, E)
        sinks = drawn(4, H)
        whole = attnkit.attention(q, k, v, sinks=sinks, softcap=9.0, return_lse=True)
        state = attnkit.State()
        for start, end in ((0, 512), (512, 1024), (1024, 1200)):
            state.update(q, k[:, :, start:end], v[:, :, start:end], softcap=9.0, threads=2)
            state = attnkit.State.from_arrays([x.copy() for x in state.arrays], state.keys)
        self.assertEqual(state.keys, 1200)
        for ours, wanted in zip(state.result(sinks=sinks, return_lse=True), whole):
            self.assertEqual(ours.tobytes(), wanted.tobytes())
        self.assertEqual(state.result(np.float16, sinks=sinks).tobytes(), whole[0].astype(np.float16).tobytes())
        causal = attnkit.State()
        for start, end in ((0, 512), (512, 1200)):
            causal.update(q, k[:, :, start:end], v[:, :, start:end], causal=True, q_offsets=700)
        self.assertEqual(causal.result().tobytes(),
                         attnkit.attention(q, k, v, causal=True, q_offsets=700).tobytes())

    def test_refuses(self):
        q, k = drawn(1, 1, 2, 3, D), drawn(2, 1, 2, 100, D)
        state = attnkit.State()
        with self.assertRaisesRegex(ValueError, "no part"):
            state.result()
        state.update(q, k, k)
        with self.assertRaisesRegex(ValueError, "multiple of 512"):
            state.update(q, k, k)
        other = attnkit.State.from_arrays(state.arrays, 512)
        with self.assertRaisesRegex(ValueError, "^state_in is of another call"):
            other.update(q[:, :, :2], k, k)
        with self.assertRaisesRegex(TypeError, "arrays"):
            attnkit.State.from_arrays([state.arrays[0]] * 3, 0)


if __name__ == "__main__":
    unittest.main()
