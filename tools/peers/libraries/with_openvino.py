# SPDX-License-Identifier: Apache-2.0
"""OpenVINO, by ScaledDotProductAttention of opset 13, compiled for the given shapes and for dynamic shapes. The
inference precision is f32; for tensors of 16 bits, there is also a form with the precision of their type. KV heads are
broadcast to their groups of query heads in the graph, or the groups are folded into query rows. Token-major tensors are
transposed in the graph. OpenVINO's tensors share the memory of the arrays."""

import functools
import itertools

import numpy as np
import openvino as ov
from openvino import PartialShape, Type, opset13

from libraries.forms import Cannot, Form, fold, mask_of
from workloads import SHORT

TYPES = {"float32": Type.f32, "float16": Type.f16, "uint16": Type.bf16}


def version():
    return ov.__version__.split("-")[0]


def repeated(node, workload):
    """Repeats each KV head for the query heads that share it."""
    node = opset13.unsqueeze(node, opset13.constant(np.int64(2)))
    times = opset13.constant(np.array([1, 1, workload.group, 1, 1], dtype=np.int64))
    node = opset13.broadcast(node, times, broadcast_spec="BIDIRECTIONAL")
    shape = opset13.constant(np.array([0, workload.q_heads, -1, workload.dim], dtype=np.int64))
    return opset13.reshape(node, shape, special_zero=True)


def type_of(array):
    return TYPES[str(array.dtype)]


def tensor(array):
    """Returns a tensor that shares the array's memory."""
    return ov.Tensor(array, array.shape, type_of(array))


def heads_first(node):
    """Returns [batch, keys, heads, dim] as [batch, heads, keys, dim]."""
    return opset13.transpose(node, opset13.constant(np.array([0, 2, 1, 3], dtype=np.int64)))


def compiled(workload, arrays, setting, precision, dynamic, folded):
    """Returns the compiled model. `arrays` are q, k, v and, if biases() returns an array, this array."""
    def parameter(array, lengths=(0, 2)):
        shape = [-1 if dynamic and axis in lengths else size for axis, size in enumerate(array.shape)]
        return opset13.parameter(PartialShape(shape), type_of(array))
    q, k, v, *bias = arrays
    lengths = (0, 1) if workload.token else (0, 2)
    parameters = [parameter(q), parameter(k, lengths), parameter(v, lengths), *map(parameter, bias)]
    q, k, v, *bias = parameters
    if workload.token:
        k, v = heads_first(k), heads_first(v)
    if workload.group > 1 and not folded:
        k, v = repeated(k, workload), repeated(v, workload)
    out = opset13.scaled_dot_product_attention(q, k, v, *bias, causal=workload.causal)
    return compile_for(ov.Model([out], parameters, "attention"), setting, precision)


def compile_for(model, setting, precision):
    return ov.Core().compile_model(model, "CPU", {
        "INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": setting.threads, "ENABLE_CPU_PINNING": False})


def biases(workload, dtype, folded):
    """Returns a list with the array that is added to scores, or an empty list. The array is a dense mask, or the
    padding as [batch, 1, 1, kv_len]: 0 for the keys of a batch entry, minus infinity after them."""
    if workload.mask:
        return [mask_of(workload, dtype, folded)]
    if not workload.padded:
        return []
    there = np.arange(workload.kv_len) < np.array(workload.kv_lens)[:, None]
    return [np.where(there, 0, -np.inf).astype(dtype)[:, None, None, :].copy()]


def in_memory(kv, workload):
    """Returns K and V in the order in which they are dense in memory."""
    return [array.swapaxes(1, 2) if workload.token else array for array in kv]


def build(workload, tensors, setting, precision, dynamic, folded):
    q = fold(tensors.q, workload) if folded else tensors.q
    out = tensors.out.reshape(q.shape)
    extra = biases(workload, q.dtype, folded)
    copies = [[q, *in_memory(kv, workload), *extra] for kv in tensors.kv]
    model = compiled(workload, copies[0], setting, precision, dynamic, folded)

    def caller(arrays):
        request = model.create_infer_request()
        for i, array in enumerate(arrays):
            request.set_input_tensor(i, tensor(array))
        request.set_output_tensor(tensor(out))
        # The tensors share the memory of the arrays. The default argument keeps the arrays alive as long as the lambda.
        return lambda arrays=arrays: request.infer(share_inputs=True, share_outputs=True)
    return Form([caller(arrays) for arrays in copies], lambda: tensors.out)


def forms(workload, tensors, setting):
    if workload.type == "q8_0":
        raise Cannot("its SDPA has no q8_0")
    ways = [(False, "")]
    if workload.group > 1:
        ways = [(False, ", KV heads broadcast")]
    if workload.can_fold:
        ways.append((True, ", group folded into query rows"))
    precisions = ["f32"] if workload.type == "float32" else ["f32", SHORT[workload.type]]
    for (folded, words), dynamic, precision in itertools.product(ways, (False, True), precisions):
        shapes = "dynamic shapes" if dynamic else "static shapes"
        computed = f" in {precision}" if len(precisions) > 1 else ""
        yield (f"SDPA-13{computed}, {shapes}{words}",
               functools.partial(build, workload, tensors, setting, precision, dynamic, folded))
