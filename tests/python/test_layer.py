# SPDX-License-Identifier: Apache-2.0
"""Tests that linear and Layer agree with float64 within a bound, and that a layer has the bits of its parts. The
weights have the names that state dicts of models give them."""

import tempfile
import unittest
from pathlib import Path

import attnkit
import ml_dtypes
import numpy as np
from reference import drawn, oracle
from safetensors.numpy import save_file

M, H, G, D = 96, 6, 2, 32


def weights(scale=0.1, dtype=np.float32):
    rows = {"q_proj": (H * D, M), "k_proj": (G * D, M), "v_proj": (G * D, M), "o_proj": (M, H * D)}
    made = {}
    for i, (name, shape) in enumerate(rows.items()):
        made[f"{name}.weight"] = (drawn(i, *shape) * scale).astype(dtype)
        made[f"{name}.bias"] = drawn(10 + i, shape[0]).astype(dtype)
    return made


def turned(x, positions, base=10000.0):
    """Applies Llama's RoPE to x of the shape [batch, heads, rows, D], in float64."""
    angles = positions[:, None] / base ** (np.arange(D // 2) * 2 / D)
    x0, x1 = x[..., :D // 2], x[..., D // 2:]
    return np.concatenate([x0 * np.cos(angles) - x1 * np.sin(angles), x1 * np.cos(angles) + x0 * np.sin(angles)], -1)


def layer_oracle(w, x, key=None, rope=False, seen=None):
    """Computes the layer in float64. The arrays of w may have any type."""
    w = {name: array.astype(np.float64) for name, array in w.items()}

    def heads(rows, part):
        y = rows.astype(np.float64) @ w[f"{part}_proj.weight"].T + w[f"{part}_proj.bias"]
        return y.reshape(*y.shape[:2], -1, D).swapaxes(1, 2)
    key = x if key is None else key
    q, k, v = heads(x, "q"), heads(key, "k"), heads(key, "v")
    if rope:
        q, k = turned(q, np.arange(q.shape[2])), turned(k, np.arange(k.shape[2]))
    out = oracle(q, k, v, seen)[0].swapaxes(1, 2).reshape(*x.shape[:2], -1)
    return out @ w["o_proj.weight"].T + w["o_proj.bias"]


class Linear(unittest.TestCase):
    """Tests y = x w^T + bias."""

    def test_values(self):
        x, w, bias = drawn(1, 3, 5, 64), drawn(2, 40, 64), drawn(3, 40)
        wanted = x.astype(float) @ w.T.astype(float) + bias
        y = attnkit.linear(x, w, bias)
        self.assertLess(np.abs(y - wanted).max(), 1e-4)
        self.assertEqual(attnkit.linear(x, attnkit.Matrix(w), bias, threads=2).tobytes(), y.tobytes())
        self.assertEqual(attnkit.linear(x[1, 2], w, bias).tobytes(), y[1, 2].tobytes())
        self.assertEqual(attnkit.linear(np.asfortranarray(x), np.asfortranarray(w), bias).tobytes(), y.tobytes())
        self.assertLess(np.abs(attnkit.linear(x, w) - (wanted - bias)).max(), 1e-4)
        out = np.empty((3, 5, 40), np.float32)
        self.assertIs(attnkit.linear(x, w, bias, out=out), out)
        self.assertEqual(out.tobytes(), y.tobytes())
        for name, limit in (("float16", 0.05), ("bfloat16", 0.5), ("q8_0", 0.5)):
            self.assertLess(np.abs(attnkit.linear(x, attnkit.Matrix(w, type=name), bias) - wanted).max(), limit)
        half = attnkit.linear(x.astype(ml_dtypes.bfloat16), w)
        self.assertEqual(half.dtype, ml_dtypes.bfloat16)

    def test_refuses(self):
        x, w = drawn(1, 3, 64), drawn(2, 40, 64)
        for kind, text, arguments in ((ValueError, "^x has the last dimension 63", (x[:, :63], w)),
                                      (ValueError, "^w has the shape", (x, w[0])),
                                      (ValueError, "^bias has 39", (x, w, drawn(1, 39))),
                                      (TypeError, "^bias is float64", (x, w, np.zeros(40))),
                                      (TypeError, "^w is float64", (x, w.astype(float)))):
            with self.assertRaisesRegex(kind, text):
                attnkit.linear(*arguments)
        with self.assertRaisesRegex(ValueError, "type is 'q4_0'"):
            attnkit.Matrix(w, type="q4_0")
        with self.assertRaisesRegex(ValueError, "^out"):
            attnkit.linear(x, w, out=np.empty((3, 41), np.float32))


class Layer(unittest.TestCase):
    """Tests whole layers."""

    def test_values(self):
        w, x = weights(), drawn(20, 2, 11, M)
        layer = attnkit.Layer(w, q_heads=H, kv_heads=G)
        self.assertLess(np.abs(layer(x) - layer_oracle(w, x)).max(), 2e-5)
        upper = np.arange(11)[None] <= np.arange(11)[:, None]
        self.assertLess(np.abs(layer(x, causal="upper-left") - layer_oracle(w, x, seen=upper)).max(), 2e-5)
        key = drawn(21, 2, 17, M)
        self.assertLess(np.abs(layer(x, key) - layer_oracle(w, x, key)).max(), 2e-5)
        self.assertLess(np.abs(layer(x, key, mask=drawn(1, 11, 17) < 9) - layer_oracle(w, x, key)).max(), 2e-5)
        out = np.empty((2, 11, M), np.float32)
        self.assertIs(layer(x, out=out, threads=2), out)
        self.assertEqual(out.tobytes(), layer(x).tobytes())

    def test_has_the_bits_of_its_parts(self):
        w, x = weights(), drawn(20, 2, 11, M)
        parts = [attnkit.linear(x, w[f"{part}_proj.weight"], w[f"{part}_proj.bias"])
                 .reshape(2, 11, -1, D).swapaxes(1, 2) for part in "qkv"]
        out = attnkit.attention(*parts).swapaxes(1, 2).reshape(2, 11, -1)
        wanted = attnkit.linear(out, w["o_proj.weight"], w["o_proj.bias"])
        self.assertEqual(attnkit.Layer(w, q_heads=H, kv_heads=G)(x).tobytes(), wanted.tobytes())

    def test_rope_and_cache(self):
        w, x = weights(), drawn(20, 2, 40, M)
        layer = attnkit.Layer(w, q_heads=H, kv_heads=G, rope="half")
        whole = layer(x, causal="upper-left")
        upper = np.arange(40)[None] <= np.arange(40)[:, None]
        self.assertLess(np.abs(whole - layer_oracle(w, x, rope=True, seen=upper)).max(), 2e-5)
        for settings in ({}, {"paged": 16, "tiled": True}):
            cache = layer.make_cache(2, 40, **settings)
            parts = [layer(x[:, start:end], cache=cache) for start, end in ((0, 30), (30, 31), (31, 40))]
            self.assertEqual(np.concatenate(parts, 1).tobytes(), whole.tobytes())
            self.assertEqual(cache.lens.tolist(), [40, 40])
            with self.assertRaisesRegex(ValueError, "capacity is 40"):
                layer(x[:, :1], cache=cache)

    def test_names_of_models(self):
        w, x = weights(), drawn(20, 2, 11, M)
        wanted = attnkit.Layer(w, q_heads=H, kv_heads=G)(x).tobytes()
        joint = {"in_proj_weight": np.concatenate([w[f"{part}_proj.weight"] for part in "qkv"]),
                 "in_proj_bias": np.concatenate([w[f"{part}_proj.bias"] for part in "qkv"]),
                 "out_proj.weight": w["o_proj.weight"], "out_proj.bias": w["o_proj.bias"]}
        self.assertEqual(attnkit.Layer(joint, q_heads=H, kv_heads=G)(x).tobytes(), wanted)
        with tempfile.TemporaryDirectory() as folder:
            for dtype in (np.float32, ml_dtypes.bfloat16):
                typed = weights(dtype=dtype)
                path = Path(folder) / "model.safetensors"
                save_file({f"a.{name}": array for name, array in typed.items()} | {"b.x": x}, path)
                loaded = attnkit.Layer.from_safetensors(path, prefix="a.", q_heads=H, kv_heads=G)
                self.assertEqual(loaded(x).tobytes(), attnkit.Layer(typed, q_heads=H, kv_heads=G)(x).tobytes())
                self.assertLess(np.abs(loaded(x) - layer_oracle(typed, x)).max(), 2e-5)

    def test_refuses(self):
        w, x = weights(), drawn(20, 2, 11, M)
        without = {name: array for name, array in w.items() if name != "k_proj.weight"}
        with self.assertRaisesRegex(KeyError, "w_k"):
            attnkit.Layer(without, q_heads=H, kv_heads=G)
        with self.assertRaisesRegex(ValueError, "q_heads is 6"):
            attnkit.Layer(w, q_heads=H, kv_heads=4)
        with self.assertRaisesRegex(ValueError, "^w_k has the shape"):
            attnkit.Layer(w, q_heads=H, kv_heads=3)
        with self.assertRaisesRegex(ValueError, "^b_q has 5 elements"):
            attnkit.Layer({**w, "q_proj.bias": drawn(1, 5)}, q_heads=H, kv_heads=G)
        with self.assertRaisesRegex(TypeError, "^w_v is float16"):
            attnkit.Layer({**w, "v_proj.weight": w["v_proj.weight"].astype(np.float16)}, q_heads=H, kv_heads=G)
        with self.assertRaisesRegex(ValueError, "bias_k"):
            attnkit.Layer({**w, "bias_k": drawn(1, 5)}, q_heads=H, kv_heads=G)
        with self.assertRaisesRegex(ValueError, "rope is 'full'"):
            attnkit.Layer(w, q_heads=H, kv_heads=G, rope="full")
        layer = attnkit.Layer(w, q_heads=H, kv_heads=G)
        with self.assertRaisesRegex(TypeError, "^x is float64"):
            layer(x.astype(float))
        with self.assertRaisesRegex(ValueError, "^x has the shape .*rows of 96"):
            layer(x[..., :90])
        with self.assertRaisesRegex(ValueError, "^key has the shape .*rows of 96"):
            layer(x, x[..., :90])
        narrow = {**w, "v_proj.weight": w["v_proj.weight"][:, :90]}
        with self.assertRaisesRegex(ValueError, "^value is missing: it cannot be x, because rows of x have 96"):
            attnkit.Layer(narrow, q_heads=H, kv_heads=G)(x)
        with self.assertRaisesRegex(ValueError, "^x has the shape"):
            layer(x[0])
        with self.assertRaisesRegex(ValueError, "^key has the shape"):
            layer(x, x[:1])
        cache = layer.make_cache(3, 40)
        with self.assertRaisesRegex(ValueError, r"^x has the shape .*batch of the cache \(3\)"):
            layer(x, cache=cache)
        with self.assertRaisesRegex(ValueError, r"^key has the shape .*batch of the cache \(3\)"):
            layer(x, x[:2], cache=cache)
        with self.assertRaisesRegex(ValueError, "^cache: "):
            layer(x, cache=attnkit.KVCache(2, G, 40, D // 2))
        cache = layer.make_cache(2, 40)
        with self.assertRaisesRegex(ValueError, "softcap"):
            layer(x, cache=cache, softcap=-1.0)
        self.assertEqual(cache.lens.tolist(), [0, 0])


if __name__ == "__main__":
    unittest.main()
