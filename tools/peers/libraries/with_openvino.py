# SPDX-License-Identifier: Apache-2.0
"""OpenVINO: ScaledDotProductAttention of opset 13 with f32 as inference precision, for tensors of 16
bits also with theirs, compiled for the shapes at hand and for dynamic ones. Groups of query heads are broadcast in the graph, or, for
decode, folded into query rows. Tensors are shared, not copied.
"""

import functools
import itertools

import numpy as np
import openvino as ov
from openvino import PartialShape, Type, opset13

from libraries.forms import Form, fold
from workloads import SHORT

TYPES = {"float32": Type.f32, "float16": Type.f16, "uint16": Type.bf16}


def version():
    return ov.__version__.split("-")[0]


def repeated(node, workload):
    """KV heads, each as often as query heads share it."""
    node = opset13.unsqueeze(node, opset13.constant(np.int64(2)))
    times = opset13.constant(np.array([1, 1, workload.group, 1, 1], dtype=np.int64))
    node = opset13.broadcast(node, times, broadcast_spec="BIDIRECTIONAL")
    shape = opset13.constant(np.array([0, workload.q_heads, -1, workload.dim], dtype=np.int64))
    return opset13.reshape(node, shape, special_zero=True)


def type_of(array):
    return TYPES[str(array.dtype)]


def tensor(array):
    """The same memory."""
    return ov.Tensor(array, array.shape, type_of(array))


def compiled(workload, arrays, setting, precision, dynamic, folded):
    """The model; arrays are q, k, v and, of padded workloads, the mask."""
    def parameter(array):
        shape = [-1 if dynamic and axis in (0, 2) else size for axis, size in enumerate(array.shape)]
        return opset13.parameter(PartialShape(shape), type_of(array))
    parameters = [parameter(array) for array in arrays]
    q, k, v, *bias = parameters
    if workload.group > 1 and not folded:
        k, v = repeated(k, workload), repeated(v, workload)
    out = opset13.scaled_dot_product_attention(q, k, v, *bias, causal=workload.causal)
    return ov.Core().compile_model(ov.Model([out], parameters, "attention"), "CPU", {
        "INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": setting.threads, "ENABLE_CPU_PINNING": False})


def bias(workload):
    """What is added to scores: minus infinity where there is no key, as [batch, 1, 1, kv_len]."""
    there = np.arange(workload.kv_len) < np.array(workload.kv_lens)[:, None]
    return np.where(there, 0, -np.inf).astype(np.float32)[:, None, None, :].copy()


def build(workload, tensors, setting, precision, dynamic, folded):
    q = fold(tensors.q, workload) if folded else tensors.q
    out = tensors.out.reshape(q.shape)
    extra = [bias(workload)] if workload.padded else []
    model = compiled(workload, [q, *tensors.kv[0], *extra], setting, precision, dynamic,
                     folded)

    def caller(k, v):
        request = model.create_infer_request()
        for i, array in enumerate([q, k, v, *extra]):
            request.set_input_tensor(i, tensor(array))
        request.set_output_tensor(tensor(out))
        # extra is named so that it lives as long as the call.
        return lambda extra=extra: request.infer(share_inputs=True, share_outputs=True)
    return Form([caller(k, v) for k, v in tensors.kv], lambda: tensors.out)


def forms(workload, tensors, setting):
    ways = [(False, "")]
    if workload.group > 1:
        ways = [(False, ", KV heads broadcast")]
    if workload.group > 1 and workload.decode:
        ways.append((True, ", group folded into query rows"))
    precisions = ["f32"] if workload.type == "float32" else ["f32", SHORT[workload.type]]
    for (folded, words), dynamic, precision in itertools.product(ways, (False, True), precisions):
        shapes = "dynamic shapes" if dynamic else "static shapes"
        computed = f" in {precision}" if len(precisions) > 1 else ""
        yield (f"SDPA-13{computed}, {shapes}{words}",
               functools.partial(build, workload, tensors, setting, precision, dynamic, folded))
