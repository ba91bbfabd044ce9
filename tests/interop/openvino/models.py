# SPDX-License-Identifier: Apache-2.0
"""Small models of OpenVINO's operations, with random weights. The encoder and the decoder are also computed in float64,
with NumPy."""

import numpy as np
import openvino
from openvino import opset13 as op

WIDTH, HEADS, DIM, LAYERS = 96, 6, 16, 2
KV_HEADS = 2  # KV heads of the decoder


def weights(kv_heads, seed):
    rng = np.random.default_rng(seed)
    columns = {"q": HEADS * DIM, "k": kv_heads * DIM, "v": kv_heads * DIM}
    return [{**{name: (rng.standard_normal((WIDTH, n)) / 8).astype(np.float32) for name, n in columns.items()},
             "o": (rng.standard_normal((HEADS * DIM, WIDTH)) / 8).astype(np.float32)} for _ in range(LAYERS)]


def heads_of(rows, weight, heads):
    """Projects rows by a matrix. Returns the result as [batch, heads, rows, DIM]."""
    flat = op.matmul(rows, op.constant(weight), False, False)
    split = op.reshape(flat, op.constant(np.array([0, 0, heads, DIM])), True)
    return op.transpose(split, op.constant(np.array([0, 2, 1, 3])))


def repeated(x, heads):
    """Repeats each KV head for all query heads that share it, as converters of models do. `heads` is the number of KV
    heads."""
    wide = op.unsqueeze(x, op.constant(2))
    wide = op.broadcast(wide, op.constant(np.array([1, 1, HEADS // heads, 1, 1])), broadcast_spec="BIDIRECTIONAL")
    return op.reshape(wide, op.constant(np.array([0, HEADS, -1, DIM])), True)


def stack(layers, kv_heads, attend, extra):
    """Returns a model of attention layers with residual connections. `attend` returns the node that computes the
    attention of q, k and v. `extra` has the inputs of the model besides x."""
    x = op.parameter([-1, -1, WIDTH], np.float32, "x")
    rows = x
    for layer in layers:
        q, k, v = (heads_of(rows, layer[name], HEADS if name == "q" else kv_heads) for name in "qkv")
        if kv_heads != HEADS:
            k, v = repeated(k, kv_heads), repeated(v, kv_heads)
        joined = op.transpose(attend(q, k, v), op.constant(np.array([0, 2, 1, 3])))
        joined = op.reshape(joined, op.constant(np.array([0, 0, HEADS * DIM])), True)
        rows = op.add(rows, op.matmul(joined, op.constant(layer["o"]), False, False))
    return openvino.Model([rows], [x, *extra], "stack")


def encoder(kind=bool):
    """A model whose rows see all keys but padding. The mask has Booleans, or numbers that are added to the scores."""
    mask = op.parameter([-1, 1, 1, -1], kind, "mask")
    scale = op.constant(np.float32(0.2))

    def attend(q, k, v):
        return op.scaled_dot_product_attention(q, k, v, mask, scale)
    return stack(weights(HEADS, 1), HEADS, attend, [mask])


def decoder():
    """A causal model whose query heads share KV heads."""
    return stack(weights(KV_HEADS, 2), KV_HEADS, lambda q, k, v: op.scaled_dot_product_attention(q, k, v, causal=True),
                 [])


def state(name, rows, beams):
    """Adds new rows to a state, a tensor that the model keeps between calls. With `beams`, the model first gathers the
    old rows by these indices of batch entries. Returns all rows, and the node that stores all rows."""
    start = op.broadcast(op.constant(np.float32(0)), op.constant(np.array([1, HEADS, 0, DIM])))
    info = openvino.op.util.VariableInfo()
    info.variable_id, info.data_type = name, openvino.Type.f32
    info.data_shape = openvino.PartialShape([-1, HEADS, -1, DIM])
    variable = openvino.op.util.Variable(info)
    past = op.read_value(start, variable)
    if beams is not None:
        past = op.gather(past, beams, op.constant(0))
    whole = op.concat([past, rows], 2)
    return whole, op.assign(whole, variable)


def cached(with_beams):
    """A model of one attention whose keys and values are states: each call appends to the states. With beams, the model
    gathers the states by beam_idx, as exported language models do."""
    inputs = [op.parameter([-1, HEADS, -1, DIM], np.float32, name) for name in "qkv"]
    beams = op.parameter([-1], np.int32, "beam_idx") if with_beams else None
    (k, k_sink), (v, v_sink) = state("k", inputs[1], beams), state("v", inputs[2], beams)
    out = op.scaled_dot_product_attention(inputs[0], k, v)
    return openvino.Model(results=[op.result(out)], sinks=[k_sink, v_sink],
                          parameters=inputs + ([beams] if with_beams else []), name="cached")


def oracle(layers, kv_heads, x, seen, scale):
    """Computes the model of `stack` in float64 for the input x. `seen` says which keys a row sees."""
    rows = x.astype(np.float64)
    for layer in layers:
        q, k, v = ((rows @ layer[name].astype(np.float64)).reshape(*x.shape[:2], -1, DIM).swapaxes(1, 2)
                   for name in "qkv")
        k, v = (np.repeat(y, HEADS // kv_heads, 1) for y in (k, v))
        scores = np.where(seen, q @ k.swapaxes(-1, -2) * scale, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        out = (p / p.sum(-1, keepdims=True)) @ v
        rows = rows + out.swapaxes(1, 2).reshape(*x.shape[:2], -1) @ layer["o"].astype(np.float64)
    return rows


def encoder_oracle(x, mask):
    return oracle(weights(HEADS, 1), HEADS, x, mask, np.float32(0.2).astype(np.float64))


def decoder_oracle(x):
    n = x.shape[1]
    return oracle(weights(KV_HEADS, 2), KV_HEADS, x, np.tri(n, dtype=bool), DIM ** -0.5)
