# SPDX-License-Identifier: Apache-2.0
"""Tests of `attnkit run` with masks, score mods, types of K, V and the result, and caches of cells. Most results are
compared with a computation in float64.

    ATTNKIT_COMMAND=build/tools/attnkit python3 tests/cli/test_run_masks.py

test_tools.py describes ATTNKIT_COMMAND. The other test_*.py of this folder test the rest of the command attnkit. The
tests need NumPy."""

import re
import unittest

import numpy as np

from test_tools import ISAS, ToolTest, header_of, normal, npy, with_header

BATCH, HEADS, KV_HEADS, ROWS, KEYS, DIM = 2, 4, 2, 3, 11, 8
SIZES = {"b": BATCH, "h": HEADS, "q": ROWS, "k": KEYS}
KINDS = ("attend", "ignore", "add")


# ---------------------------------------------------------------------------------- the oracle


def positions(offsets):
    """Returns the position of each row as an array [batch, 1, rows, 1]. offsets is one number, or one number for each
    batch entry."""
    offsets = np.broadcast_to(np.asarray(offsets, np.float64), BATCH)
    return offsets[:, None, None, None] + np.arange(ROWS)[:, None]


def attention(q, k, v, scale=None, softcap=None, bias=0.0, visible=True, slopes=None, offsets=0,
              sinks=None, keep=1.0):
    """Computes all results of attention in float64, and returns them as a dict: name -> array. q, k and v are arrays
    [batch, heads, rows, dim]. `keep` has the factors of dropout."""
    q, k, v = (np.asarray(a, dtype=np.float64) for a in (q, k, v))
    k, v = (np.repeat(a, q.shape[1] // a.shape[1], axis=1) for a in (k, v))
    scaled = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    capped = softcap * np.tanh(scaled / softcap) if softcap else scaled
    biased = capped + bias
    if slopes is not None:
        biased = biased + slopes[:, None, None] * (np.arange(k.shape[-2]) - positions(offsets))
    biased = np.where(visible, biased, -np.inf)
    sink = np.full(1, -np.inf) if sinks is None else np.asarray(sinks, np.float64)
    sink = np.broadcast_to(sink[:, None, None], (*biased.shape[:-1], 1))
    top = np.maximum(biased.max(axis=-1, keepdims=True, initial=-np.inf), sink)
    top = np.where(np.isfinite(top), top, 0)
    weights = np.exp(biased - top)
    total = weights.sum(axis=-1, keepdims=True) + np.exp(sink - top)
    softmax = weights / np.where(total > 0, total, 1)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + top)[..., 0]
    return {"out": (softmax * keep) @ v, "lse": lse, "scaled": scaled, "capped": capped,
            "biased": biased, "softmax": softmax}


def broadcast(mask, dims=None):
    """Broadcasts a mask to [batch, heads, rows, keys]. The letters in dims name its dimensions. Without dims, the
    dimensions are aligned from the right."""
    mask = np.asarray(mask)
    if dims is None:
        return np.broadcast_to(mask, tuple(SIZES.values()))
    mask = np.transpose(mask, np.argsort(["bhqk".index(letter) for letter in dims]))
    missing = tuple(i for i, letter in enumerate("bhqk") if letter not in dims)
    return np.broadcast_to(np.expand_dims(mask, missing), tuple(SIZES.values()))


def philox(counter, key):
    """Computes Philox4x32-10: four words of 32 bits for each counter, which also has four words."""
    low = np.uint64(0xFFFFFFFF)
    c = [np.asarray(word, np.uint64) for word in counter]
    for i in range(10):
        k0, k1 = ((key[0] + i * 0x9E3779B9) & int(low), (key[1] + i * 0xBB67AE85) & int(low))
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        shift = np.uint64(32)
        c = [p1 >> shift ^ c[1] ^ np.uint64(k0), p1 & low,
             p0 >> shift ^ c[3] ^ np.uint64(k1), p0 & low]
    return c


def dropout_factors(rate, seeds, offsets):
    """Returns the factors that dropout gives the weights, as an array [batch, heads, rows, keys]."""
    factors = np.empty(tuple(SIZES.values()))
    keys = np.arange(KEYS)
    for b, h, i in np.ndindex(BATCH, HEADS, ROWS):
        position = (np.broadcast_to(offsets, BATCH)[b] + i) % 2 ** 64
        high = position >> 32 & 0xFFFF
        words = philox((keys // 4, np.full(KEYS, position & 0xFFFFFFFF), np.full(KEYS, h),
                        np.full(KEYS, high << 16)), (seeds[b] & 0xFFFFFFFF, seeds[b] >> 32))
        word = np.choose(keys % 4, words)
        factors[b, h, i] = np.where(word < int(rate * 2 ** 32), 0, 1 / (1 - rate))
    return factors


class Oracle(unittest.TestCase):
    def test_philox(self):
        """The expected words are from Random123, a library by the authors of Philox."""
        ones = 0xFFFFFFFF
        for counter, key, answer in (
                ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
                ((ones,) * 4, (ones,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
                ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
                 (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1))):
            self.assertEqual(tuple(map(int, philox(counter, key))), answer)

    def test_broadcast(self):
        mask = np.arange(BATCH * ROWS * KEYS).reshape(ROWS, BATCH, KEYS)
        self.assertEqual(broadcast(mask, "qbk")[1, 3, 2, 5], mask[2, 1, 5])


# ------------------------------------------------------------------------------------ the cases


class RunTest(ToolTest):
    """Gives each test a new folder that holds q, k and v of rank 4."""

    def setUp(self):
        super().setUp()
        self.save(2 * normal(BATCH, HEADS, ROWS, DIM, seed=1),
                  normal(BATCH, KV_HEADS, KEYS, DIM, seed=2),
                  normal(BATCH, KV_HEADS, KEYS, DIM, seed=3))
        self.random = np.random.default_rng(4)

    def store(self, name, array):
        np.save(self.folder / f"{name}.npy", array)
        return f"{name}.npy"

    def mask(self, kind, *shape):
        """Draws a mask of this kind."""
        if kind != "add":
            return self.random.random(shape) < 0.6
        bias = self.random.standard_normal(shape).astype(np.float32)
        return np.where(self.random.random(shape) < 0.6, bias, np.float32(-np.inf))

    def meaning(self, mask, kind, dims=None):
        """Returns the mask in the form that the oracle takes. A masked key has no bias."""
        mask = broadcast(mask, dims)
        if kind != "add":
            return {"visible": mask != 0 if kind == "attend" else mask == 0}
        return {"visible": mask > -np.inf, "bias": np.where(mask > -np.inf, mask, 0)}

    def check(self, options, **meaning):
        """Checks that out and lse of a run with these options agree with float64."""
        with self.subTest(options=" ".join(map(str, options))):
            out = self.run_tool("--lse", "lse.npy", *options)
            expected = attention(**self.arrays, **meaning)
            self.compare(out, expected["out"])
            self.compare(self.load("lse.npy"), expected["lse"])

    def check_mask(self, mask, kind, dims=None):
        options = ["--mask", self.store("mask", mask), "--mask-kind", kind]
        if dims:
            options += ["--mask-dims", dims]
        self.check(options, **self.meaning(mask, kind, dims))


class Masks(RunTest):
    def test_broadcast_from_the_right(self):
        for shape in ((KEYS,), (1,), (1, KEYS), (ROWS, KEYS), (ROWS, 1), (1, 1),
                      (HEADS, ROWS, KEYS), (HEADS, 1, KEYS), (1, ROWS, KEYS), (HEADS, 1, 1),
                      (BATCH, 1, ROWS, KEYS),
                      (BATCH, HEADS, ROWS, KEYS), (BATCH, 1, 1, KEYS), (BATCH, HEADS, ROWS, 1),
                      (1, 1, 1, 1), (1, HEADS, 1, KEYS)):
            for kind in KINDS:
                self.check_mask(self.mask(kind, *shape), kind)

    def test_named_dimensions(self):
        for dims in ("bqk", "bk", "hk", "bhk", "qbk", "qhbk", "k", "hqk", "bhqk"):
            shape = [SIZES[letter] for letter in dims]
            for kind in KINDS:
                self.check_mask(self.mask(kind, *shape), kind, dims)
        self.check_mask(self.mask("add", BATCH, 1, KEYS), "add", "bqk")
        self.check_mask(self.mask("attend", BATCH, ROWS, 1), "attend", "bqk")

    def test_fewer_keys(self):
        for columns in (2, 7, 10):
            rest = ((0, 0), (0, KEYS - columns))
            for kind, masked in zip(KINDS, (False, True, np.float32(-np.inf))):
                mask = self.mask(kind, ROWS, columns)
                options = ["--mask", self.store("mask", mask), "--mask-kind", kind]
                mask = np.pad(mask, rest, constant_values=masked)
                self.check(options, **self.meaning(mask, kind))

    def test_types(self):
        anything = self.random.integers(0, 3, (ROWS, KEYS)).astype(np.uint8) * 100
        for kind in ("attend", "ignore"):
            self.check_mask(anything, kind)
        self.check_mask(self.mask("add", ROWS, KEYS).astype(np.float16), "add")
        self.check_mask(self.mask("add", ROWS, 1).astype(np.float16), "add")

    def test_bits(self):
        for dims, shape in ((None, (KEYS,)), (None, (ROWS, KEYS)), (None, (HEADS, 1, KEYS)),
                            (None, (BATCH, HEADS, ROWS, KEYS)), ("bqk", (BATCH, ROWS, KEYS)),
                            ("bk", (BATCH, KEYS))):
            for kind in ("attend", "ignore"):
                mask = self.mask(kind, *shape)
                bits = np.packbits(mask, axis=-1, bitorder="little")
                options = ["--mask-bits", self.store("bits", bits), "--mask-bits-kind", kind]
                options += ["--mask-bits-dims", dims] if dims else []
                self.check(options, **self.meaning(mask, kind, dims))

    def test_fewer_bits(self):
        """A mask with one byte of bits for each row covers eight keys. It does not repeat for further keys."""
        mask = np.zeros((ROWS, KEYS), bool)
        mask[:, :8] = self.mask("attend", ROWS, 8)
        bits = np.packbits(mask, axis=-1, bitorder="little")[:, :1]
        options = ["--mask-bits", self.store("bits", bits), "--mask-bits-kind"]
        self.check([*options, "attend"], **self.meaning(mask, "attend"))
        hidden = mask | (np.arange(KEYS) >= 8)
        self.check([*options, "ignore"], **self.meaning(hidden, "ignore"))

    def test_bias_is_a_mask_that_is_added(self):
        bias = self.mask("add", BATCH, ROWS, KEYS)
        name = self.store("bias", bias)
        expected = self.run_tool("--mask", name, "--mask-kind", "add", "--mask-dims", "bqk")
        out = self.run_tool("--bias", name, "--bias-dims", "bqk")
        self.assertEqual(out.tobytes(), expected.tobytes())
        self.check(["--bias", name, "--bias-dims", "bqk"], **self.meaning(bias, "add", "bqk"))

    def test_factors_of_a_bias(self):
        bias, scales = self.mask("add", ROWS, KEYS), np.array([0.5, -2, 0, 1.25], np.float32)
        visible, factors = bias > -np.inf, scales[:, None, None].astype(np.float64)
        meaning = {"visible": visible, "bias": np.where(visible, bias, 0) * factors}
        name = self.store("bias", bias)
        options = ("--bias-scales", self.store("factors", scales))
        self.check(("--bias", name, *options), **meaning)
        self.assertRegex(self.summary, r"(?m)^scales  \[4\] factors\.npy, of the bias$")
        self.check(("--mask", name, "--mask-kind", "add", *options), **meaning)
        expected = self.run_tool("--bias", name)
        out = self.run_tool("--bias", name, "--bias-scales", self.store("ones", np.ones_like(scales)))
        self.assertEqual(out.tobytes(), expected.tobytes())

    def test_three_masks(self):
        mask, bits = self.mask("attend", KEYS), self.mask("ignore", HEADS, ROWS, KEYS)
        bias = self.mask("add", ROWS, KEYS)
        visible = broadcast(mask) & ~broadcast(bits) & (broadcast(bias) > -np.inf)
        packed = np.packbits(bits, axis=-1, bitorder="little")
        self.check(["--mask", self.store("mask", mask), "--mask-kind", "attend", "--mask-bits",
                    self.store("bits", packed), "--mask-bits-kind", "ignore", "--bias",
                    self.store("bias", bias)],
                   visible=visible, bias=np.where(visible, bias, 0))

    def test_lower_ranks(self):
        """With q of rank 3, a mask may have four dimensions if the size of the first one is 1."""
        arrays = {name: array[0] for name, array in self.arrays.items()}
        self.save(**arrays)
        for shape in ((KEYS,), (ROWS, KEYS), (HEADS, ROWS, KEYS), (1, HEADS, 1, KEYS)):
            mask = self.mask("attend", *shape)
            out = self.run_tool("--mask", self.store("mask", mask), "--mask-kind", "attend")
            expected = attention(*(array[None] for array in arrays.values()),
                                 visible=broadcast(mask)[:1])
            self.compare(out, expected["out"][0])

    def test_rank_2(self):
        q, k, v = (self.arrays[name][0, 0] for name in "qkv")
        self.save(q, k, v)
        mask = self.mask("ignore", ROWS, KEYS)
        out = self.run_tool("--mask", self.store("mask", mask), "--mask-kind", "ignore")
        self.compare(out, attention(q[None, None], k[None, None], v[None, None],
                                    visible=~mask)["out"][0, 0])

    def test_no_keys(self):
        self.save(normal(HEADS, ROWS, DIM), normal(1, 0, DIM), normal(1, 0, DIM))
        for shape in ((0,), (1,), (ROWS, 0), (ROWS, 1)):
            mask = self.store("mask", np.ones(shape, bool))
            self.compare(self.run_tool("--mask", mask, "--mask-kind", "attend"),
                         np.zeros((HEADS, ROWS, DIM)))

    def test_one_key(self):
        k, v = normal(1, 1, DIM), normal(1, 1, DIM, seed=1)
        self.save(normal(HEADS, ROWS, DIM), k, v)
        mask = np.arange(ROWS)[:, None] != 1
        out = self.run_tool("--mask", self.store("mask", mask), "--mask-kind", "attend")
        self.compare(out, np.broadcast_to(np.where(mask, v[0], 0), (HEADS, ROWS, DIM)))


class Visible(RunTest):
    """Tests windows, lengths and segment ids."""

    def window(self, offsets, left, right, first=0, causal=False):
        keys, row = np.arange(KEYS), positions(offsets)
        inside = ((left < 0) | (keys >= row - left)) & ((right < 0) | (keys <= row + right))
        return (inside | (keys < first)) & (~np.bool_(causal) | (keys <= row))

    def test_window(self):
        for left, right in ((2, 0), (0, 0), (1, 2), (-1, 1), (3, -1), (-1, -1),
                            (2 ** 62, 2 ** 63 - 1)):
            for form, offset in (("upper-left", 0), ("bottom-right", KEYS - ROWS), ("4", 4)):
                for option in ("--align", "--causal"):
                    causal = option == "--causal"
                    self.check([option, form, "--window", f"{left},{right}"],
                               visible=self.window(offset, left, right, causal=causal))

    def test_keep_first(self):
        for first in (0, 1, 4, 100):
            for option in ("--align", "--causal"):
                causal = option == "--causal"
                self.check([option, 2, "--window", "1,0", "--keep-first", first],
                           visible=self.window(2, 1, 0, first, causal))

    def test_align_alone_hides_nothing(self):
        for form in ("upper-left", "bottom-right", "-7", "1000"):
            self.check(["--align", form])

    def test_summary(self):
        """The summary counts operations only for the keys that rows see by position, window and length."""
        flops = 2 * (DIM + DIM) * HEADS
        for options, visible, line in (
                ((), np.ones((BATCH, 1, ROWS, KEYS)), None),
                (("--causal", 4), self.window(4, -1, 0), "causal  4: query row 0 is at key 4"),
                (("--align", "bottom-right"), np.ones((BATCH, 1, ROWS, KEYS)),
                 "align   bottom-right: query row 0 is at key 8"),
                (("--align", 4, "--window", "2,1"), self.window(4, 2, 1), None),
                (("--causal", 4, "--window", "2,9"), self.window(4, 2, 9, causal=True), None),
                (("--causal", -1, "--window", "2,9"), self.window(-1, 2, 9, causal=True), None),
                (("--align", 30, "--window", "2,-1"), self.window(30, 2, -1), None),
                *((("--causal", 4, "--window", "1,0", "--keep-first", first),
                   self.window(4, 1, 0, first, True), None) for first in (1, 3, 4, 6, 20)),
                (("--align", 30, "--window", "2,-1", "--keep-first", 3),
                 self.window(30, 2, -1, 3), None),
                (("--causal", "bottom-right", "--kv-len", "9,5"),
                 (np.arange(KEYS) <= positions(np.array([6, 2]))),
                 "causal  bottom-right: query row 0 is at key 6 in entry 0")):
            with self.subTest(options=options):
                self.run_tool(*options)
                pairs = np.broadcast_to(visible, (BATCH, 1, ROWS, KEYS)).sum()
                done = re.search(r" at best, (\S+) GFLOP in all", self.summary)[1]
                self.assertAlmostEqual(float(done) * 1e9, flops * pairs, delta=1)
                self.assertIn(f"\n{line}\n" if line else "\n", self.summary)

    def test_kv_len(self):
        keys = np.arange(KEYS)
        for text, lens in (("5", (5, 5)), ("11", (11, 11)), ("0", (0, 0)), ("3,7", (3, 7)),
                           ("11,0", (11, 0))):
            lens = np.array(lens)
            below = keys < lens[:, None, None, None]
            self.check(["--kv-len", text], visible=below)
            offsets = lens - ROWS
            causal = self.window(offsets, -1, 0)
            self.check(["--kv-len", text, "--causal", "bottom-right"], visible=below & causal)

    def test_docs(self):
        q_docs = np.array([[0, 0, 1], [2, -5, 2 ** 31 - 1]])
        kv_docs = np.repeat([[0, 1, 0, 7], [2, 2 ** 31 - 1, 2, 3]], 3, axis=1)[:, :KEYS]
        for dtype in (np.int32, np.int64):
            self.check(["--q-docs", self.store("q_docs", q_docs.astype(dtype)),
                        "--kv-docs", self.store("kv_docs", kv_docs.astype(dtype))],
                       visible=q_docs[:, None, :, None] == kv_docs[:, None, None, :])
        self.check(["--q-docs", self.store("q_docs", q_docs[0]),
                    "--kv-docs", self.store("kv_docs", kv_docs[0].astype(np.int32))],
                   visible=q_docs[0][:, None] == kv_docs[0])

    def test_masked_means_absent(self):
        """NaN in K and infinity in V of masked keys do not reach the results."""
        self.arrays["k"][:, :, 5:] = np.nan
        self.arrays["v"][:, :, 5:] = np.inf
        self.save(**self.arrays)
        mask = self.store("mask", np.arange(KEYS) < 5)
        out = self.run_tool("--mask", mask, "--mask-kind", "attend")
        self.compare(out, attention(*(a if a is self.arrays["q"] else a[:, :, :5]
                                      for a in self.arrays.values()))["out"])
        bits = self.run_tool("--kv-len", 5).tobytes()
        self.assertEqual(out.tobytes(), bits)


class Scores(RunTest):
    SLOPES = np.array([0.5, -0.25, 0, 3], np.float32)
    SINKS = np.array([0, 2.5, -np.inf, -30], np.float32)

    def test_softcap(self):
        for softcap in (0.5, 2, 50):
            for scale in (None, 3, -1):
                options = ["--softcap", softcap] + (["--scale", scale] if scale else [])
                self.check(options, softcap=softcap, scale=scale)
        self.check(["--softcap", 0])

    def test_alibi(self):
        slopes = self.store("slopes", self.SLOPES)
        for form, offset in (("upper-left", 0), ("bottom-right", KEYS - ROWS), ("-2", -2)):
            self.check(["--align", form, "--alibi", slopes], slopes=self.SLOPES, offsets=offset)
        self.check(["--causal", "3", "--alibi", slopes], slopes=self.SLOPES, offsets=3,
                   visible=np.arange(KEYS) <= positions(3))

    def test_sinks(self):
        sinks = self.store("sinks", self.SINKS)
        self.check(["--sinks", sinks], sinks=self.SINKS)
        mask = np.zeros(KEYS, bool)
        self.check(["--sinks", sinks, "--mask", self.store("mask", mask), "--mask-kind", "attend"],
                   sinks=self.SINKS, visible=mask)

    def test_dropout(self):
        large = 2 ** 64 - 1
        for rate, text, seeds, form, offsets in (
                (0.5, "7", (7, 7), "upper-left", 0), (0.1, f"0,{large}", (0, large), "4", 4),
                (0.9, f"{2 ** 63},1", (2 ** 63, 1), "-2", -2),
                (0.5, "5", (5, 5), str(2 ** 40), 2 ** 40)):
            keep = dropout_factors(rate, seeds, offsets)
            self.assertTrue((keep == 0).any() and (keep > 0).any())
            self.check(["--align", form, "--dropout", rate, "--seed", text], keep=keep)

    def test_a_dropout_of_0(self):
        self.check(["--align", "upper-left", "--dropout", 0, "--seed", 5])

    def everything(self):
        """Returns options of all kinds, and the same options in the form that the oracle takes."""
        mask, bits = self.random.random((BATCH, KEYS)) < 0.8, self.random.random((ROWS, KEYS)) < 0.2
        bias = normal(HEADS, ROWS, KEYS, seed=7)
        docs = np.arange(KEYS) // 9
        lens, offsets = np.array([KEYS, 8]), np.array([KEYS, 8]) - ROWS
        keys, row = np.arange(KEYS), positions(offsets)
        visible = (broadcast(mask, "bk") & ~broadcast(bits) & (docs == 0) & (keys <= row)
                   & ((keys >= row - 4) | (keys < 2)) & (keys < lens[:, None, None, None]))
        options = ["--mask", self.store("mask", mask), "--mask-kind", "attend", "--mask-dims", "bk",
                   "--mask-bits", self.store("bits", np.packbits(bits, -1, "little")),
                   "--mask-bits-kind", "ignore", "--bias", self.store("bias", bias),
                   "--q-docs", self.store("q_docs", np.zeros(ROWS, np.int32)),
                   "--kv-docs", self.store("kv_docs", docs.astype(np.int32)),
                   "--kv-len", f"{KEYS},8", "--causal", "bottom-right", "--window", "4,-1",
                   "--keep-first", 2, "--softcap", 2.5, "--alibi", self.store("alibi", self.SLOPES),
                   "--sinks", self.store("sinks", self.SINKS), "--dropout", 0.25, "--seed", "3,4"]
        return options, {"visible": visible, "bias": bias, "softcap": 2.5, "slopes": self.SLOPES,
                         "offsets": offsets, "sinks": self.SINKS,
                         "keep": dropout_factors(0.25, (3, 4), offsets)}

    def test_everything_together(self):
        options, meaning = self.everything()
        self.check(options, **meaning)

    def test_the_same_bits_everywhere(self):
        options, _ = self.everything()
        options += ["--weights", "weights.npy", "--lse", "lse.npy"]
        names = ("out.npy", "lse.npy", "weights.npy")
        self.run_tool(*options, "--isa", "scalar")
        bits = [self.load(name).tobytes() for name in names]
        for isa in ISAS:
            for threads in (1, 3):
                with self.subTest(isa=isa, threads=threads):
                    self.run_tool(*options, "--isa", isa, "--threads", threads)
                    self.assertEqual([self.load(name).tobytes() for name in names], bits)

    def test_weights(self):
        options, meaning = self.everything()
        expected = attention(**self.arrays, **meaning)
        below = np.arange(KEYS) < np.array([KEYS, 8])[:, None, None, None]
        for kind in ("softmax", "biased", "capped", "scaled"):
            with self.subTest(kind=kind):
                self.run_tool(*options, "--weights", "w.npy", "--weights-kind", kind)
                weights = self.load("w.npy")
                if kind in ("capped", "scaled"):  # these scores are not computed for keys beyond the length
                    weights = np.where(below, weights, 0)
                    expected[kind] = np.where(below, expected[kind], 0)
                self.compare(weights, expected[kind])

    def test_weights_come_from_the_softmax_by_default(self):
        for options, meaning in (((), {}), (("--softcap", 1), {"softcap": 1})):
            self.run_tool(*options, "--weights", "w.npy")
            self.compare(self.load("w.npy"), attention(**self.arrays, **meaning)["softmax"])
        self.assertRegex(self.summary, r"(?m)^weights \[2, 4, 3, 11\] w\.npy, softmax$")

    def test_weights_of_lower_ranks(self):
        for rank in (2, 3):
            arrays = [self.arrays[name][(0,) * (4 - rank)] for name in "qkv"]
            self.save(*arrays)
            self.run_tool("--weights", "w.npy")
            wide = [array.reshape((1,) * (4 - rank) + array.shape) for array in arrays]
            self.compare(self.load("w.npy"), attention(*wide)["softmax"][(0,) * (4 - rank)])
            self.setUp()


# --------------------------------------------------------------------------------------- types


def to_bf16(array):
    """Rounds to the nearest bf16, ties to even, and returns float32."""
    bits = np.asarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)


def to_bytes(array, group, scale_type):
    """Rounds to 8-bit integers with a scale for each group. Returns integers times scales."""
    groups = array.reshape(*array.shape[:-1], -1, group)
    scale = (np.abs(groups).max(axis=-1, keepdims=True) / 127).astype(scale_type).astype(np.float32)
    return (np.rint(groups / scale) * scale).reshape(array.shape)


def to_packed(array, zero):
    """Rounds to the integers of blocks of 32 elements. The integer `zero` stands for 0. Returns the rounded numbers."""
    blocks = array.reshape(*array.shape[:-1], -1, 32)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=-1, keepdims=True), axis=-1)
    scale = largest / np.float32(-zero)
    integers = np.minimum(np.trunc(blocks * (np.float32(1) / scale) + np.float32(zero + 0.5)), 2 * zero - 1)
    return ((integers - zero) * scale.astype(np.float16).astype(np.float32)).reshape(array.shape)


