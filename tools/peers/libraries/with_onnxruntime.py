# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime, by the operator Attention of ONNX, and by ONNX Runtime's own MultiHeadAttention and
GroupQueryAttention. Each operator is used for the workloads that it can express. For operators that need [batch, rows,
heads * dim], tensors are brought into this order before anything is timed. GroupQueryAttention needs a cache [batch,
heads, keys, dim], so workloads with a token-major cache have no form with this operator. Inputs and outputs are bound,
so that no call copies them."""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from libraries.forms import Cannot, Form, fold, mask_of
from tensors import aligned, aligned_copy

OWN = "com.microsoft"
TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16,
         "uint16": TensorProto.BFLOAT16, "int32": TensorProto.INT32, "int64": TensorProto.INT64,
         "bool": TensorProto.BOOL}
ONLY_ERRORS = 3


def version():
    return f"{onnxruntime.__version__}, onnx {onnx.__version__}"


def rows_first(array):
    """Returns [batch, heads, rows, dim] as [batch, rows, heads * dim]."""
    batch, heads, rows, dim = array.shape
    return aligned_copy(array.transpose(0, 2, 1, 3).reshape(batch, rows, heads * dim))


def heads_first(array, heads):
    """Returns the inverse of rows_first."""
    batch, rows, width = array.shape
    return array.reshape(batch, rows, heads, width // heads).transpose(0, 2, 1, 3)


def session(nodes, inputs, outputs, threads, constants=()):
    """Returns a session of these nodes. `inputs` and `outputs` are dicts from names to arrays. `constants` are tensors
    of ONNX that are part of the model."""
    def infos(arrays):
        return [helper.make_tensor_value_info(name, TYPES[str(a.dtype)], a.shape)
                for name, a in arrays.items()]
    graph = helper.make_graph(nodes, "attention", infos(inputs), infos(outputs), constants)
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid(OWN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=11)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = ONLY_ERRORS
    return onnxruntime.InferenceSession(model.SerializeToString(), options,
                                        providers=["CPUExecutionProvider"])


def bound(run, inputs, outputs):
    """Returns a function that runs the session `run` on these arrays without copies. An array that is both an input and
    an output is used in place."""
    values = {}

    def value(array):
        if id(array) not in values:
            values[id(array)] = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
                array, TYPES[str(array.dtype)])
        return values[id(array)]
    binding = run.io_binding()
    for name, array in inputs.items():
        binding.bind_ortvalue_input(name, value(array))
    for name, array in outputs.items():
        binding.bind_ortvalue_output(name, value(array))
    return lambda keep=(inputs, outputs): run.run_with_iobinding(binding)


def build(node, copies, output, setting):
    """Builds a form. For each copy of K and V, `copies` has the inputs and the outputs of the node, as two dicts."""
    run = session([node], *copies[0], setting.threads)
    return Form([bound(run, *arrays) for arrays in copies], output)


def keys_there(workload):
    return np.arange(workload.kv_len) < np.array(workload.kv_lens)[:, None]


def masked(workload, tensors, folded):
    """Returns a dict that has the dense mask of the workload as an input, or an empty dict if there is no mask."""
    return {"mask": mask_of(workload, tensors.q.dtype, folded)} if workload.mask else {}


def attention(workload, tensors, setting, folded=False, pad=None):
    """Builds a form with Attention-24. If `pad` is 'mask', the node gets the padding as a mask. If `pad` is 'lengths',
    the node gets the lengths of the sequences."""
    q = fold(tensors.q, workload) if folded else tensors.q
    extra = masked(workload, tensors, folded)
    names = ["q", "k", "v", *extra]
    if pad == "mask":  # the mask has all query rows, because the operator refuses to broadcast one row
        mask = keys_there(workload)[:, None, None, :]
        extra["mask"] = np.repeat(mask, workload.q_len, axis=2)
        names += ["mask"]
    elif pad == "lengths":
        extra["lengths"] = np.array(workload.kv_lens, dtype=np.int64)
        names += ["", "", "", "lengths"]
    heads, options = q.shape[1], {"is_causal": int(workload.causal)}
    if workload.token:
        options.update(q_num_heads=heads, kv_num_heads=workload.kv_heads)
    order = rows_first if workload.token else (lambda array: array)
    q, out = order(q), order(tensors.out.reshape(q.shape))
    node = helper.make_node("Attention", names, ["out"], **options)
    copies = [({"q": q, "k": order(k), "v": order(v), **extra}, {"out": out}) for k, v in tensors.kv]

    def output():
        return (heads_first(out, heads) if workload.token else out).reshape(tensors.out.shape)
    return build(node, copies, output, setting)


def multi_head(workload, tensors, setting, kv_as_rows):
    """Builds a form with MultiHeadAttention. This operator needs as many KV heads as query heads, so groups of query
    heads are folded into query rows. With `kv_as_rows`, K and V are [batch, rows, heads * dim]."""
    q = rows_first(fold(tensors.q, workload) if workload.can_fold else tensors.q)
    out, order = aligned(q.shape, q.dtype), rows_first if kv_as_rows else (lambda array: array)
    extra = masked(workload, tensors, workload.can_fold)
    names = ["q", "k", "v", *(["", "", "mask"] if extra else [])]
    if workload.padded:
        extra["lengths"] = np.array(workload.kv_lens, dtype=np.int32)
        names += ["", "lengths"]
    node = helper.make_node("MultiHeadAttention", names, ["out"], domain=OWN,
                            num_heads=workload.kv_heads, unidirectional=int(workload.causal))
    copies = [({"q": q, "k": order(k), "v": order(v), **extra}, {"out": out})
              for k, v in tensors.kv]
    shape = tensors.q.shape
    return build(node, copies, lambda: heads_first(out, workload.kv_heads).reshape(shape), setting)


def grouped(workload, tensors, setting):
    """Builds a form with GroupQueryAttention, which is causal. A call computes a whole prompt, or a new token, whose
    key and value the operator appends to the cache in place."""
    q, before = rows_first(tensors.q), workload.kv_len - workload.q_len
    out = aligned(q.shape, q.dtype)
    lengths = {"last": np.full(workload.batch, workload.kv_len - 1, dtype=np.int32),
               "total": np.array([workload.kv_len], dtype=np.int32)}
    past = ["past_k", "past_v"] if before else ["", ""]
    node = helper.make_node("GroupQueryAttention", ["q", "k", "v", *past, "last", "total"],
                            ["out", "all_k", "all_v"], domain=OWN, num_heads=workload.q_heads,
                            kv_num_heads=workload.kv_heads)
    copies = []
    for k, v in tensors.kv:
        new_k, new_v = rows_first(k[:, :, before:]), rows_first(v[:, :, before:])
        inputs = {"q": q, "k": new_k, "v": new_v, **lengths}
        cache = (k, v) if before else (aligned(k.shape, k.dtype), aligned(v.shape, v.dtype))
        if before:
            inputs.update(past_k=k, past_v=v)
        copies.append((inputs, {"out": out, "all_k": cache[0], "all_v": cache[1]}))
    return build(node, copies, lambda: heads_first(out, workload.q_heads), setting)


def forms(workload, tensors, setting):
    def form(builder, **options):
        return lambda: builder(workload, tensors, setting, **options)
    if workload.type == "q8_0":
        raise Cannot("its operators have no q8_0")
    if workload.padded:
        yield "Attention, mask", form(attention, pad="mask")
        yield "Attention, lengths", form(attention, pad="lengths")
    else:
        yield "Attention", form(attention)
    if workload.can_fold:
        yield "Attention, group folded into query rows", form(attention, folded=True)
    if workload.group == 1 or workload.can_fold:
        words = ", group folded into query rows" if workload.group > 1 else ""
        if not workload.causal and not workload.token:  # else K and V must be [batch, rows, heads * dim]
            yield "MultiHeadAttention" + words, form(multi_head, kv_as_rows=False)
        yield "MultiHeadAttention, K and V as rows" + words, form(multi_head, kv_as_rows=True)
    if workload.causal or (workload.decode and not workload.token):
        yield "GroupQueryAttention", form(grouped)
