# SPDX-License-Identifier: Apache-2.0
"""Random cases, each drawn from the seed and the number of the case. A case has tensors, masks and options in the forms
that attnkit and PyTorch take. For masks and biases that PyTorch lacks, the case has dense arrays, from which
reference.py makes a mask or score mod for PyTorch."""

import numpy as np

import call
from tensors import rounded

KINDS = ("plain", "causal", "bool mask", "float mask", "composed", "flex")
Q_LENS = (1, 1, 1, 2, 3, 5, 8, 17, 33, 65, 129, 300)
KV_LENS = (1, 2, 5, 16, 17, 63, 64, 100, 127, 128, 129, 200, 256, 257, 400, 511, 513, 700, 1100)
DIMS = (1, 2, 3, 8, 16, 17, 33, 40, 64, 80, 96, 128, 130)
MOST_PRODUCTS = 2e7
UNSEEN = -np.inf


class Case:
    """Besides number, kind, shape and out_type, a case has

    q, k, v    the tensors in their stored types
    scale      the scale, or None for the default
    weights    whether the call asks for the weights
    fields     the other fields of attnkit's call
    seen       which keys a row sees, an array [batch, q_heads, q_len, kv_len]
    bias       the sum that is added to the scores, in the shape of seen
    size       the sum of the magnitudes of bias's terms, in the same shape
    sinks      a sink for each query head, or None
    softcap    the cap, or 0
    torch      the options of scaled_dot_product_attention, or None if reference.py makes a mask or score mod"""

    def __init__(self, seed, number):
        self.number, self.random = number, np.random.default_rng([seed, number])
        self.kind = KINDS[number % len(KINDS)]
        self.draw_shape()
        self.draw_tensors()
        shape = (self.batch, self.q_heads, self.q_len, self.kv_len)
        self.fields, self.torch, self.sinks, self.softcap = {}, None, None, 0.0
        self.seen = np.ones(shape, dtype=bool)
        self.bias, self.size = np.zeros(shape), np.zeros(shape)
        {"plain": self.draw_plain, "causal": self.draw_causal, "bool mask": self.draw_bool_mask,
         "float mask": self.draw_float_mask, "composed": self.draw_composed,
         "flex": self.draw_flex}[self.kind]()
        if self.scale is not None:
            self.set_flags(call.SCALE_GIVEN, scale=self.scale)

    # ------------------------------------------------------------------------------ helpers

    def below(self, n):
        return int(self.random.integers(n))

    def one_of(self, values):
        return values[self.below(len(values))]

    def one_in(self, n):
        return self.below(n) == 0

    def set_flags(self, flags, **fields):
        self.fields["flags"] = self.fields.get("flags", 0) | flags
        self.fields |= fields

    def __str__(self):
        types = "/".join(str(array.dtype) for array in (self.q, self.k, self.v))
        return (f"case {self.number} ({self.kind}: batch {self.batch}, heads {self.q_heads}/"
                f"{self.kv_heads}, {self.q_len} x {self.kv_len}, dims {self.head_dim}/"
                f"{self.value_dim}, {types} to {self.out_type}, "
                f"{' '.join(sorted(self.fields)) or 'no options'})")

    # ------------------------------------------------------------------- shapes and tensors

    def draw_shape(self):
        while True:
            self.batch, self.kv_heads = 1 + self.below(3), 1 + self.below(3)
            self.q_heads = self.kv_heads * self.one_of((1, 1, 2, 3, 4))
            self.q_len, self.kv_len = self.one_of(Q_LENS), self.one_of(KV_LENS)
            self.head_dim = self.one_of(DIMS)
            self.value_dim = self.head_dim if self.one_in(2) else self.one_of(DIMS)
            pairs = self.batch * self.q_heads * self.q_len * self.kv_len
            if pairs * (self.head_dim + self.value_dim) < MOST_PRODUCTS:
                return

    def draw_tensor(self, heads, rows, dim):
        values = self.random.standard_normal((self.batch, heads, rows, dim), dtype=np.float32)
        values *= np.float32(self.one_of((1, 1, 0.1, 4)))
        return rounded(values, self.one_of(("float32", "float32", "float16", "bfloat16")))

    def draw_tensors(self):
        self.q = self.draw_tensor(self.q_heads, self.q_len, self.head_dim)
        self.k = self.draw_tensor(self.kv_heads, self.kv_len, self.head_dim)
        self.v = self.draw_tensor(self.kv_heads, self.kv_len, self.value_dim)
        self.out_type = self.one_of(("float32", "float32", "float16", "bfloat16"))
        self.scale = self.one_of((None, None, 0.0, 1.0, -0.3, self.random.uniform(0, 2)))
        self.weights = self.one_in(3)

    # -------------------------------------------------- options that attnkit and PyTorch share

    def draw_plain(self):
        self.torch = {}

    def draw_causal(self):
        """Makes the call causal. PyTorch's is_causal is aligned to the upper left, and on CPUs gives NaN with a scale
        of 0 or less. recipes.py tests these scales."""
        if self.scale is not None and self.scale <= 0:
            self.scale = 1.0
        self.set_flags(call.CAUSAL, align=call.UPPER_LEFT)
        self.torch = {"is_causal": True}
        self.seen &= self.distance(np.zeros(self.batch)) <= 0

    def broadcast_shape(self):
        """Draws the shape of a mask that has 2, 3 or 4 dimensions and broadcasts."""
        batch, heads, rows = (self.one_of((1, n)) for n in (self.batch, self.q_heads, self.q_len))
        shape = (batch, heads, rows, self.kv_len)
        return shape[self.one_of((0, 0, 1, 2)):]

    def draw_seen(self, shape):
        """Draws an array of Booleans. Most rows are true at some keys, and a few rows at no key or at all keys."""
        seen = self.random.random(shape) < self.one_of((0.1, 0.5, 0.9))
        rows = self.random.integers(8, size=shape[:-1])
        return np.where(rows[..., None] == 0, False, np.where(rows[..., None] == 1, True, seen))

    def mask_as(self, name, seen):
        """Returns the fields of a mask of bytes or bits, of kind ATTEND or IGNORE."""
        kind = self.one_of((call.ATTEND, call.IGNORE))
        said = seen if kind == call.ATTEND else ~seen
        if name == "mask_bits":
            return call.mask_fields(name, call.packed_bits(said), kind, columns=seen.shape[-1])
        true = self.random.integers(1, 256, size=said.shape)  # any byte but 0 means true
        return call.mask_fields(name, np.where(said, true, 0).astype(np.uint8), kind)

    def draw_bool_mask(self):
        seen = self.draw_seen(self.broadcast_shape())
        self.fields |= self.mask_as(self.one_of(("mask", "mask_bits")), seen)
        self.torch = {"attn_mask": seen}
        self.seen = self.seen & seen

    def draw_bias(self, shape):
        """Draws the stored numbers of a bias. Some of them are -infinity."""
        numbers = self.random.standard_normal(shape, dtype=np.float32) * np.float32(self.one_of((1, 8)))
        numbers = np.where(self.draw_seen(shape), numbers, np.float32(UNSEEN))
        return rounded(numbers, self.one_of(("float32", "float16", "bfloat16")))

    def add_bias(self, bias):
        """Adds a bias to the scores. A key is masked if its element of the bias is -infinity or missing."""
        self.fields |= call.mask_fields("bias", bias)
        numbers = call.widened(bias).astype(np.float64)
        seen = numbers != UNSEEN
        numbers = self.to_all_keys(np.where(seen, numbers, 0))
        self.seen = self.seen & self.to_all_keys(seen)
        self.bias, self.size = self.bias + numbers, self.size + abs(numbers)

    def to_all_keys(self, array):
        """Returns the array with columns of zeros added, so that it has a column for every key."""
        missing = self.kv_len - array.shape[-1]
        return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)])

    def draw_float_mask(self):
        bias = self.draw_bias(self.broadcast_shape())
        self.add_bias(bias)
        self.torch = {"attn_mask": call.widened(bias).astype(np.float64)}

    # ------------------------- options for which PyTorch needs a dense mask or a score mod

    def distance(self, offsets):
        """Returns key index minus position as an array [batch, 1, q_len, kv_len]. `offsets` has the position of row 0
        of each sequence."""
        position = np.asarray(offsets)[:, None] + np.arange(self.q_len)
        return (np.arange(self.kv_len) - position[:, :, None])[:, None]

    def draw_lengths(self):
        """Draws kv_lens for some cases, and align with its offsets. Returns the position of row 0 of each sequence."""
        lens = np.full(self.batch, self.kv_len, dtype=np.int64)
        if self.one_in(2):
            lens = self.random.integers(self.kv_len + 1, size=self.batch, dtype=np.int64)
            self.fields["kv_lens"] = lens
            self.seen = self.seen & (np.arange(self.kv_len) < lens[:, None])[:, None, None]
        align = self.one_of((call.UPPER_LEFT, call.BOTTOM_RIGHT, call.OFFSETS))
        self.fields["align"] = align
        if align == call.OFFSETS:
            offsets = self.random.integers(-20, self.kv_len + 20, size=self.batch, dtype=np.int64)
            self.fields["q_offsets"] = offsets
            return offsets
        return np.zeros(self.batch) if align == call.UPPER_LEFT else lens - self.q_len

    def draw_positional(self):
        """Draws the lengths, the positions, and the options that depend on positions: causal, windows and slopes."""
        distance = self.distance(self.draw_lengths())
        if self.one_in(2):
            self.set_flags(call.CAUSAL)
            self.seen = self.seen & (distance <= 0)
        if self.one_in(2):
            left, right = (self.one_of((-1, 0, 1, 7, 100, 300)) for _ in range(2))
            keep = self.one_of((0, 0, 1, 4, 130))
            self.fields |= {"left": left, "right": right, "keep_first": keep}
            near = (left == -1) | (-distance <= left)
            near = near & ((right == -1) | (distance <= right))
            self.seen = self.seen & (near | (np.arange(self.kv_len) < keep))
        if self.one_in(2):
            slopes = self.random.uniform(-0.5, 0.5, self.q_heads).astype(np.float32)
            self.fields["alibi_slopes"] = slopes
            added = slopes.astype(np.float64)[:, None, None] * distance
            self.bias, self.size = self.bias + added, self.size + abs(added)

    def draw_documents(self):
        q_docs = np.sort(self.random.integers(3, size=(self.batch, self.q_len), dtype=np.int32))
        kv_docs = np.sort(self.random.integers(3, size=(self.batch, self.kv_len), dtype=np.int32))
        self.fields |= {"q_segment_ids": q_docs, "kv_segment_ids": kv_docs}
        self.seen = self.seen & (q_docs[:, :, None] == kv_docs[:, None])[:, None]

    def draw_short_mask(self, name):
        """Draws a mask or bias that may have fewer columns than there are keys. The keys after its last column are
        masked."""
        columns = self.kv_len if self.one_in(2) else 1 + self.below(self.kv_len)
        shape = (*self.broadcast_shape()[:-1], columns)
        if name == "bias":
            self.add_bias(self.draw_bias(shape))
            return
        seen = self.draw_seen(shape)
        self.fields |= self.mask_as(name, seen)
        self.seen = self.seen & self.to_all_keys(seen)

    def draw_composed(self):
        self.draw_positional()
        for name in ("mask", "mask_bits", "bias"):
            if self.one_in(3):
                self.draw_short_mask(name)
        if self.one_in(3):
            self.draw_documents()
        if self.one_in(3):
            self.sinks = self.random.standard_normal(self.q_heads).astype(np.float32) * 3
            self.fields["sinks"] = self.sinks

    def draw_flex(self):
        """Draws options that attnkit and flex_attention can express. A case of this kind always has a softcap. Both
        libraries apply the softcap before they add the slopes."""
        self.draw_positional()
        if self.one_in(3):
            self.draw_documents()
        self.softcap = self.one_of((0.5, 3.0, 20.0, 50.0))
        self.fields["softcap"] = self.softcap