class Types(RunTest):
    CONVERSIONS = {"f32": np.float32, "f16": np.float16, "bf16": to_bf16,
                   "i8": lambda a: to_bytes(a, a.shape[-1], np.float32),
                   "q8_0": lambda a: to_bytes(a, 32, np.float16),
                   "q4_0": lambda a: to_packed(a, 8), "q5_0": lambda a: to_packed(a, 16)}

    def setUp(self):
        super().setUp()
        self.save(normal(2, 3, 64), normal(1, 40, 64, seed=1), normal(1, 40, 96, seed=2))

    def converted(self, conversion):
        q, k, v = self.arrays.values()
        return attention(q[None], *(np.asarray(conversion(a), np.float32)[None]
                                    for a in (k, v)))["out"][0]

    def test_kv_type(self):
        for name, conversion in self.CONVERSIONS.items():
            with self.subTest(kv_type=name):
                out = self.run_tool("--kv-type", name)
                self.compare(out, self.converted(conversion))
                self.assertRegex(self.summary, rf"(?m)^k +\[1, 40, 64\] k\.npy, {name}$")

    def test_kv_type_of_float16(self):
        """The values of v are float16 numbers stored as float32, so that the conversion of v changes no value."""
        q, k, v = self.arrays.values()
        half = k.astype(np.float16)
        self.save(q, half, half.astype(np.float32))
        expected = self.run_tool().tobytes()
        for name in ("f16", "f32"):
            self.assertEqual(self.run_tool("--kv-type", name).tobytes(), expected)

    def test_bits_do_not_depend_on_the_isa(self):
        for name in self.CONVERSIONS:
            bits = self.run_tool("--kv-type", name, "--isa", "scalar").tobytes()
            for isa in ISAS:
                with self.subTest(kv_type=name, isa=isa):
                    self.assertEqual(self.run_tool("--kv-type", name, "--isa", isa).tobytes(), bits)

    def test_integers(self):
        """Results with --integers have other bits than results without it, but the difference is small. All instruction
        sets give the same bits."""
        for kv_type in ("i8", "q8_0"):
            for options in ((), ("--causal", "30", "--softcap", "5", "--lse", "lse.npy")):
                options = ("--kv-type", kv_type, *options)
                plain = self.run_tool(*options)
                bits = self.run_tool(*options, "--integers", "--isa", "scalar")
                self.assertNotEqual(bits.tobytes(), plain.tobytes())
                np.testing.assert_allclose(bits, plain, rtol=0, atol=2e-4)
                for isa in ISAS:
                    with self.subTest(isa=isa, options=options):
                        out = self.run_tool("--integers", *options, "--isa", isa, "--threads", 2)
                        self.assertEqual(out.tobytes(), bits.tobytes())
            self.assertRegex(self.summary, rf"(?m)^k +\[1, 40, 64\] k\.npy, {kv_type}, as integers$")
            self.assertRegex(self.summary, rf"(?m)^v +\[1, 40, 96\] v\.npy, {kv_type}, as integers$")

    def test_bf16_products(self):
        """Results with --bf16-products 1, with --bf16-products 2 and without the option have different bits, but the
        differences are small. All instruction sets give the same bits."""
        for options in ((), ("--causal", "30", "--softcap", "5", "--lse", "lse.npy")):
            options = ("--kv-type", "bf16", *options)
            results = [self.run_tool(*options)]
            for parts in ("1", "2"):
                bits = self.run_tool(*options, "--bf16-products", parts, "--isa", "scalar")
                np.testing.assert_allclose(bits, results[0], rtol=0, atol=3e-2)
                for isa in ISAS:
                    with self.subTest(isa=isa, options=options, parts=parts):
                        out = self.run_tool("--bf16-products", parts, *options, "--isa", isa, "--threads", 2)
                        self.assertEqual(out.tobytes(), bits.tobytes())
                results.append(bits)
            self.assertEqual(len({bits.tobytes() for bits in results}), 3)
        self.assertRegex(self.summary, r"(?m)^q +\[.*\] q\.npy, bf16, in groups of products$")
        self.assertRegex(self.summary, r"(?m)^k +\[1, 40, 64\] k\.npy, bf16, in groups of products$")

    def test_out_type(self):
        wide = self.run_tool()
        for name, expected in (("f32", wide), ("f16", wide.astype(np.float16)),
                               ("bf16", to_bf16(wide))):
            with self.subTest(out_type=name):
                out = self.run_tool("--out-type", name, "--lse", "lse.npy", "--repeat", 2)
                self.assertEqual((out.dtype, out.tobytes()), (expected.dtype, expected.tobytes()))
                self.assertEqual(self.load("lse.npy").dtype, np.float32)

    def test_blocks_that_do_not_fit(self):
        self.save(normal(3, 20), normal(5, 20), normal(5, 32))
        self.refuse(r"cannot convert k\.npy: dim is 20.*32", "--kv-type", "q8_0")
        self.refuse(r"cannot convert k\.npy: dim is 20.*32 for ATTNKIT_Q4_0", "--kv-type", "q4_0")
        self.save(normal(3, 32), normal(5, 32), normal(5, 33))
        self.refuse(r"cannot convert v\.npy: dim is 33.*32", "--kv-type", "q8_0")
        self.refuse(r"cannot convert v\.npy: dim is 33.*32 for ATTNKIT_Q5_0", "--kv-type", "q5_0")

    def test_types_that_are_not_written(self):
        self.save(normal(3, 128), normal(5, 128), normal(5, 128))
        for name in ("q4_1", "q5_1", "iq4_nl", "q1_0", "q2_0", "f8_e4m3"):
            self.refuse(rf"cannot convert k\.npy: dst\.type is \d+: an append cannot write ATTNKIT_{name.upper()}",
                        "--kv-type", name)

    def test_no_keys(self):
        for name in self.CONVERSIONS:
            self.save(normal(2, 3, 32), normal(2, 0, 32), normal(2, 0, 64))
            self.compare(self.run_tool("--kv-type", name), np.zeros((2, 3, 64)))


