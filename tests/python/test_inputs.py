# SPDX-License-Identifier: Apache-2.0
"""Tests arrays of all kinds: views that are not copied, arrays that must be copied, and arrays that the package refuses
with a message that names the argument."""

import gc
import sys
import unittest

import attnkit
import ml_dtypes
import numpy as np
from attnkit import _core
from reference import drawn

Q, K, V = drawn(1, 2, 4, 7, 64), drawn(2, 2, 2, 33, 64), drawn(3, 2, 2, 33, 64)
RESULT = attnkit.attention(Q, K, V).tobytes()


class Foreign:
    """An array that supports only DLPack, as if another library had made it."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack__(self, **more):
        return self.array.__dlpack__(**more)

    def __dlpack_device__(self):
        return self.device


def copies_of(call):
    before = _core.copied_bytes()
    return call(), _core.copied_bytes() - before


class Views(unittest.TestCase):
    """Tests that the result does not depend on how the numbers lie in memory."""

    def check(self, q, k, v, copied=0, **options):
        result, bytes = copies_of(lambda: attnkit.attention(q, k, v, **options))
        self.assertEqual(result.tobytes(), RESULT)
        self.assertEqual(bytes, copied)

    def test_rows_of_any_stride_are_not_copied(self):
        self.check(Q, K, V)
        self.check(*(np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (Q, K, V)))
        wide = np.full((2, 4, 7, 100), np.nan, np.float32)
        wide[..., 5:69] = Q
        self.check(wide[..., 5:69], K, V)
        self.check(Q, np.ascontiguousarray(K[:, ::-1])[:, ::-1], np.ascontiguousarray(V[:, :, ::-1])[:, :, ::-1])
        self.check(np.ascontiguousarray(Q[::-1])[::-1], K, V)
        joint = np.concatenate([K, V], -1)
        self.check(Q, joint[..., :64], joint[..., 64:])

    def test_stride_0(self):
        one = attnkit.attention(Q, np.ascontiguousarray(np.broadcast_to(K[:1], K.shape)), V)
        self.assertEqual(attnkit.attention(Q, np.broadcast_to(K[:1], K.shape), V).tobytes(), one.tobytes())

    def test_elements_that_are_not_adjacent_are_copied(self):
        self.check(np.asfortranarray(Q), K, V, Q.nbytes)
        self.check(Q, np.repeat(K, 2, -1)[..., ::2], V, K.nbytes)
        self.check(Q, K, np.ascontiguousarray(V[..., ::-1])[..., ::-1], V.nbytes)
        same = np.broadcast_to(np.float32(0.5), K.shape)
        dense = attnkit.attention(Q, np.full(K.shape, 0.5, np.float32), V)
        self.assertEqual(attnkit.attention(Q, same, V).tobytes(), dense.tobytes())

    def test_addresses_that_are_not_aligned_are_copied(self):
        raw = np.zeros(Q.nbytes + 1, np.uint8)
        raw[1:] = np.frombuffer(Q.tobytes(), np.uint8)
        self.check(raw[1:].view(np.float32).reshape(Q.shape), K, V, Q.nbytes)

    def test_strides_that_are_no_whole_elements_are_copied(self):
        records = np.zeros(Q.shape[:3], [("row", np.float32, 64), ("gap", np.uint8)])
        records["row"] = Q
        self.check(records["row"], K, V, Q.nbytes)

    def test_read_only_inputs(self):
        for x in (Q, K, V):
            x.flags.writeable = False
        self.addCleanup(lambda: [x.setflags(write=True) for x in (Q, K, V)])
        self.check(Q, K, V)

    def test_dlpack(self):
        self.check(Foreign(Q), Foreign(K), Foreign(V.swapaxes(0, 1).copy().swapaxes(0, 1)))
        out = np.empty(Q.shape, np.float32)
        foreign = Foreign(out)
        self.assertIs(attnkit.attention(Q, K, V, out=foreign), foreign)
        self.assertEqual(out.tobytes(), RESULT)

    def test_read_only_by_dlpack(self):
        """Before 2.1, NumPy exports no read-only array by DLPack."""
        fixed = Q.copy()
        fixed.flags.writeable = False
        if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
            with self.assertRaisesRegex(ValueError, "^out is read-only"):
                attnkit.attention(Q, K, V, out=Foreign(fixed))
            self.check(Foreign(fixed), K, V)
            return
        for name, options in (("out", {"q": Q, "out": Foreign(fixed)}), ("q", {"q": Foreign(fixed)})):
            with self.assertRaisesRegex(TypeError, f"^{name} cannot be taken by DLPack: Cannot export readonly array"):
                attnkit.attention(k=K, v=V, **options)

    def test_buffers_without_numpy(self):
        memory = memoryview(Q.tobytes()).cast("f", Q.shape)
        self.check(memory, K, V)

    def test_out_in_any_rows(self):
        out = np.full((2, 7, 4, 80), 9, np.float32)
        view = out[..., 8:72].swapaxes(1, 2)
        self.assertIs(attnkit.attention(Q, K, V, out=view), view)
        self.assertEqual(view.tobytes(), RESULT)
        self.assertTrue((out[..., :8] == 9).all() and (out[..., 72:] == 9).all())

    def test_objects_freed_early(self):
        for _ in range(20):
            result = attnkit.attention(Q.copy(), K.copy()[:, :, ::1], np.asfortranarray(V), mask=np.ones((7, 33), bool))
            gc.collect()
            self.assertEqual(result.tobytes(), RESULT)

    def test_no_array_is_kept(self):
        """Neither a call that succeeds nor a call that fails keeps a reference, which would keep the memory."""
        q, k, out = Q.copy(), K.copy(), np.empty(Q.shape, np.float32)
        foreign, before = Foreign(q), [sys.getrefcount(x) for x in (q, k, out)]
        for _ in range(5):
            attnkit.attention(q, k, V, out=out)
            attnkit.attention(foreign, Foreign(k), V, out=Foreign(out))
            for wrong in ({"mask": np.ones((3, 1, 7, 33), bool)}, {"kv_lens": [1, 34]}, {"threads": 0}):
                with self.assertRaises(ValueError):
                    attnkit.attention(foreign, k, V, out=out, **wrong)
        gc.collect()
        self.assertEqual([sys.getrefcount(x) for x in (q, k, out)], before)

    def test_options_in_any_strides(self):
        """An option is copied before it is read if the elements of its rows are not adjacent."""
        rng = np.random.default_rng(5)
        seen, bias, numbers = rng.random((7, 66)) < 0.5, drawn(6, 7, 66), drawn(7, 8)
        lens, positions = np.array([5, 99, 7, 99]), np.array([[9, 3], [4, 5]], np.int32)
        for name, value in (("mask", seen[:, ::2]), ("mask", seen[::-1, 32::-1]), ("bias", bias[:, 33:][:, ::-1]),
                            ("bias", np.asfortranarray(bias[:, :33])), ("sinks", numbers[::2]),
                            ("sinks", numbers[3::-1]), ("alibi_slopes", numbers[::-2]), ("kv_lens", lens[::2]),
                            ("kv_lens", lens[2::-2].astype(np.int32)), ("q_offsets", positions[:, 0]),
                            ("mask", Foreign(seen[:, :33]))):
            options = {"causal": True, "q_offsets": 30, name: value}
            dense = np.ascontiguousarray(value.array if isinstance(value, Foreign) else value)
            self.assertEqual(attnkit.attention(Q, K, V, **options).tobytes(),
                             attnkit.attention(Q, K, V, **{**options, name: dense}).tobytes(), name)

    def test_out_backwards(self):
        out = np.empty(Q.shape, np.float32)
        for view in (out[::-1], out[:, ::-1], out[:, :, ::-1]):
            out[:] = 0
            attnkit.attention(Q, K, V, out=view)
            self.assertEqual(view.tobytes(), RESULT)

    def test_keys_and_values_of_other_types(self):
        k, v = K.astype(np.float16), V.astype(ml_dtypes.bfloat16)
        self.assertEqual(attnkit.attention(Q, k, v).tobytes(),
                         attnkit.attention(Q, k.astype(np.float32), v.astype(np.float32)).tobytes())

    def test_many_shapes_one_after_the_other(self):
        """Runs more shapes than the number of plans that a thread keeps, then the same shapes again. No plan may be
        used for another shape."""
        first = {}
        for _ in range(2):
            for n in range(1, 34):
                out = attnkit.attention(Q[:, :, :n % 7 + 1], K[:, :, :n], V[:, :, :n], causal="bottom-right")
                self.assertEqual(first.setdefault(n, out.tobytes()), out.tobytes())


class Empty(unittest.TestCase):
    """Tests sizes of 0."""

    def test_no_batch_no_rows_no_keys(self):
        for q, k in ((Q[:0], K[:0]), (Q[:, :, :0], K)):
            self.assertEqual(attnkit.attention(q, k, k).shape, q.shape)
        out, lse = attnkit.attention(Q, K[:, :, :0], V[:, :, :0], return_lse=True)
        self.assertTrue((out == 0).all() and (lse == -np.inf).all())
        out, weights = attnkit.attention(Q, K[:, :, :0], V[:, :, :0], return_weights=True,
                                         mask=np.zeros((7, 0), bool))
        self.assertEqual(weights.shape, (2, 4, 7, 0))

    def test_other_functions(self):
        rows, keys, none = Q[0].swapaxes(0, 1), K[0].swapaxes(0, 1), drawn(1, 0, 64)
        out = attnkit.attention_varlen(rows[:0], keys[:0], keys[:0], [0, 0], [0, 0])
        self.assertEqual(out.shape, (0, 4, 64))
        self.assertEqual(attnkit.linear(none, drawn(2, 9, 64)).shape, (0, 9))
        self.assertEqual(attnkit.merge([Q[:, :, :0]], [Q[:, :, :0, 0]]).shape, (2, 4, 0, 64))
        layer = attnkit.Layer({f"{part}_proj.weight": drawn(3, 64, 64) for part in "qkvo"}, q_heads=2, kv_heads=2)
        self.assertEqual(layer(drawn(4, 2, 0, 64)).shape, (2, 0, 64))
        cache = attnkit.KVCache(2, 2, 40, 64)
        cache.append(K[:, :, :0], V[:, :, :0])
        self.assertEqual(cache.lens.tolist(), [0, 0])
        self.assertTrue((cache.attend(Q) == 0).all())
        cache.append(K, V)
        self.assertEqual(cache.attend(Q[:, :, :0]).shape, (2, 4, 0, 64))

    def test_no_elements(self):
        with self.assertRaisesRegex(ValueError, "head_dim"):
            attnkit.attention(Q[..., :0], K[..., :0], V)
        with self.assertRaisesRegex(ValueError, "^v "):
            attnkit.attention(Q, K, V[..., :0])


class Refused(unittest.TestCase):
    """Tests that an exception names the argument, and that out has not changed."""

    def refuses(self, kind, text, q=Q, k=K, v=V, **options):
        with self.assertRaisesRegex(kind, text):
            attnkit.attention(q, k, v, **options)

    def test_types(self):
        self.refuses(TypeError, "^q is float64", Q.astype(float))
        self.refuses(TypeError, "^k is int8", k=K.astype(np.int8))
        self.refuses(TypeError, "^v is of the type 'Zf'", v=V.astype(np.complex64))
        self.refuses(TypeError, "^q is of the type '>f'", Q.astype(">f4"))
        self.refuses(TypeError, "^q is list", Q.tolist())
        self.refuses(TypeError, "^k is float8_e4m3fn", k=K.astype(ml_dtypes.float8_e4m3fn))
        self.refuses(TypeError, "^k cannot be taken by DLPack", k=K.astype(ml_dtypes.float8_e5m2))
        self.refuses(TypeError, "^mask is float32", mask=np.ones((7, 33), np.float32))
        self.refuses(TypeError, "^bias is float64", bias=np.ones((7, 33)))
        self.refuses(TypeError, "^sinks is float64", sinks=np.ones(4))
        self.refuses(TypeError, "^kv_lens is float64", kv_lens=np.ones(2))
        for kind in ("bool", "int8", "uint8", "int16", "uint32", "uint64", ">i4", ">i8"):
            self.refuses(TypeError, "^kv_lens is ", kv_lens=np.array([1, 2]).astype(kind))
        self.refuses(TypeError, "^kv_lens is float", kv_lens=[1.5, 2])
        self.refuses(TypeError, "^q is of the type 'O'", Q.astype(object))
        self.refuses(TypeError, r"^q is of the type 'T{f:a:}'", Q.view([("a", np.float32)]))
        self.refuses(TypeError, "^q is str", "q")
        self.refuses(TypeError, "^threads is float", threads=2.0)
        self.refuses(TypeError, "^seeds is float32", dropout=0.1, seeds=np.ones(2, np.float32), q_offsets=0)
        self.refuses(TypeError, "^out is float64", out=np.empty(Q.shape))
        self.refuses(TypeError, "^softcap is str", softcap="much")

    def test_devices(self):
        self.refuses(ValueError, "^k is on a device of DLPack's type 2", k=Foreign(K, (2, 0)))

    def test_objects_whose_dlpack_fails(self):
        class Raising(Foreign):
            def __dlpack__(self, **more):
                raise BufferError("no export today")

        class Wrong(Foreign):
            def __dlpack__(self, **more):
                return 5
        self.refuses(TypeError, "^k cannot be taken by DLPack: no export today", k=Raising(K))
        self.refuses(TypeError, "^k cannot be taken by DLPack", k=Wrong(K))

    def test_shapes(self):
        self.refuses(ValueError, r"^q has the shape \(64,\)", Q[0, 0, 0])
        self.refuses(ValueError, "^k has the shape", k=K[:1])
        self.refuses(ValueError, "^v has the shape", v=V[:, :, :9])
        self.refuses(ValueError, "^v has the shape", v=V[:, :1])
        self.refuses(ValueError, "^k has rows of 32", k=K[..., :32])
        self.refuses(ValueError, "q_heads", Q[:, :3])
        self.refuses(ValueError, r"^mask has the shape \(3, 1, 7, 33\)", mask=np.ones((3, 1, 7, 33), bool))
        self.refuses(ValueError, "^mask has the shape", mask=np.ones((7, 32), bool))
        self.refuses(ValueError, "^bias has the shape", bias=np.ones((1, 2, 4, 7, 33), np.float32))
        self.refuses(ValueError, "^sinks has 3 elements", sinks=np.ones(3, np.float32))
        self.refuses(ValueError, "^kv_lens has 3 elements", kv_lens=[1, 2, 3])
        self.refuses(ValueError, "^seeds has 1 elements", dropout=0.1, seeds=np.ones(1, np.int64), q_offsets=0)
        self.refuses(ValueError, "^out has the shape", out=np.empty((2, 4, 7, 63), np.float32))

    def test_values(self):
        self.refuses(ValueError, r"kv_lens\[1\] is 34", kv_lens=[1, 34])
        self.refuses(ValueError, "^causal is 'left'", causal="left")
        self.refuses(ValueError, "^causal is True", causal=True)
        self.refuses(ValueError, "^causal is 'upper-left'", causal="upper-left", q_offsets=3)
        self.refuses(ValueError, "^window needs", window=(1, 1))
        self.refuses(ValueError, "^window", window=(1,), causal="upper-left")
        self.refuses(ValueError, "window", window=(-2, 1), causal="upper-left")
        self.refuses(ValueError, "^alibi_slopes needs", alibi_slopes=np.ones(4, np.float32))
        self.refuses(ValueError, "softcap", softcap=-1.0)
        self.refuses(ValueError, "scale", scale=float("nan"))
        self.refuses(ValueError, "dropout", dropout=1.5, seeds=1, q_offsets=0)
        self.refuses(ValueError, "^dropout needs seeds", dropout=0.5, q_offsets=0)
        self.refuses(ValueError, "^return_weights is 'all'", return_weights="all")
        for threads in (0, -1, 1025):
            self.refuses(ValueError, f"^threads is {threads}", threads=threads)
        self.refuses(OverflowError, "^q_offsets", q_offsets=2 ** 64)

    def test_names(self):
        self.refuses(TypeError, r"^attention\(\) has no argument masks", masks=1)
        with self.assertRaisesRegex(TypeError, r"^attention\(\) needs v"):
            attnkit.attention(Q, K)
        with self.assertRaisesRegex(TypeError, r"^attention\(\) takes at most 3"):
            attnkit.attention(Q, K, V, None)
        with self.assertRaisesRegex(TypeError, r"^attention\(\) has v twice"):
            attnkit.attention(Q, K, V, v=V)

    def test_out(self):
        out = np.full(Q.shape, 5, np.float32)
        out.flags.writeable = False
        self.refuses(ValueError, "^out is read-only", out=out)
        self.assertTrue((out == 5).all())
        wide = np.full((*Q.shape[:3], 128), 5, np.float32)
        self.refuses(ValueError, "^out has rows whose elements are not adjacent", out=wide[..., ::2])
        self.refuses(ValueError, "out", out=np.broadcast_to(np.float32(0), Q.shape))
        q = Q.copy()
        self.refuses(ValueError, "out", q, out=q)
        both = np.zeros((3, 4, 7, 64), np.float32)
        both[:2] = Q
        self.refuses(ValueError, "out", both[:2], out=both[1:])
        self.assertEqual(both[:2].tobytes(), Q.tobytes())

    def test_out_of_other_functions(self):
        """Functions other than attention() also refuse an out that is read-only or overlaps an input."""
        q, rows, x, w = Q.copy(), drawn(1, 6, 4, 64), drawn(2, 5, 64), drawn(3, 64, 64)
        cache = attnkit.KVCache(2, 2, 40, 64)
        cache.append(K, V)
        layer = attnkit.Layer({f"{part}_proj.weight": w for part in "qkvo"}, q_heads=1, kv_heads=1)
        calls = ((q, lambda out: cache.attend(q, out=out)), (x, lambda out: attnkit.linear(x, w, out=out)),
                 (rows, lambda out: attnkit.attention_varlen(rows, rows, rows, [0, 6], [0, 6], out=out)),
                 (x[None], lambda out: layer(x[None], out=out)),
                 (q, lambda out: attnkit.scaled_dot_product_attention(q, q, q, out=out)))
        for same, call in calls:
            before, fixed = same.tobytes(), np.zeros(same.shape, np.float32)
            fixed.flags.writeable = False
            with self.assertRaisesRegex(ValueError, "^out .*overlaps"):
                call(same)
            self.assertEqual(same.tobytes(), before)
            with self.assertRaisesRegex(ValueError, "^out is read-only"):
                call(fixed)


if __name__ == "__main__":
    unittest.main()
