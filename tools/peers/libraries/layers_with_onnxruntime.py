# SPDX-License-Identifier: Apache-2.0
"""Linear maps and layers with ONNX Runtime. A linear map is a MatMul, whose constant matrix is packed beforehand. A
layer has three operators: one MatMul for q, k and v together, GroupQueryAttention, and a MatMul for the output."""

import numpy as np
from onnx import helper, numpy_helper

from libraries.forms import Cannot, Form
from libraries.with_onnxruntime import OWN, bound, session
from tensors import aligned


def constant(name, w):
    """Returns a matrix in MatMul's order: [inputs, outputs]."""
    return numpy_helper.from_array(np.ascontiguousarray(w.T), name)


def linear(workload, tensors, setting):
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    inputs, outputs = {"x": tensors.x}, {"y": tensors.out}
    calls = [bound(session([node], inputs, outputs, setting.threads, [constant("w", w)]), inputs, outputs)
             for w in tensors.matrices]
    return Form(calls, lambda: tensors.out)


def linear_forms(workload, tensors, setting):
    if workload.type != "float32":
        raise Cannot(f"its MatMul has no {workload.type} on CPUs")
    yield "MatMul", lambda: linear(workload, tensors, setting)


def layer_call(workload, tensors, setting, weights):
    a = workload.attention
    out = tensors.out.reshape(1, a.q_len, -1)
    inputs = {"x": tensors.x.reshape(1, a.q_len, -1),
              "last": np.full(1, a.kv_len - 1, dtype=np.int32),
              "total": np.array([a.kv_len], dtype=np.int32)}
    k, v = weights.cache or (aligned(shape) for shape in a.shapes[1:])
    past = ["past_k", "past_v"] if weights.cache else ["", ""]
    if weights.cache:
        inputs.update(past_k=k, past_v=v)
    nodes = [helper.make_node("MatMul", ["x", "w_qkv"], ["qkv"]),
             helper.make_node("GroupQueryAttention", ["qkv", "", "", *past, "last", "total"],
                              ["attended", "all_k", "all_v"], domain=OWN, num_heads=a.q_heads,
                              kv_num_heads=a.kv_heads),
             helper.make_node("MatMul", ["attended", "w_o"], ["out"])]
    constants = [constant("w_qkv", np.concatenate([weights.q, weights.k, weights.v])),
                 constant("w_o", weights.o)]
    outputs = {"out": out, "all_k": k, "all_v": v}
    return bound(session(nodes, inputs, outputs, setting.threads, constants), inputs, outputs)


def layer(workload, tensors, setting):
    calls = [layer_call(workload, tensors, setting, weights) for weights in tensors.layers]
    return Form(calls, lambda: tensors.out)


def layer_forms(workload, tensors, setting):
    yield "MatMul, GroupQueryAttention", lambda: layer(workload, tensors, setting)
