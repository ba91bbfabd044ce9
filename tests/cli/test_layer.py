# SPDX-License-Identifier: Apache-2.0
"""Tests of `attnkit layer`. The command reads files of weights in the forms that models have. Its results agree with
a computation in float64, and its picture shows the weights of attention.

    ATTNKIT_COMMAND=build/tools/attnkit python3 tests/cli/test_layer.py

test_tools.py describes ATTNKIT_COMMAND. The tests write safetensors files and decode the picture. They need NumPy."""

import json
import os
import pathlib
import re
import resource
import struct
import sys
import unittest

import numpy as np

from test_run_masks import attention, to_bf16, to_bytes
from test_tools import ISAS, ToolTest, attnkit, header_of, normal, npy, with_header

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import png  # noqa: E402

BATCH, ROWS, D_MODEL, HEADS, KV_HEADS, HEAD_DIM = 2, 5, 32, 4, 2, 8
OPTIONS = ("--weights", "--prefix", "--heads", "--kv-heads", "--weight-type", "--x", "--context",
           "-o", "--out-type", "--lse", "--attention", "--plot", "--plot-batch", "--rope",
           "--rope-base", "--rope-dim", "--causal", "--align", "--window", "--keep-first",
           "--kv-len", "--q-docs", "--kv-docs", "--mask", "--mask-kind", "--mask-dims",
           "--mask-bits", "--mask-bits-kind", "--mask-bits-dims", "--bias", "--bias-dims",
           "--bias-scales", "--scale", "--softcap", "--alibi", "--sinks", "--dropout", "--seed",
           "--isa", "--threads", "--repeat", "--help")
DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": to_bf16}


# ------------------------------------------------------------------------------------ the weights


def stored(array, dtype):
    """Returns the bytes of an array as a safetensors file stores them."""
    if dtype == "BF16":
        return (to_bf16(array).view(np.uint32) >> 16).astype("<u2").tobytes()
    return array.astype({"F32": "<f4", "F16": "<f2", "F64": "<f8", "I32": "<i4"}[dtype]).tobytes()


def safetensors(tensors, dtype="F32", pad=0):
    """Returns the bytes of a safetensors file with these arrays one after the other. dtype is one type for all arrays,
    or a dict of types by name. Arrays that the dict does not name are F32. The header ends with `pad` spaces."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, array in tensors.items():
        kind = dtype if isinstance(dtype, str) else dtype.get(name, "F32")
        content = stored(np.asarray(array, np.float32), kind)
        header[name] = {"dtype": kind, "shape": list(np.shape(array)),
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode() + b" " * pad
    return struct.pack("<Q", len(text)) + text + data


def make_weights(d_model=D_MODEL, heads=HEADS, kv_heads=KV_HEADS, head_dim=HEAD_DIM, value_dim=None,
                 d_key=None, d_out=None, biases="qkvo", seed=10):
    """Draws q_proj.weight and the other weights, with values that bf16 represents exactly."""
    value_dim, d_key = value_dim or head_dim, d_key or d_model
    shapes = {"q": (heads * head_dim, d_model), "k": (kv_heads * head_dim, d_key),
              "v": (kv_heads * value_dim, d_key), "o": (d_out or d_model, heads * value_dim)}
    weights = {}
    for i, (name, shape) in enumerate(shapes.items()):
        weights[f"{name}_proj.weight"] = to_bf16(normal(*shape, seed=seed + i) / shape[1] ** 0.5)
        if name in biases:
            weights[f"{name}_proj.bias"] = to_bf16(normal(shape[0], seed=seed + 4 + i))
    return weights


def fused(weights):
    """Returns the weights in the form of PyTorch's MultiheadAttention."""
    parts = {kind: [weights[f"{name}_proj.{kind}"] for name in "qkv"]
             for kind in ("weight", "bias")}
    return {"in_proj_weight": np.concatenate(parts["weight"]),
            "in_proj_bias": np.concatenate(parts["bias"]),
            "out_proj.weight": weights["o_proj.weight"], "out_proj.bias": weights["o_proj.bias"]}