# ----------------------------------------------------------------------------------------- cells


class Cells(RunTest):
    """Compares a cache of cells, whose keys lie in any order, to a cache in which each key lies at its index."""

    ORDERS = np.array([[7, 8, 9, 3, 4, 5, 6], [3, -1, 0, 10, 5, -1, 6]])

    def in_cells(self, array, order, missing=np.nan):
        """Copies the rows of an array [batch, ..., keys, last] to an array [batch, ..., cells, last], and returns this
        array. order[b, cell] is the key of a cell. A cell without a key has the value `missing`."""
        cells = np.full((*array.shape[:-2], len(order[0]), array.shape[-1]), missing, array.dtype)
        for b, cell in zip(*np.nonzero(order >= 0)):
            cells[b, ..., cell, :] = array[b, ..., order[b, cell], :]
        return cells

    def both(self, order, dtype, *options, of_keys=(), of_cells=()):
        """Checks that out has the same bits with both caches, and returns out. A mask hides the keys of the dense cache
        that no cell holds. `of_keys` and `of_cells` are further options for the dense cache and for the cache of
        cells."""
        there = np.zeros((BATCH, KEYS), bool)
        for b, cell in zip(*np.nonzero(order >= 0)):
            there[b, order[b, cell]] = True
        q, k, v = self.arrays.values()
        dense = self.run_tool("--mask", self.store("there", there), "--mask-kind", "attend",
                              "--mask-dims", "bk", *options, *of_keys)
        np.save(self.folder / "k", self.in_cells(k, order))
        np.save(self.folder / "v", self.in_cells(v, order))
        out = self.run_tool("--key-index", self.store("order", order.astype(dtype)), *options,
                            *of_cells)
        self.save(q, k, v)
        self.assertEqual(out.tobytes(), dense.tobytes())
        return dense

    def test_bits_of_a_dense_cache(self):
        for dtype in (np.int32, np.int64):
            for options in ((), ("--causal", "5"), ("--align", "6", "--window", "3,1"),
                            ("--threads", "3"), ("--kv-type", "f16")):
                with self.subTest(dtype=dtype, options=options):
                    self.both(self.ORDERS, dtype, *options)

    def test_one_order_for_all_entries(self):
        order = self.ORDERS[1]
        dense = self.both(np.stack([order] * BATCH), np.int64)
        for name in "kv":
            np.save(self.folder / name, self.in_cells(self.arrays[name], np.stack([order] * BATCH)))
        out = self.run_tool("--key-index", self.store("order", order))
        self.assertEqual(out.tobytes(), dense.tobytes())

    def test_columns_are_cells(self):
        bias = self.random.standard_normal((BATCH, HEADS, ROWS, KEYS)).astype(np.float32)
        cells = np.swapaxes(self.in_cells(np.swapaxes(bias, -1, -2), self.ORDERS), -1, -2)
        self.both(self.ORDERS, np.int32,
                  of_keys=("--bias", self.store("bias", bias)),
                  of_cells=("--bias", self.store("of_cells", cells)))

    def test_summary(self):
        """The entries have 7 and 5 cells with keys. Causal rows see 5, 6 and 7 cells of the first entry, and 4, 4 and 5
        cells of the second. There are 3 rows and 4 heads. In K and V together, a key of a head has 16 elements."""
        for name in "kv":
            np.save(self.folder / name, self.in_cells(self.arrays[name], self.ORDERS))
        order = self.store("order", self.ORDERS)
        self.run_tool("--key-index", order)
        self.assertRegex(self.summary, rf"(?m)^index +\[2, 7\] order\.npy$")
        self.assertRegex(self.summary, rf"{2 * 16 * 4 * 3 * (7 + 5) * 1e-9:.4g} GFLOP in all")
        self.run_tool("--key-index", order, "--causal", "bottom-right")
        pairs = (5 + 6 + 7) + (4 + 4 + 5)
        self.assertRegex(self.summary, rf"{2 * 16 * 4 * pairs * 1e-9:.4g} GFLOP in all")
        self.assertIn("\ncausal  bottom-right: query row 0 is at key 7 in entry 0\n", self.summary)
        for causal, options, position in (("bottom-right", ("--kv-len", 4), "7 in entry 0"), ("5", (), "5"),
                                          ("upper-left", ("--kv-len", "7,4"), "0")):
            self.run_tool("--key-index", order, "--causal", causal, *options)
            self.assertIn(f"\ncausal  {causal}: query row 0 is at key {position}\n", self.summary)
        self.run_tool("--key-index", self.store("order", self.ORDERS[1]), "--causal", "bottom-right")
        self.assertIn("\ncausal  bottom-right: query row 0 is at key 8\n", self.summary)

    def test_refusals(self):
        def refuse(pattern, order):
            self.refuse(pattern, "--key-index", self.store("order", order))
        for shape in ((KEYS - 1,), (1, KEYS), (BATCH + 1, KEYS)):
            refuse(r"order\.npy has shape .*: must be \[11\] or \[2, 11\]",
                   np.zeros(shape, np.int32))
        refuse("dtype is", np.zeros(KEYS, np.float32))
        refuse(r"key_index\[1\]\[3\] is 2: cell 2 has this index, too",
               np.array([np.arange(KEYS), [0, 1, 2, 2, 4, 5, 6, 7, 8, 9, 10]]))
        refuse(r"key_index\[1\]\[4\] is -2: must be at least -1",
               np.where(np.arange(KEYS) == 4, -2, np.arange(KEYS)))
        self.refuse("cannot read none.npy", "--key-index", "none.npy")


