# SPDX-License-Identifier: Apache-2.0
"""Tests arrays of all kinds: views that are not copied, arrays that must be copied, and arrays that the package refuses
with a message that names the argument."""

import gc
import unittest

import attnkit
import ml_dtypes
import numpy as np
from attnkit import _core
from reference import drawn

Q, K, V = drawn(1, 2, 4, 7, 64), drawn(2, 2, 2, 33, 64), drawn(3, 2, 2, 33, 64)
RESULT = attnkit.attention(Q, K, V).tobytes()


class Foreign:
    """An array of another library that supports only DLPack."""

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
        out.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "^out is read-only"):
            attnkit.attention(Q, K, V, out=foreign)
        fixed = Q.copy()
        fixed.flags.writeable = False
        self.check(Foreign(fixed), K, V)

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

    def test_many_shapes_one_after_the_other(self):
        """Runs more shapes than a thread keeps plans for, twice. No plan may be used for another shape."""
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
        self.refuses(TypeError, "^seeds is float32", dropout=0.1, seeds=np.ones(2, np.float32), q_offsets=0)
        self.refuses(TypeError, "^out is float64", out=np.empty(Q.shape))
        self.refuses(TypeError, "^softcap is str", softcap="much")

    def test_devices(self):
        self.refuses(ValueError, "^k is on a device of DLPack's type 2", k=Foreign(K, (2, 0)))

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


if __name__ == "__main__":
    unittest.main()