def rotate(heads, form, base=10000.0, dim=None):
    """Applies RoPE to [batch, heads, rows, dim], with row i at position i."""
    dim = dim or heads.shape[-1]
    angles = np.arange(heads.shape[-2])[:, None] / base ** (np.arange(0, dim, 2) / dim)
    first, second = ((slice(0, dim, 2), slice(1, dim, 2)) if form == "interleaved"
                     else (slice(0, dim // 2), slice(dim // 2, dim)))
    turned = heads.copy()
    turned[..., first] = heads[..., first] * np.cos(angles) - heads[..., second] * np.sin(angles)
    turned[..., second] = heads[..., second] * np.cos(angles) + heads[..., first] * np.sin(angles)
    return turned


def layer(x, weights, heads=HEADS, kv_heads=KV_HEADS, context=None, rope=None, **more):
    """Computes the layer in float64. Returns a dict: out of the layer, and the other results of attention."""
    x = np.asarray(x, np.float64)
    context = x if context is None else np.asarray(context, np.float64)
    weights = {name: np.asarray(array, np.float64) for name, array in weights.items()}

    def project(rows, name):
        return rows @ weights[f"{name}_proj.weight"].T + weights.get(f"{name}_proj.bias", 0)

    def split(rows, count):
        return np.swapaxes(rows.reshape(*rows.shape[:-1], count, -1), -2, -3)

    q, k, v = (split(project(rows, name), count) for rows, name, count in
               ((x, "q", heads), (context, "k", kv_heads), (context, "v", kv_heads)))
    if rope:
        q, k = (rotate(a, **rope) for a in (q, k))
    result = attention(q, k, v, **more)
    joined = np.swapaxes(result["out"], -2, -3)
    result["out"] = project(joined.reshape(*joined.shape[:-2], -1), "o")
    return result


class LayerTest(ToolTest):
    """Gives each test a new folder that holds x and a file of weights."""

    def setUp(self):
        super().setUp()
        for name in "qkv":
            (self.folder / f"{name}.npy").unlink()
        self.x = normal(BATCH, ROWS, D_MODEL, seed=1)
        self.weights = make_weights()
        self.store("x", self.x)
        self.store_file(self.weights)
        self.heads = HEADS

    def store(self, name, array):
        np.save(self.folder / f"{name}.npy", array)
        return f"{name}.npy"

    def store_file(self, weights, dtype="F32", prefix="", **more):
        named = {prefix + name: array for name, array in weights.items()}
        (self.folder / "w.safetensors").write_bytes(safetensors(named, dtype, **more))

    def store_folder(self, weights, dtype=np.float32, prefix=""):
        (self.folder / "w").mkdir(exist_ok=True)
        for name, array in weights.items():
            np.save(self.folder / "w" / f"{prefix}{name}.npy", array.astype(dtype))

    def attempt(self, *options, out="out.npy", weights="w.safetensors", x="x.npy", **more):
        return attnkit("layer", "--weights", weights, "--heads", self.heads, "--x", x, "-o", out,
                       *options, folder=self.folder, **more)

    def check(self, options=(), weights=None, place="w.safetensors", x=None, **meaning):
        """Checks that out, lse and the weights of attention agree with float64 in a run with these options."""
        with self.subTest(options=" ".join(map(str, options)), place=place):
            out = self.run_tool("--lse", "lse.npy", "--attention", "a.npy", *options,
                                weights=place)
            expected = layer(self.x if x is None else x, weights or self.weights,
                             **{"heads": self.heads, **meaning})
            self.compare(out, expected["out"])
            self.compare(self.load("lse.npy"), expected["lse"])
            self.compare(self.load("a.npy"), expected["softmax"])


class Weights(LayerTest):
    def test_types(self):
        for dtype in DTYPES:
            weights = {name: DTYPES[dtype](array) for name, array in self.weights.items()}
            self.store_file(weights, dtype)
            self.check(weights=weights)
        self.assertRegex(self.summary, r"(?m)^layer +w\.safetensors, bf16$")

    def test_folders(self):
        for dtype in (np.float32, np.float16):
            self.store_folder(self.weights, dtype)
            (self.folder / "w" / "notes.txt").write_text("no tensor")
            self.check(weights={n: a.astype(dtype) for n, a in self.weights.items()}, place="w")
        self.check(weights={n: a.astype(np.float16) for n, a in self.weights.items()}, place="w/")

    def test_elements_that_are_not_aligned(self):
        for pad in range(8):
            self.store_file(self.weights, "F32", pad=pad)
            self.check()
        self.store_file(self.weights, {n: "F32" if "weight" in n else "BF16" for n in self.weights})
        self.check()

    def test_biases(self):
        for biases in ("", "qkv", "o", "qv"):
            weights = make_weights(biases=biases)
            self.store_file(weights)
            self.check(weights=weights)

    def test_other_names_of_tensors(self):
        names = {"o_proj.weight": "out_proj.weight", "o_proj.bias": "out_proj.bias"}
        self.store_file({names.get(n, n): a for n, a in self.weights.items()})
        self.check()

    def test_fused(self):
        weights = make_weights(kv_heads=HEADS)
        self.store_file(fused(weights))
        self.check(weights=weights, kv_heads=HEADS)
        self.store_folder(fused(weights))
        self.check(weights=weights, kv_heads=HEADS, place="w")

    def test_fused_with_fewer_kv_heads(self):
        names = {"in_proj_weight": "qkv_proj.weight", "in_proj_bias": "qkv_proj.bias"}
        for rename in ({}, names):
            self.store_file({rename.get(n, n): a for n, a in fused(self.weights).items()})
            self.check(("--kv-heads", KV_HEADS))

    def test_separate_matrices_of_multihead_attention(self):
        """If the rows of the context are not as wide as the rows of x, PyTorch's MultiheadAttention has three matrices
        for q, k and v, but one bias for all three."""
        weights = make_weights(d_key=24, kv_heads=HEADS)
        saved = fused({**weights, **{f"{n}_proj.weight": np.zeros((1, 1)) for n in "qkv"}})
        del saved["in_proj_weight"]
        saved.update({f"{n}_proj_weight": weights[f"{n}_proj.weight"] for n in "qkv"})
        self.store_file(saved)
        context = normal(BATCH, 7, 24, seed=2)
        self.check(("--context", self.store("c", context)), weights=weights, context=context,
                   kv_heads=HEADS)

    def test_kv_heads(self):
        for kv_heads in (1, 2, 4):
            weights = make_weights(kv_heads=kv_heads)
            self.store_file(weights)
            self.check(weights=weights, kv_heads=kv_heads)
            self.check(("--kv-heads", kv_heads), weights=weights, kv_heads=kv_heads)
        self.assertRegex(self.summary, r"(?m)^heads +4 of 8, 4 KV heads$")

    def test_sizes_that_all_differ(self):
        weights = make_weights(d_model=12, heads=3, kv_heads=1, head_dim=6, value_dim=10, d_out=7)
        self.heads, self.x = 3, normal(BATCH, ROWS, 12)
        self.store_file(weights)
        self.store("x", self.x)
        self.check(weights=weights, kv_heads=1)
        self.assertRegex(self.summary, r"(?m)^heads +3 of 6, 1 KV head, values of 10$")

    def test_weight_type(self):
        conversions = {"f32": np.float32, "f16": np.float16, "bf16": to_bf16,
                       "q8_0": lambda a: to_bytes(a, 32, np.float16)}
        for dtype in DTYPES:
            self.store_file(self.weights, dtype)
            for name, conversion in conversions.items():
                weights = {n: conversion(DTYPES[dtype](a).astype(np.float32)) if "weight" in n
                           else DTYPES[dtype](a) for n, a in self.weights.items()}
                self.check(("--weight-type", name), weights=weights)
                tail = "" if name == dtype.lower() else f" packed as {name}"
                self.assertRegex(self.summary, f"(?m)^layer .*, {dtype.lower()}{tail}$")

    def test_prefixes(self):
        """If the weights are of one layer, and its prefix is empty or ends with a dot, --prefix is not needed. If the
        weights are of several layers, --prefix must name one of the layers."""
        other = make_weights(seed=30)
        both = {f"model.{i}.attn.{name}": array for i, part in enumerate((self.weights, other))
                for name, array in part.items()}
        self.store_file(self.weights, prefix="model.7.attn.")
        self.check()
        self.assertRegex(self.summary, r"(?m)^layer +w\.safetensors model\.7\.attn\., f32$")
        self.store_file({**both, "model.norm.weight": normal(3)})
        self.check(("--prefix", "model.0.attn."))
        self.check(("--prefix", "model.1.attn."), weights=other)
        self.store_folder(both)
        self.check(("--prefix", "model.1.attn."), weights=other, place="w")
        (self.folder / "out.npy").unlink()
        self.refuse(r"w.safetensors has 2 layers: --prefix must be one of 'model\.0\.attn\.', "
                    r"'model\.1\.attn\.'$")
        for prefix in ("model.0.attn", "model.2.attn.", "", "Model.0.attn."):
            self.refuse(f"has no {prefix}q_proj.weight and no {prefix}in_proj_weight: "
                        "--prefix must be one of 'model.0", "--prefix", prefix)

    def test_many_layers(self):
        self.store_file({f"layers.{i:02}.{n}": np.zeros((1, 1)) for i in range(40)
                         for n in ("q_proj.weight", "k_proj.weight", "q_proj.bias")})
        self.refuse(r"has 40 layers: .*'layers\.00\.', .*'layers\.07\.' and 32 more$")

    def test_a_layer_is_counted_once(self):
        """Names are sorted. So a name of another layer may lie between two names of the same layer."""
        for names, listed in ((("in_proj_weight", "layers.0.q_proj.weight", "q_proj.weight"), "'', 'layers.0.'"),
                              (("q_proj.weight", "q_proj.x.q_proj.weight", "q_proj_weight"), "'', 'q_proj.x.'"),
                              (("a.in_proj_weight", "a.layers.0.q_proj.weight", "a.q_proj.weight", "a.q_proj_weight",
                                "a.r.q_proj.weight", "b.q_proj.weight"), "'a.', 'a.layers.0.', 'a.r.', 'b.'")):
            self.store_file({name: np.zeros((1, 1)) for name in names})
            count = listed.count(",") + 1
            self.refuse(f"has {count} layers: --prefix must be one of {re.escape(listed)}$")

    def test_a_prefix_need_not_end_a_word(self):
        self.store_file(self.weights, prefix="my_")
        self.refuse("has no q_proj.weight and no in_proj_weight$")
        self.check(("--prefix", "my_"))

    def test_names_beyond_ascii(self):
        self.store_file(self.weights, prefix="schicht \u00e4\u20ac\U0001d11e.")
        self.check()
        self.assertIn("schicht \u00e4\u20ac\U0001d11e., f32", self.summary)


class Options(LayerTest):
    def test_rank_2(self):
        self.check()
        expected = [self.load(name)[1].tobytes() for name in ("out.npy", "lse.npy", "a.npy")]
        self.store("x", self.x[1])
        out = self.run_tool("--lse", "lse.npy", "--attention", "a.npy")
        self.assertEqual(out.shape, (ROWS, D_MODEL))
        self.assertEqual(self.load("lse.npy").shape, (HEADS, ROWS))
        self.assertEqual([self.load(name).tobytes() for name in ("out.npy", "lse.npy", "a.npy")],
                         expected)

    def test_float16(self):
        half = self.x.astype(np.float16)
        self.store("x", half)
        self.check(x=half)

    def test_context(self):
        for keys in (1, 9):
            context = normal(BATCH, keys, D_MODEL, seed=2)
            self.check(("--context", self.store("c", context)), context=context)

    def test_causal(self):
        keys = np.arange(ROWS)
        for form, offset in (("upper-left", 0), ("bottom-right", 0), ("2", 2)):
            self.check(("--causal", form), visible=keys <= keys[:, None] + offset)

    def test_masks(self):
        random = np.random.default_rng(5)
        mask, bias = random.random((BATCH, ROWS)) < 0.7, normal(HEADS, ROWS, ROWS, seed=6)
        self.check(("--mask", self.store("mask", mask), "--mask-kind", "attend", "--mask-dims",
                    "bk", "--bias", self.store("bias", bias)),
                   visible=mask[:, None, None, :], bias=bias)

    def test_rope(self):
        for form in ("interleaved", "half"):
            self.check(("--rope", form), rope={"form": form})
            self.check(("--rope", form, "--rope-base", 500, "--rope-dim", 6),
                       rope={"form": form, "base": 500.0, "dim": 6})

    def test_everything_together(self):
        keys = np.arange(ROWS)
        lens = np.array([ROWS, 3])[:, None, None, None]
        sinks, docs = np.array([0, 1, -np.inf, 2], np.float32), np.array([0, 0, 1, 1, 1])
        visible = ((keys <= keys[:, None]) & (keys >= keys[:, None] - 2) & (keys < lens)
                   & (docs == docs[:, None]))
        docs = self.store("docs", docs.astype(np.int32))
        options = ("--causal", "upper-left", "--window", "2,0", "--kv-len", f"{ROWS},3",
                   "--softcap", 3, "--scale", 0.5, "--sinks", self.store("sinks", sinks),
                   "--q-docs", docs, "--kv-docs", docs, "--rope", "half")
        meaning = {"visible": visible, "softcap": 3, "scale": 0.5, "sinks": sinks,
                   "rope": {"form": "half"}}
        self.check(options, **meaning)
        names = ("out.npy", "lse.npy", "a.npy")
        bits = [self.load(name).tobytes() for name in names]
        for isa in ISAS:
            for threads in (1, 3):
                with self.subTest(isa=isa, threads=threads):
                    self.run_tool("--lse", "lse.npy", "--attention", "a.npy", *options, "--isa",
                                  isa, "--threads", threads, "--repeat", 2)
                    self.assertEqual([self.load(name).tobytes() for name in names], bits)

    def test_alibi_and_dropout(self):
        slopes = np.array([0.5, -0.25, 0, 3], np.float32)
        bias = slopes[:, None, None] * (np.arange(ROWS) - np.arange(ROWS)[:, None])
        self.check(("--alibi", self.store("alibi", slopes), "--align", "upper-left"), bias=bias)
        distances = np.arange(ROWS, dtype=np.float32) - np.arange(ROWS)[:, None]
        self.check(("--bias", self.store("distances", distances.astype(np.float16)),
                    "--bias-scales", "alibi.npy"), bias=bias)
        plain = self.run_tool("--align", 0)
        dropped = self.run_tool("--align", 0, "--dropout", 0.5, "--seed", 7)
        self.assertFalse(np.array_equal(plain, dropped))

    def test_out_type(self):
        wide = self.run_tool()
        for name, expected in (("f32", wide), ("f16", wide.astype(np.float16)),
                               ("bf16", to_bf16(wide))):
            out = self.run_tool("--out-type", name, "--attention", "a.npy")
            self.assertEqual((out.dtype, out.tobytes()), (expected.dtype, expected.tobytes()))

    def test_nothing_to_do(self):
        self.store("x", normal(BATCH, 0, D_MODEL))
        self.assertEqual(self.run_tool("--attention", "a.npy").shape, (BATCH, 0, D_MODEL))
        self.assertEqual(self.load("a.npy").shape, (BATCH, HEADS, 0, 0))
        self.store("x", normal(0, ROWS, D_MODEL))
        self.assertEqual(self.run_tool().shape, (0, ROWS, D_MODEL))

    def test_nan_is_a_value(self):
        self.x[0, 0, 0] = np.nan
        self.store("x", self.x)
        out = self.run_tool("--causal", "upper-left")
        self.assertTrue(np.isnan(out[0]).all())
        self.assertTrue(np.isfinite(out[1]).all())

    def test_summary(self):
        context = self.store("c", normal(BATCH, 7, D_MODEL))
        self.run_tool("--context", context, "--threads", 2, "--attention", "a.npy", "--repeat", 3)
        flops = 2e-9 * (2 * BATCH * ROWS * 32 * 32 + 2 * BATCH * 7 * 16 * 32
                        + 2 * BATCH * HEADS * ROWS * 7 * HEAD_DIM)
        for line in (r"layer +w\.safetensors, f32", r"heads +4 of 8, 2 KV heads",
                     r"x +\[2, 5, 32\] x\.npy", r"context +\[2, 7, 32\] c\.npy",
                     r"out +\[2, 5, 32\] out\.npy", r"weights +\[2, 4, 5, 7\] a\.npy, softmax",
                     r"ran on .*; 2 threads", r"pack +\S+ ms, \d+ bytes",
                     r"time +best \S+ ms, median \S+ ms of 3",
                     rf"speed +\S+ GFLOP/s at best, {flops:.4g} GFLOP in all"):
            self.assertRegex(self.summary, f"(?m)^{line}$")


# ------------------------------------------------------------------------------------ the picture


def lightness(colour):
    """Returns the CIE L* of a colour."""
    part = np.asarray(colour) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16


WHITE, DARKEST, BRIGHTEST, RED = (255, 255, 255), (36, 10, 70), (250, 226, 64), (220, 30, 30)
GAP, NUMBER = 8, 14
HAS_PNG = "needs libpng" not in attnkit("layer", "--weights", "/", "--heads", 1, "--x", "/", "-o",
                                        "/", "--plot", "/").stderr


@unittest.skipIf(HAS_PNG, "this attnkit was built with libpng")
class NoPicture(LayerTest):
    def test_missing_libpng_is_named(self):
        self.refuse("--plot needs libpng, which was missing when attnkit was built: install it "
                    r"\(Debian: libpng-dev\)", "--plot", "w.png")
        self.run_tool("--attention", "a.npy")


@unittest.skipUnless(HAS_PNG, "this attnkit was built without libpng")
class Picture(LayerTest):
    def draw(self, *options, heads=HEADS, **more):
        """Runs the command. Returns the pixels of the picture, and the weights of batch entry 0."""
        self.run_tool("--plot", "w.png", "--attention", "a.npy", *options, **more)
        pixels = png.decode((self.folder / "w.png").read_bytes())
        weights = self.load("a.npy")
        self.assertEqual(weights.shape[-3], heads)
        return pixels, weights[0] if weights.ndim == 4 else weights

    def panels(self, pixels, heads, across):
        """Returns the pixels of each head's panel, and of the head number above the panel."""
        height, width = pixels.shape[:2]
        down = -(-heads // across)
        x, y = (width - GAP) // across - GAP, (height - GAP) // down - GAP - NUMBER
        self.assertEqual((GAP + across * (x + GAP), GAP + down * (y + GAP + NUMBER)),
                         (width, height))
        corners = [(GAP + h // across * (y + GAP + NUMBER), GAP + h % across * (x + GAP))
                   for h in range(heads)]
        return ([pixels[t + NUMBER:t + NUMBER + y, l:l + x] for t, l in corners],
                [pixels[t:t + NUMBER, l:l + x] for t, l in corners])

    def cells(self, panel, rows, keys):
        """Returns the colour of each weight in a panel that shows every weight."""
        zoom_y, zoom_x = panel.shape[0] // rows, panel.shape[1] // keys
        self.assertEqual(panel.shape, (rows * zoom_y, keys * zoom_x, 3))
        cells = panel[::zoom_y, ::zoom_x]
        np.testing.assert_array_equal(np.repeat(np.repeat(cells, zoom_y, 0), zoom_x, 1), panel)
        return cells

    def test_each_weight_is_a_square(self):
        pixels, weights = self.draw("--causal", "upper-left")
        panels, _ = self.panels(pixels, HEADS, 2)
        for panel, head in zip(panels, weights):
            self.assertEqual(panel.shape, (24 * ROWS, 24 * ROWS, 3))
            cells = self.cells(panel, ROWS, ROWS)
            light = lightness(cells)
            order = np.argsort(head, axis=None)
            self.assertGreaterEqual(np.diff(light.ravel()[order]).min(), -0.1)
            self.assertTrue((cells[head == 0] == DARKEST).all())
            self.assertTrue((cells[head == head.max()] == BRIGHTEST).all())
        self.assertRegex(self.summary, rf"(?m)^plot +{pixels.shape[1]} x {pixels.shape[0]} pixels ")

    def test_colours_of_known_weights(self):
        """All scores are 0, so row i has i + 1 weights of 1 / (i + 1)."""
        self.store_file(make_weights(biases=""))
        self.store("x", np.zeros((16, D_MODEL), np.float32))
        pixels, _ = self.draw("--causal", "upper-left")
        for panel in self.panels(pixels, HEADS, 2)[0]:
            cells = self.cells(panel, 16, 16)
            for row, colour in ((0, BRIGHTEST), (3, (38, 126, 144)), (15, (56, 61, 134))):
                self.assertTrue((abs(cells[row, :row + 1].astype(int) - colour) <= 1).all())
                self.assertTrue((cells[row, row + 1:] == DARKEST).all())

    def test_colours_have_even_steps_of_lightness(self):
        self.store("x", np.zeros((121, D_MODEL), np.float32))
        self.heads, rows = 1, np.arange(1, 122)
        self.store_file(make_weights(heads=1, kv_heads=1, biases=""))
        pixels, _ = self.draw("--causal", "upper-left", heads=1)
        panel, = self.panels(pixels, 1, 1)[0]
        light = lightness(self.cells(panel, 121, 121)[:, 0])
        np.testing.assert_allclose(light, 9 + 80 * rows ** -0.5, atol=3)

    def test_gaps_are_white_and_heads_numbered(self):
        self.heads, rows = 12, 9
        self.store_file(make_weights(heads=12, kv_heads=1, head_dim=2))
        self.store("x", normal(rows, D_MODEL))
        pixels, _ = self.draw(heads=12)
        panels, numbers = self.panels(pixels, 12, 4)
        for panel in panels:
            self.assertFalse((panel == WHITE).all(axis=-1).any())
            panel[:] = WHITE
        dots = [number[:10:2, :14:2] != 255 for number in numbers]
        self.assertEqual(len({number.tobytes() for number in numbers}), 12)
        self.assertEqual([int(d.any(-1).sum()) for d in dots[:10]],
                         [12, 8, 11, 11, 9, 11, 12, 7, 13, 12])
        np.testing.assert_array_equal(dots[10][:, :3], dots[1][:, :3])
        np.testing.assert_array_equal(dots[10][:, 4:], dots[0][:, :3])
        for number in numbers:
            number[:] = WHITE
        self.assertTrue((pixels == WHITE).all())

    def test_numbers_of_three_digits_do_not_overlap(self):
        """A panel of 13 keys and the gap after it take fewer pixels than three digits."""
        self.heads, rows, across = 1000, 13, 32
        self.store_file(make_weights(heads=1000, kv_heads=1, head_dim=2, d_model=4))
        self.store("x", normal(rows, 4))
        self.run_tool("--plot", "w.png")
        pixels = png.decode((self.folder / "w.png").read_bytes())
        pitch = (pixels.shape[1] - GAP) // across

        def digit(head, place):
            top = GAP + head // across * (NUMBER + rows + GAP)
            left = GAP + head % across * pitch + 8 * place
            return pixels[top:top + 10, left:left + 6].tobytes()

        digits = [digit(head, 0) for head in range(10)]
        for head in range(100, 1000):
            self.assertEqual([digit(head, place) for place in range(3)],
                             [digits[int(number)] for number in str(head)], head)

    def test_plot_batch(self):
        second = self.draw("--plot-batch", 1)[0]
        self.store("x", self.x[::-1].copy())
        np.testing.assert_array_equal(self.draw("--plot-batch", 0)[0], second)
        self.assertFalse(np.array_equal(self.draw("--plot-batch", 1)[0], second))
        np.testing.assert_array_equal(self.draw()[0], second)

    def test_the_picture_needs_no_file_of_weights(self):
        expected = self.draw()[0]
        (self.folder / "a.npy").unlink()
        self.run_tool("--plot", "w.png")
        np.testing.assert_array_equal(png.decode((self.folder / "w.png").read_bytes()), expected)
        self.assertEqual(sorted(self.contents()), ["out.npy", "w.png", "w.safetensors", "x.npy"])

    def test_nan_is_red(self):
        self.x[0, 2, :] = np.nan
        self.store("x", self.x)
        pixels, weights = self.draw("--causal", "upper-left")
        for panel, head in zip(self.panels(pixels, HEADS, 2)[0], weights):
            cells = self.cells(panel, ROWS, ROWS)
            np.testing.assert_array_equal((cells == RED).all(-1), np.isnan(head))
            self.assertTrue(np.isnan(head[2:]).any() and (cells[0, 0] == BRIGHTEST).all())

    def test_large_pictures_are_averaged(self):
        """Every second key is masked, so that all pairs of neighbouring weights have the same mean."""
        self.heads, keys = 1, 2500
        self.store_file(make_weights(heads=1, kv_heads=1, biases=""))
        self.store("x", np.zeros((4, D_MODEL), np.float32))
        context = self.store("c", np.zeros((keys, D_MODEL), np.float32))
        mask = self.store("mask", np.arange(keys) % 2 == 0)
        pixels, _ = self.draw("--context", context, "--mask", mask, "--mask-kind", "attend",
                              heads=1)
        panel, = self.panels(pixels, 1, 1)[0]
        self.assertEqual(panel.shape, (24, keys // 2, 3))
        self.assertTrue((panel == BRIGHTEST).all())

    def test_no_picture_is_larger_than_2000_pixels(self):
        for heads, rows, keys in ((1, 1, 1), (1, 1, 5000), (1, 5000, 1), (3, 300, 2001), (7, 1, 1),
                                  (32, 200, 200), (1000, 1, 2), (1000, 30, 3), (50, 2, 900)):
            self.heads = heads
            self.store_file(make_weights(heads=heads, kv_heads=1, head_dim=2, d_model=4))
            self.store("x", normal(rows, 4))
            context = self.store("c", normal(keys, 4))
            with self.subTest(heads=heads, rows=rows, keys=keys):
                self.run_tool("--context", context, "--plot", "w.png")
                header = (self.folder / "w.png").read_bytes()[16:24]
                width, height = struct.unpack(">II", header)
                self.assertLessEqual(max(width, height), 2000)
                self.assertGreaterEqual(min(width, height), GAP + 24 + GAP)

    def test_refusals(self):
        self.refuse("--plot-batch is 2: must be below the batch, 2", "--plot", "w.png",
                    "--plot-batch", 2)
        self.refuse("-o and --plot name one file", "--plot", "./out.npy")
        self.refuse("cannot write none/w.png", "--plot", "none/w.png")
        self.heads = 1001
        self.store_file(make_weights(heads=1001, kv_heads=1, head_dim=2))
        self.refuse("no picture has room for 1001 heads: must be at most 1000", "--plot", "w.png")
        self.setUp()
        self.store("x", normal(BATCH, 0, D_MODEL))
        self.refuse("w.png: there are no weights to be drawn", "--plot", "w.png")

    def test_all_files_or_none(self):
        """The limit on the file size leaves room for the result, but not for the picture."""
        self.store("x", normal(100, D_MODEL))
        self.refuse(r"cannot write w\.png: File too large", "--plot", "w.png", preexec_fn=lambda:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (13000, 13000)))


# ------------------------------------------------------------------------------------ refusals


class Refusals(LayerTest):
    def refuse_weights(self, pattern, *options, dtype="F32", without=(), **changes):
        """Checks that a file is refused if tensors in it have other shapes or types, are missing, or are added."""
        tensors = {n: a for n, a in self.weights.items() if n not in without}
        for name, shape in changes.items():
            name = name.replace("__", ".")
            tensors[name] = np.zeros(shape)
        with self.subTest(pattern=pattern):
            self.store_file(tensors, dtype)
            self.refuse(pattern, *options)

    def test_missing_tensors(self):
        for name in ("q", "k", "v", "o"):
            self.refuse_weights(rf"w\.safetensors has no {name}_proj\.weight",
                                without=(f"{name}_proj.weight",))
        self.store_file({"norm.weight": np.zeros(3)})
        self.refuse(r"w\.safetensors has no q_proj\.weight and no in_proj_weight$")
        self.store_file({})
        self.refuse(r"w\.safetensors has no q_proj\.weight and no in_proj_weight$")
        self.refuse(r"w\.safetensors has no a\.q_proj\.weight$", "--prefix", "a.")
        (self.folder / "w").mkdir()
        self.refuse(r"w has no q_proj\.weight and no in_proj_weight$", weights="w")

    def test_tensors_under_two_names(self):
        self.refuse_weights("has both in_proj_weight and q_proj.weight", in_proj_weight=(64, 32))
        self.refuse_weights("has both q_proj.weight and q_proj_weight", q_proj_weight=(32, 32))
        self.refuse_weights("has both o_proj.weight and out_proj.weight", out_proj__weight=(32, 32))
        self.refuse_weights("has both in_proj_bias and q_proj.bias", in_proj_bias=(64,))

    def test_tensors_that_are_not_supported(self):
        for name in ("bias_k", "bias_v", "q_norm.weight", "k_layernorm.weight"):
            self.refuse_weights(f"has {name}: attnkit layer does not support it",
                                **{name.replace(".", "__"): (8,)})

    def test_shapes(self):
        for pattern, changes in (
                (r"q_proj.weight is \[30, 32\]: its first size must be a multiple of 4, --heads",
                 {"q_proj__weight": (30, 32)}),
                (r"k_proj.weight is \[12, 32\]: its first size must be a multiple of 8, head_dim",
                 {"k_proj__weight": (12, 32)}),
                (r"k_proj.weight has rows for 3 heads: must divide --heads, 4",
                 {"k_proj__weight": (24, 32)}),
                (r"v_proj.weight is \[15, 32\]: its first size must be a multiple of 2, the KV",
                 {"v_proj__weight": (15, 32)}),
                (r"v_proj.weight is \[16, 31\]: its last size must be 32, the last size of the weights of k",
                 {"v_proj__weight": (16, 31)}),
                (r"o_proj.weight is \[32, 33\]: its last size must be 32, --heads times value_dim",
                 {"o_proj__weight": (32, 33)}),
                (r"x.npy is \[2, 5, 32\]: its last size must be 33, the last size of q_proj.weight",
                 {"q_proj__weight": (32, 33)}),
                (r"x.npy is \[2, 5, 32\]: its last size must be 24, the last size of k_proj.weight",
                 {"k_proj__weight": (16, 24), "v_proj__weight": (16, 24)}),
                *((rf"{n}_proj.bias is \[7\]: its first size must be {rows}, one for each row",
                   {f"{n}_proj__bias": (7,)}) for n, rows in zip("qkvo", (32, 16, 16, 32))),
                (r"q_proj.weight: its rank is 1: must be 2", {"q_proj__weight": (32,)}),
                (r"q_proj.weight: its rank is 3: must be 1 .. 2", {"q_proj__weight": (1, 32, 32)}),
                (r"q_proj.weight: its rank is 0", {"q_proj__weight": ()}),
                (r"o_proj.bias: its rank is 2: must be 1", {"o_proj__bias": (1, 32)}),
                (r"o_proj.weight has no elements", {"o_proj__weight": (0, 32)}),
                (r"k_proj.weight has no elements", {"k_proj__weight": (16, 0)}),
                (r"q_proj.bias has no elements", {"q_proj__bias": (0,)})):
            self.refuse_weights(pattern, **changes)

    def test_shapes_of_fused_weights(self):
        self.store_file(fused(self.weights))
        self.refuse(r"in_proj_weight is \[64, 32\]: its first size must be a multiple of 12, the "
                    "heads of q, k and v together")
        self.store_file({**fused(make_weights(kv_heads=HEADS)), "in_proj_bias": np.zeros(95)})
        self.refuse(r"in_proj_bias is \[95\]: its first size must be 96")

    def test_kv_heads_that_do_not_fit(self):
        self.refuse(r"k_proj.weight is \[16, 32\]: its first size must be 32, --kv-heads times",
                    "--kv-heads", 4)
        self.refuse("--kv-heads is 3: must divide --heads, 4", "--kv-heads", 3, code=2)

    def test_types(self):
        self.refuse_weights("q_proj.weight is f32, k_proj.weight is f16: must be the same",
                            dtype={"k_proj.weight": "F16"})
        self.refuse_weights("k_proj.bias is f32, v_proj.bias is bf16: must be the same",
                            dtype={"v_proj.bias": "BF16"})
        for dtype in ("F64", "I32"):
            self.refuse_weights(f"v_proj.weight: its dtype is {dtype}: must be F32, F16 or BF16",
                                dtype={"v_proj.weight": dtype})
        self.store_folder(self.weights, np.float64)
        self.refuse(r"w/q_proj\.weight\.npy: its dtype is '<f8': must be", weights="w")

    def test_inputs(self):
        for x, pattern in ((normal(D_MODEL), "rank is 1: must be 2 .. 3"),
                           (normal(1, 1, 5, D_MODEL), "rank is 4: must be 2 .. 3"),
                           (normal(5, 31), r"x.npy is \[5, 31\]: its last size must be 32"),
                           (normal(5, 32).astype(np.float64), "dtype is '<f8'")):
            self.store("x", x)
            self.refuse(pattern)
        self.store("x", self.x)
        for context, pattern in (
                (normal(7, D_MODEL), r"x.npy is \[2, 5, 32\] and c.npy is \[7, 32\]: must"),
                (normal(3, 7, D_MODEL), r"and c.npy is \[3, 7, 32\]: must have the same rank"),
                (normal(2, 7, 30), r"c.npy is \[2, 7, 30\]: its last size must be 32, the last size of k"),
                (normal(2, 7, D_MODEL).astype(np.float16),
                 "x.npy is '<f4' and c.npy is '<f2': must have the same dtype")):
            self.refuse(pattern, "--context", self.store("c", context))

    def test_refusals_of_the_library(self):
        self.refuse(r"rotation\.dim", "--rope", "half", "--rope-dim", 3)
        self.refuse(r"rotation\.dim", "--rope", "half", "--rope-dim", 10)
        self.refuse(r"rotation\.base", "--rope", "half", "--rope-base", "inf")
        self.refuse("softcap", "--softcap", -1)
        self.refuse("scalar", "--isa", "mmx")
        weights = make_weights(d_model=20)
        self.store_file(weights)
        self.store("x", normal(3, 20))
        self.refuse("32", "--weight-type", "q8_0")

    def test_bad_words_and_numbers(self):
        for options, pattern in (
                (("--rope", "full"), "--rope is 'full': must be interleaved or half$"),
                (("--rope", "half", "--rope-base", "0.5"), "base is 0.5: must be at least 1"),
                (("--rope", "half", "--rope-base", "nan"), "base is nan: must be at least 1"),
                (("--rope", "half", "--rope-base", "x"), "--rope-base is 'x': must be a number"),
                (("--rope", "half", "--rope-dim", "1"), "--rope-dim is 1: must be 2 .."),
                (("--rope-base", "2"), "option --rope-base needs option --rope$"),
                (("--rope-dim", "2"), "option --rope-dim needs option --rope$"),
                (("--plot-batch", "2"), "option --plot-batch needs option --plot$"),
                (("--rope", "half", "--context", "x.npy"), "options --rope and --context"),
                (("--plot", "w.png", "--plot-batch", "-1"), "--plot-batch is -1: must be 0 .."),
                (("--kv-heads", "0"), "--kv-heads is 0: must be 1 .."),
                (("--weight-type", "i8"), "--weight-type is 'i8': must be f32, f16, bf16 or q8_0$"),
                (("--out-type", "i8"), "--out-type is 'i8'"), (("--causal", "x"), "--causal"),
                (("--alibi", "x.npy"), "option --alibi needs option --causal or --align"),
                (("--kv-type", "f16"), "unknown option '--kv-type'"),
                (("--heads", "4"), "option --heads is given twice")):
            with self.subTest(options=options):
                self.refuse(pattern, *options, code=2)
        for heads in (0, -1, "x", 2 ** 31):
            self.heads = heads
            self.refuse("--heads is ", code=2)

    def test_missing_options(self):
        files = {"--weights": "w.safetensors", "--heads": "4", "--x": "x.npy", "-o": "out.npy"}
        for missing in files:
            words = [word for pair in files.items() if pair[0] != missing for word in pair]
            done = attnkit("layer", *words, folder=self.folder)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(f"option {missing} is missing: see attnkit layer --help", done.stderr)

    def test_help(self):
        done = attnkit("layer", "--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(tuple(re.findall(r"^  (-\S+)", done.stdout, re.MULTILINE)), OPTIONS)
        self.assertLessEqual(max(map(len, done.stdout.split("\n"))), 100)
        self.assertIn("attnkit layer", attnkit("--help").stdout)

    def test_two_results_in_one_file(self):
        self.refuse("-o and --attention name one file", "--attention", "./out.npy")
        self.refuse("--lse and --attention name one file", "--lse", "a.npy", "--attention", "a.npy")
        self.refuse("cannot write none/out.npy", out="none/out.npy")


class Files(LayerTest):
    """Tests files that are incomplete or damaged. tests/cli/safetensors.c also tests the header byte by byte."""

    def setUp(self):
        super().setUp()
        self.heads = 1
        self.store("x", normal(2, 2))
        self.weights = make_weights(d_model=2, heads=1, kv_heads=1, head_dim=1, biases="")
        self.store_file(self.weights)
        self.whole = (self.folder / "w.safetensors").read_bytes()

    def refuse_file(self, content, pattern):
        (self.folder / "w.safetensors").write_bytes(content)
        self.refuse(r"w\.safetensors.*" + pattern)

    def test_truncated_at_each_byte(self):
        for length in range(len(self.whole)):
            self.refuse_file(self.whole[:length], "not a whole safetensors file")

    def test_no_byte_of_the_header_can_crash(self):
        length, = struct.unpack_from("<Q", self.whole)
        for position in range(8 + length):
            content = bytearray(self.whole)
            content[position] ^= 1 << position % 8
            (self.folder / "w.safetensors").write_bytes(content)
            self.assertIn(self.attempt().returncode, (0, 1))

    def test_bytes_after_the_last_tensor(self):
        self.refuse_file(self.whole + b"\0", "bytes after the last tensor")

    def refuse_places(self, places, pattern, size=64):
        """Checks that a file with `size` bytes of data is refused if its tensors lie at these places."""
        header = {name: {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}
                  for name, (begin, end) in places.items()}
        text = json.dumps(header).encode()
        self.refuse_file(struct.pack("<Q", len(text)) + text + bytes(size), pattern)

    def test_tensors_that_overlap_are_named(self):
        for places in ({"one": (0, 40), "two": (32, 64)}, {"one": (8, 40), "two": (32, 64)},
                       {"two": (32, 48), "one": (8, 40), "three": (60, 64)},
                       {"two": (32, 100), "one": (0, 40)}):
            self.refuse_places(places, "it has tensors that overlap: 'one' ends at byte 40, 'two' "
                                       "begins at byte 32$")

    def test_gaps_and_tensors_beyond_the_file(self):
        self.refuse_places({"one": (0, 40), "two": (48, 64)},
                           r"a gap: no tensor has the bytes 40 \.\. 47 before 'two'$")
        self.refuse_places({"one": (8, 64)}, r"the bytes 0 \.\. 7 before 'one'$")
        self.refuse_places({"one": (0, 63)}, "1 bytes after the last tensor$")
        self.refuse_places({"one": (0, 40), "two": (40, 65)},
                           "tensors beyond the end of the file: 'two' ends at byte 65 of 64$")

    def test_names_that_occur_twice(self):
        tensor = b'{"dtype":"U8","shape":[8],"data_offsets":[0,8]}'
        text = b'{"one":%s,"\\u006fne":%s}' % (tensor, tensor)
        self.refuse_file(struct.pack("<Q", len(text)) + text + bytes(8),
                         "a name that occurs twice: 'one'$")

    def test_lengths_of_the_header(self):
        for length in (10 ** 8 + 1, 2 ** 63, 2 ** 64 - 1):
            self.refuse_file(struct.pack("<Q", length) + self.whole[8:],
                             f"its header would have {length} bytes: must be at most 100000000")
        self.refuse_file(struct.pack("<Q", 10 ** 8) + self.whole[8:], "not a whole")

    def test_foreign_files(self):
        for content in (b"", npy(normal(2, 2)), b"PK\x03\x04" * 30, b"{}" * 30, b"\0" * 100):
            self.refuse_file(content, "not a (whole )?safetensors file")

    def test_no_regular_file(self):
        self.refuse("cannot read none: No such file", weights="none")
        os.mkfifo(self.folder / "pipe")
        self.refuse("cannot read pipe: not a regular file", weights="pipe")

    def test_truncated_arrays_of_a_folder(self):
        self.store_folder(self.weights)
        self.run_tool(weights="w")
        (self.folder / "out.npy").unlink()
        for name in self.weights:
            path = self.folder / "w" / f"{name}.npy"
            whole = path.read_bytes()
            path.write_bytes(whole[:-1])
            self.refuse(rf"w/{name}\.npy: not a whole \.npy file", weights="w")
            path.write_bytes(whole)

    def test_a_huge_batch(self):
        """x has no elements, but --kv-len would need a number for each batch entry."""
        (self.folder / "x.npy").write_bytes(with_header(header_of((2 ** 61, 0, 2))))
        self.refuse("no memory for --kv-len", "--kv-len", "0")


if __name__ == "__main__":
    unittest.main()