# ------------------------------------------------------------------------------------- refusals


class Refusals(RunTest):
    def setUp(self):
        super().setUp()
        self.store("mask", np.ones((ROWS, KEYS), bool))
        self.store("bias", np.zeros((ROWS, KEYS), np.float32))
        self.store("bits", np.full((ROWS, 2), 255, np.uint8))
        self.store("heads", np.zeros(HEADS, np.float32))
        self.store("q_docs", np.zeros(ROWS, np.int32))
        self.store("kv_docs", np.zeros(KEYS, np.int32))

    def test_the_options_that_refusals_change_are_valid(self):
        self.run_tool("--mask", "mask.npy", "--mask-kind", "attend", "--bias", "bias.npy",
                      "--mask-bits", "bits.npy", "--mask-bits-kind", "attend", "--sinks",
                      "heads.npy", "--alibi", "heads.npy", "--align", "0", "--q-docs",
                      "q_docs.npy", "--kv-docs", "kv_docs.npy", "--bias-scales", "heads.npy")

    def test_options_that_need_other_options(self):
        for options, needed in (
                (("--mask", "mask.npy"), "--mask-kind"), (("--mask-kind", "attend"), "--mask"),
                (("--mask-dims", "qk"), "--mask"), (("--bias-dims", "qk"), "--bias"),
                (("--mask-bits", "bits.npy"), "--mask-bits-kind"),
                (("--mask-bits-kind", "attend"), "--mask-bits"),
                (("--mask-bits-dims", "qk"), "--mask-bits"),
                (("--window", "1,1"), "--causal or --align"),
                (("--alibi", "heads.npy"), "--causal or --align"),
                (("--bias-scales", "heads.npy"), "--bias or --mask-kind add"),
                (("--bias-scales", "heads.npy", "--mask", "mask.npy", "--mask-kind", "attend"),
                 "--bias or --mask-kind add"),
                (("--dropout", "0.5", "--seed", "1"), "--causal or --align"),
                (("--dropout", "0.5", "--align", "0"), "--seed"), (("--seed", "1"), "--dropout"),
                (("--keep-first", "1", "--align", "0"), "--window"),
                (("--q-docs", "q_docs.npy"), "--kv-docs"),
                (("--kv-docs", "kv_docs.npy"), "--q-docs"),
                (("--weights-kind", "softmax"), "--weights"), (("--integers",), "--kv-type"),
                (("--bf16-products", "2"), "--kv-type")):
            with self.subTest(options=options):
                self.refuse(f"option {options[0]} needs option {needed}$", *options, code=2)

    def test_options_that_exclude_each_other(self):
        self.refuse("both say where", "--causal", "0", "--align", "0", code=2)
        self.refuse("both give numbers to add to scores", "--mask", "bias.npy", "--mask-kind", "add",
                    "--bias", "bias.npy", code=2)
        self.refuse("--integers needs --kv-type i8 or q8_0: --kv-type is f16$", "--integers",
                    "--kv-type", "f16", code=2)
        self.refuse("options --integers and --weights do not go together$", "--integers",
                    "--kv-type", "q8_0", "--weights", "w.npy", code=2)
        self.refuse("--bf16-products needs --kv-type bf16: --kv-type is f16$", "--bf16-products", "1",
                    "--kv-type", "f16", code=2)
        self.refuse("options --bf16-products and --weights do not go together$", "--bf16-products", "1",
                    "--kv-type", "bf16", "--weights", "w.npy", code=2)
        self.refuse("options --bf16-products and --dropout do not go together$", "--bf16-products", "1",
                    "--kv-type", "bf16", "--dropout", "0.5", "--seed", "1", "--causal", "upper-left", code=2)

    def test_bad_words_and_numbers(self):
        for option, values, more in (
                ("--mask-kind", ("", "true", "Attend", "bits"), ("--mask", "mask.npy")),
                ("--mask-bits-kind", ("", "add"), ("--mask-bits", "bits.npy")),
                ("--mask-dims", ("", "kq", "bq", "bbk", "xk", "bqkk", "BQK"),
                 ("--mask", "mask.npy", "--mask-kind", "attend")),
                ("--bias-dims", ("", "kq"), ("--bias", "bias.npy")),
                ("--mask-bits-dims", ("", "kq"), ("--mask-bits", "bits.npy", "--mask-bits-kind",
                                                  "attend")),
                ("--align", ("", "middle", "1.5", str(2 ** 63)), ()),
                ("--window", ("", "1", "1,", ",1", "1,2,3", "-2,0", "0,-2", "x,1", "1,x", "1.5,1",
                              f"{2 ** 63},0", "1" * 50 + ",0"), ("--align", "0")),
                ("--keep-first", ("", "-1", "x", str(2 ** 63)),
                 ("--align", "0", "--window", "1,1")),
                ("--kv-len", ("", ",", "1,", ",1", "1,,2", "-1", "x", "1.5", "1 ", " 1", "+1",
                              "1;2", str(2 ** 63), str(2 ** 64)), ()),
                ("--seed", ("", "-1", "x", "1,", "0x1", str(2 ** 64)),
                 ("--align", "0", "--dropout", "0.5")),
                ("--dropout", ("", "x", "1/2"), ("--align", "0", "--seed", "1")),
                ("--softcap", ("", "x", "1,5"), ()), ("--kv-type", ("", "f64", "F16", "i4"), ()),
                ("--out-type", ("", "i8", "q8_0", "float16"), ()),
                ("--weights-kind", ("", "raw", "softma"), ("--weights", "w.npy"))):
            for value in values:
                with self.subTest(option=option, value=value):
                    self.refuse(option, *more, option, value, code=2)

    def test_words_are_spelled_out(self):
        self.refuse("--mask-kind is 'x': must be attend, ignore or add$", "--mask", "mask.npy",
                    "--mask-kind", "x", code=2)
        self.refuse("--out-type is 'x': must be f32, f16 or bf16$", "--out-type", "x", code=2)

    def test_refusals_of_the_library(self):
        for options, word in (
                (("--softcap", "-1"), "softcap"), (("--softcap", "nan"), "softcap"),
                (("--softcap", "inf"), "softcap"), (("--kv-len", "12"), "kv_lens"),
                (("--align", "0", "--dropout", "1", "--seed", "1"), "dropout"),
                (("--align", "0", "--dropout", "-0.1", "--seed", "1"), "dropout"),
                (("--align", "0", "--dropout", "nan", "--seed", "1"), "dropout")):
            with self.subTest(options=options):
                self.refuse(word, *options)

    def test_numbers_for_each_entry(self):
        self.refuse("--kv-len has 3 numbers: must be 1, or 2,", "--kv-len", "1,2,3")
        self.refuse("--seed has 3 numbers: must be 1, or 2,", "--align", "0", "--dropout", "0.5",
                    "--seed", "1,2,3")

    def refuse_array(self, pattern, array, *options):
        """Stores the array in bad.npy. Checks that the command refuses this file by a message that names the file."""
        self.store("bad", array)
        with self.subTest(options=options, dtype=array.dtype, shape=array.shape):
            self.refuse(r"bad\.npy.*" + pattern, *options)

    def test_masks_of_bad_types(self):
        ones = np.ones((ROWS, KEYS))
        for kind, types in (("attend", "f4 f2 f8 i4 i8 i1"), ("ignore", "f4 i1"),
                            ("add", "?1 u1 f8 i4")):
            for dtype in types.split():
                dtype = "?" if dtype == "?1" else dtype
                self.refuse_array("dtype is", ones.astype(dtype), "--mask", "bad.npy",
                                  "--mask-kind", kind)
        for dtype in ("?", "i1", "u2", "f4"):
            self.refuse_array("dtype is", ones.astype(dtype), "--mask-bits", "bad.npy",
                              "--mask-bits-kind", "attend")
        self.refuse_array(r"'\|b1': must be '<f4' \(float32\) or '<f2' \(float16\)$",
                          ones.astype(bool), "--bias", "bad.npy")
        self.refuse_array("Fortran", np.asfortranarray(ones.astype(bool)), "--mask", "bad.npy",
                          "--mask-kind", "attend")

    def test_masks_of_bad_shapes(self):
        mask = ("--mask", "bad.npy", "--mask-kind", "attend")
        for shape, pattern in (
                ((), "rank is 0"), ((1, 1, 1, 1, KEYS), "rank is 5"),
                ((ROWS, KEYS + 1), "last size is 12: must be 1 .. 11"),
                ((ROWS, 0), "last size is 0: must be 1 .. 11"),
                ((ROWS + 1, KEYS), "query rows there must be 1 or 3, not 4"),
                ((0, KEYS), "query rows there must be 1 or 3, not 0"),
                ((BATCH, ROWS, KEYS), "query heads there must be 1 or 4, not 2 .--mask-dims"),
                ((KV_HEADS + 1, ROWS, KEYS), "query heads there must be 1 or 4, not 3"),
                ((3, HEADS, ROWS, KEYS), "batch there must be 1 or 2, not 3")):
            self.refuse_array(pattern, np.ones(shape, bool), *mask)
        self.refuse_array("rank is 5", np.zeros((1, 1, 1, 1, KEYS), np.float32),
                          "--bias", "bad.npy")
        self.refuse_array("--bias-dims", np.zeros((2, ROWS, KEYS), np.float32), "--bias", "bad.npy")

    def test_bits_of_bad_shapes(self):
        bits = ("--mask-bits", "bad.npy", "--mask-bits-kind", "attend")
        for columns in (0, 3, KEYS):
            self.refuse_array(f"last size is {columns}: must be 1 .. 2",
                              np.ones((ROWS, columns), np.uint8), *bits)

    def test_bits_of_whole_bytes(self):
        self.save(normal(ROWS, DIM), normal(16, DIM), normal(16, DIM))
        options = ("--mask-bits", "bad.npy", "--mask-bits-kind", "attend")
        self.store("bad", np.full((ROWS, 2), 255, np.uint8))
        self.assertEqual(self.run_tool(*options).tobytes(), self.run_tool().tobytes())
        (self.folder / "out.npy").unlink()
        self.refuse_array("last size is 3: must be 1 .. 2", np.ones((ROWS, 3), np.uint8), *options)

    def test_dims_that_do_not_fit(self):
        mask = ("--mask", "bad.npy", "--mask-kind", "attend", "--mask-dims")
        bad = np.ones((BATCH, ROWS, KEYS), bool)
        self.refuse_array("has rank 3: must have a letter for each dimension", bad, *mask, "bk")
        self.refuse_array("rank 3", bad, *mask, "bhqk")
        self.refuse_array("batch there must be 1 or 2, not 3", bad.swapaxes(0, 1).copy(), *mask,
                          "bqk")
        self.store("bad", bad)
        self.refuse("--mask-dims is 'bk', but bad.npy has rank 3", *mask, "bk")

    def test_documents(self):
        q, kv = ("--q-docs", "bad.npy", "--kv-docs", "kv_docs.npy"), ("--q-docs", "q_docs.npy",
                                                                     "--kv-docs", "bad.npy")
        for shape in ((ROWS + 1,), (1, ROWS), (BATCH, KEYS), (0,)):
            self.refuse_array(r"must be \[3\] or \[2, 3\]", np.zeros(shape, np.int32), *q)
        for shape in ((ROWS,), (BATCH + 1, KEYS)):
            self.refuse_array(r"must be \[11\] or \[2, 11\]", np.zeros(shape, np.int32), *kv)
        self.refuse_array("rank is 3", np.zeros((BATCH, 1, ROWS), np.int32), *q)
        for dtype in ("f4", "?", "u1", "u8", "i2"):
            self.refuse_array("dtype is", np.zeros(ROWS, dtype), *q)
        for number in (2 ** 31, -2 ** 31 - 1, 2 ** 62):
            self.refuse_array(f"{number} is no number of 32 bits", np.array([0, number, 0]), *q)

    def test_numbers_of_heads(self):
        for options in (("--sinks", "bad.npy"), ("--align", "0", "--alibi", "bad.npy"),
                        ("--bias", "bias.npy", "--bias-scales", "bad.npy")):
            for count in (0, 1, KV_HEADS, HEADS + 1):
                self.refuse_array(f"has {count} numbers: must be {HEADS}",
                                  np.zeros(count, np.float32), *options)
            self.refuse_array("rank is 2: must be 1", np.zeros((1, HEADS), np.float32), *options)
            for dtype in ("f8", "f2", "i4"):
                self.refuse_array("dtype is", np.zeros(HEADS, dtype), *options)

    def test_files_that_cannot_be_read(self):
        for options in (("--mask", "bad.npy", "--mask-kind", "attend"), ("--bias", "bad.npy"),
                        ("--mask-bits", "bad.npy", "--mask-bits-kind", "ignore"),
                        ("--sinks", "bad.npy"), ("--align", "0", "--alibi", "bad.npy"),
                        ("--bias", "bias.npy", "--bias-scales", "bad.npy"),
                        ("--q-docs", "bad.npy", "--kv-docs", "kv_docs.npy"),
                        ("--q-docs", "q_docs.npy", "--kv-docs", "bad.npy")):
            with self.subTest(options=options):
                bad = self.folder / "bad.npy"
                self.refuse(r"cannot read bad\.npy: No such file", *options)
                bad.write_bytes(b"")
                self.refuse(r"bad\.npy: not a whole \.npy file", *options)
                bad.write_bytes(b"numbers, to be sure\n")
                self.refuse(r"bad\.npy: not a \.npy file", *options)
                dtype = {"--mask": bool, "--mask-bits": np.uint8, "--q-docs": np.int64}
                array = np.ones((ROWS,), dtype.get(options[0], np.float32))
                bad.write_bytes(npy(array)[:-1])
                self.refuse(r"bad\.npy: not a whole \.npy file: its shape needs", *options)
                bad.unlink()

    def test_two_results_in_one_file(self):
        self.refuse("-o and --weights name one file", "--weights", "out.npy")
        self.refuse("--lse and --weights name one file", "--lse", "w.npy", "--weights", "./w.npy")
        self.refuse("-o and --lse name one file", "--lse", "out.npy", "--weights", "w.npy")
        self.refuse("cannot write none/w.npy", "--weights", "none/w.npy")

    def test_a_batch_that_is_too_large(self):
        """The arrays have no elements, but some options need a number for each batch entry."""
        for name in "qkv":
            content = with_header(header_of((2 ** 61, 0, 3, 4)))
            (self.folder / f"{name}.npy").write_bytes(content)
        self.refuse("no memory for --causal or --align", "--causal", "1")
        self.refuse("no memory for --kv-len", "--kv-len", "1")


if __name__ == "__main__":
    unittest.main()
