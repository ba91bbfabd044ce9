# SPDX-License-Identifier: Apache-2.0
"""The workloads, with their shapes, their cost, and the roof of the machine that bounds their speed."""

from dataclasses import dataclass

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes of an element of q, of x and of the result
KV_BYTES = {**BYTES, "q8_0": 34 / 32}                # bytes of an element of K and V, or of the matrix of a linear map
WRONG = 1e-3                                         # tolerance, relative to `largest` of Checked (tensors.py)
WRONG_NARROW = {"bfloat16": 1e-2, "q8_0": 3e-2}      # larger tolerances for calls that round numbers to these types
SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "q8_0": "q8_0"}


@dataclass(frozen=True)
class Workload:
    """Attention, with tensors [batch, heads, rows, dim]. All tensors have one type, but if K and V are q8_0, q and the
    result are float32. A causal workload has as many keys as query rows."""
    name: str
    batch: int
    q_heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    dim: int
    causal: bool = False
    padded: bool = False  # batch entry b has (16 - b % 8) / 16 of the keys
    tiny: bool = False    # mostly the overhead of a call, so that its time is reported instead of a percentage
    type: str = "float32"
    token: bool = False   # K and V are [batch, keys, heads, dim], as caches of runtimes are
    mask: str = ""        # the mask `half`, `tree` or `cells` of bench/rows/shape.h, as a dense additive mask
    kind = "attention"

    @property
    def narrow(self):
        """Returns whether the workload is in the list because of attnkit's modes (columns.py). If such a workload is
        chosen, the table has columns for the modes."""
        return is_narrow(self)

    @property
    def tolerance(self):
        """Returns the largest error of a correct output, relative to the largest |v|. A narrow workload with several
        query rows may have larger errors, because the result of a row that sees few keys is as large as elements of V.
        In bfloat16, such a result is rounded to bfloat16. In q8_0, llama.cpp rounds q to q8_0 before it computes the
        weights."""
        if self.decode or not self.narrow:
            return WRONG
        return WRONG_NARROW[self.type]

    @property
    def group(self):
        return self.q_heads // self.kv_heads

    @property
    def q_type(self):
        """Returns the type of q and of the result."""
        return self.type if self.type in BYTES else "float32"

    @property
    def decode(self):
        return self.q_len == 1

    @property
    def few(self):
        """Returns whether there are several query rows and at least 32 times as many keys, as in the benches."""
        return 1 < self.q_len <= self.kv_len // 32

    @property
    def can_fold(self):
        """Returns whether the query heads that share a KV head can be rows of one head."""
        return self.group > 1 and not self.causal

    @property
    def roof(self):
        """Returns the roof that bounds the workload: 'read' for reading memory, 'fma' for fused multiply-adds."""
        return "read" if self.decode else "fma"

    @property
    def shapes(self):
        """Returns the shapes of q, k and v."""
        kv = (self.batch, self.kv_heads, self.kv_len, self.dim)
        return (self.batch, self.q_heads, self.q_len, self.dim), kv, kv

    @property
    def kv_lens(self):
        """Returns the number of keys of each batch entry."""
        missing = [self.kv_len * (b % 8) // 16 if self.padded else 0 for b in range(self.batch)]
        return [self.kv_len - m for m in missing]

    @property
    def flops(self):
        """Returns the FLOPs as `attnkit bench` counts them. For causal attention, given by a flag or by the mask
        `half`, half of all (row, key) pairs are counted. Other masks do not change the count."""
        is_half = self.causal or self.mask == "half"
        pairs = sum(self.q_len * n for n in self.kv_lens) * (0.5 if is_half else 1)
        return 4 * self.dim * self.q_heads * pairs

    @property
    def kv_bytes(self):
        return int(2 * KV_BYTES[self.type] * self.dim) * self.kv_heads * sum(self.kv_lens)

    @property
    def cold_bytes(self):
        """Returns the size of the data that is in no CPU cache before a call: K and V of decode, or of few rows."""
        return self.kv_bytes if self.decode or self.few else 0

    @property
    def bytes(self):
        """Returns the number of bytes that must be moved at least: q, k, v and out once."""
        q_values = self.batch * self.q_heads * self.q_len * self.dim
        return self.kv_bytes + 2 * BYTES[self.q_type] * q_values

    @property
    def work(self):
        """Returns the work of a call in bytes or FLOPs. The work divided by the time is compared with the roof."""
        return self.kv_bytes if self.roof == "read" else self.flops

    @property
    def shape(self):
        """Returns the name of the shape as in `attnkit bench`."""
        return self.shape_of()

    def shape_of(self, d_model=""):
        def pair(a, b, between):
            return f"{a}" if a == b else f"{a}{between}{b}"
        return (f"B{self.batch}_H{pair(self.q_heads, self.kv_heads, '_')}"
                f"_L{pair(self.q_len, self.kv_len, 'x')}_D{self.dim}{d_model}"
                + "_causal" * self.causal + "_pad" * self.padded + "_token" * self.token
                + f"_{self.mask}" * bool(self.mask))


class OfMatrices:
    """The common part of linear maps and layers, whose matrices are in no CPU cache before a call."""
    tiny = False

    @property
    def narrow(self):
        return is_narrow(self)

    @property
    def tolerance(self):
        return WRONG_NARROW.get(self.type, WRONG)

    @property
    def roof(self):
        return "read" if self.decode else "fma"

    @property
    def work(self):
        return self.cold_bytes if self.decode else self.flops


@dataclass(frozen=True)
class Linear(OfMatrices):
    """y [rows, out_dim] = x [rows, in_dim] times the transpose of w [out_dim, in_dim]. All three have one type, but if
    w is q8_0, x and y are float32."""
    name: str
    rows: int
    in_dim: int
    out_dim: int
    type: str = "float32"
    kind = "linear"

    @property
    def x_type(self):
        """Returns the type of x and y."""
        return self.type if self.type in BYTES else "float32"

    @property
    def decode(self):
        return self.rows == 1

    @property
    def flops(self):
        return 2 * self.rows * self.in_dim * self.out_dim

    @property
    def cold_bytes(self):
        return int(KV_BYTES[self.type] * self.in_dim * self.out_dim)

    @property
    def bytes(self):
        return self.cold_bytes + BYTES[self.x_type] * self.rows * (self.in_dim + self.out_dim)

    @property
    def shape(self):
        return f"R{self.rows}_I{self.in_dim}_O{self.out_dim}"


@dataclass(frozen=True)
class Layer(OfMatrices):
    """Self-attention with its projections for one sequence, in float32. Input and output are rows of d_model elements.
    If there is a single row, its key and value are appended to a cache with the other keys."""
    name: str
    attention: Workload
    d_model: int
    type = "float32"
    kind = "layer"

    @property
    def decode(self):
        return self.attention.decode

    @property
    def q_dim(self):
        """Returns how many elements the query heads of a token have together, in q and in the result of attention."""
        return self.attention.q_heads * self.attention.dim

    @property
    def kv_dim(self):
        return self.attention.kv_heads * self.attention.dim

    @property
    def matrix_elements(self):
        return 2 * (self.q_dim + self.kv_dim) * self.d_model

    @property
    def flops(self):
        return self.attention.flops + 2 * self.attention.q_len * self.matrix_elements

    @property
    def cold_bytes(self):
        return 4 * self.matrix_elements + self.attention.cold_bytes

    @property
    def bytes(self):
        return self.cold_bytes + 8 * self.attention.q_len * self.d_model

    @property
    def shape(self):
        return self.attention.shape_of(f"_M{self.d_model}")


def is_narrow(workload):
    return workload.name.startswith("NARROW_")


WORKLOADS = [
    Workload("W1", 8, 1, 1, 128, 256, 512),
    Workload("W2", 2, 8, 8, 3, 5, 64, tiny=True),
    Workload("W3_512", 1, 32, 8, 512, 512, 128, causal=True),
    Workload("W3_2048", 1, 32, 8, 2048, 2048, 128, causal=True),
    Workload("W3_8192", 1, 8, 2, 8192, 8192, 128, causal=True),
    Workload("W4_causal", 1, 12, 12, 1024, 1024, 64, causal=True),
    Workload("W4_full", 1, 12, 12, 1024, 1024, 64),
    Workload("W5_4096", 1, 32, 8, 1, 4096, 128),
    Workload("W5_16384", 1, 32, 8, 1, 16384, 128),
    Workload("W5_4096_f16", 1, 32, 8, 1, 4096, 128, type="float16"),
    Workload("W5_16384_f16", 1, 32, 8, 1, 16384, 128, type="float16"),
    Workload("W5_4096_bf16", 1, 32, 8, 1, 4096, 128, type="bfloat16"),
    Workload("W5_16384_bf16", 1, 32, 8, 1, 16384, 128, type="bfloat16"),
    Workload("W6", 8, 12, 12, 384, 384, 64, padded=True),
    Workload("W7", 1, 20, 20, 448, 1500, 64),
    Workload("CACHE_4096_f16", 1, 32, 8, 1, 4096, 128, type="float16", token=True),
    Workload("CACHE_16384_f16", 1, 32, 8, 1, 16384, 128, type="float16", token=True),
    Workload("CACHE_4096_q8_0", 1, 32, 8, 1, 4096, 128, type="q8_0", token=True),
    Workload("CACHE_16384_q8_0", 1, 32, 8, 1, 16384, 128, type="q8_0", token=True),
    Workload("CACHE_causal", 1, 12, 12, 1024, 1024, 64, mask="half"),
    Workload("CACHE_cells", 1, 32, 8, 8, 4096, 128, type="float16", token=True, mask="cells"),
    Workload("CACHE_tree", 1, 32, 8, 16, 4096, 128, type="float16", token=True, mask="tree"),
    Workload("NARROW_prompt_bf16", 1, 32, 8, 2048, 2048, 128, causal=True, type="bfloat16"),
    Workload("NARROW_full_bf16", 1, 12, 12, 1024, 1024, 64, type="bfloat16"),
    Workload("NARROW_decode_bf16", 1, 32, 8, 1, 16384, 128, type="bfloat16"),
    Workload("NARROW_prompt_q8_0", 1, 32, 8, 512, 512, 128, causal=True, type="q8_0"),
    Workload("NARROW_decode_q8_0", 1, 32, 8, 1, 16384, 128, type="q8_0"),
    Linear("NARROW_linear_512_bf16", 512, 4096, 4096, "bfloat16"),
    Linear("NARROW_linear_1_bf16", 1, 4096, 4096, "bfloat16"),
    Linear("NARROW_linear_512_q8_0", 512, 4096, 4096, "q8_0"),
    Linear("NARROW_linear_1_q8_0", 1, 4096, 4096, "q8_0"),
    Linear("LINEAR_512", 512, 4096, 4096),
    Linear("LINEAR_1", 1, 4096, 4096),
    Layer("LAYER_512", Workload("", 1, 32, 8, 512, 512, 128, causal=True), 4096),
    Layer("LAYER_1", Workload("", 1, 32, 8, 1, 4096, 128), 4096),
]
SLOW = "W3_8192"  # the longest workload, which --quick leaves out


def find(names):
    """Returns the workloads of these names. The part of a name before the first _ stands for all workloads with this
    part: W3 stands for W3_512, W3_2048 and W3_8192. Raises ValueError if no workload has one of the names."""
    def fits(workload, name):
        return name in (workload.name, workload.name.split("_")[0])
    for name in names:
        if not any(fits(w, name) for w in WORKLOADS):
            raise ValueError(f"no workload {name}; there are {', '.join(w.name for w in WORKLOADS)}")
    return [w for w in WORKLOADS if any(fits(w, name) for name in names)]
