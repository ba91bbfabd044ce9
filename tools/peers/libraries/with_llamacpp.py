# SPDX-License-Identifier: Apache-2.0
"""llama.cpp, by the operators of ggml's shared libraries, which llama-cpp-python builds for this CPU. The graph is
built beforehand, and a call only runs it. The forms (forms.py) are flash attention, and matrix products with a softmax
in between. For the matrix products, llama.cpp's cache keeps V transposed. With V in q8_0, only flash attention is
possible. Token-major K and V are permuted views, as in llama.cpp's cache. The transposed V of the matrix products is a
copy. q and the result are float32, as in llama.cpp's models. K and V have the workload's type. Causal attention is
expressed by a mask."""

import ctypes
from ctypes import c_bool, c_char_p, c_float, c_int, c_int64, c_size_t, c_void_p
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from libraries.forms import Cannot, Form
from tensors import BLOCK, additive, aligned, aligned_copy, widened

F32, F16, Q8_0, BF16 = 0, 1, 8, 30  # enum ggml_type
KV_TYPES = {"float32": F32, "float16": F16, "bfloat16": BF16, "q8_0": Q8_0}
ELEMENTS = {Q8_0: BLOCK}   # elements in one item of an array; 1 for the other types
CONTEXT = 1 << 20          # bytes for the descriptions of the tensors and the graph
NO_BIAS = NO_SOFTCAP = 0.0


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool)]


POINTER = c_void_p
BASE = {"version": (c_char_p,),
        "init": (POINTER, InitParams),
        "nbytes": (c_size_t, POINTER),
        "new_tensor_4d": (POINTER, POINTER, c_int, c_int64, c_int64, c_int64, c_int64),
        "permute": (POINTER, POINTER, POINTER, c_int, c_int, c_int, c_int),
        "flash_attn_ext": (POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, c_float, c_float, c_float),
        "mul_mat": (POINTER, POINTER, POINTER, POINTER),
        "soft_max_ext": (POINTER, POINTER, POINTER, POINTER, c_float, c_float),
        "new_graph": (POINTER, POINTER),
        "build_forward_expand": (None, POINTER, POINTER),
        "backend_cpu_buffer_from_ptr": (POINTER, POINTER, c_size_t),
        "backend_tensor_alloc": (c_int, POINTER, POINTER, POINTER),
        "backend_view_init": (c_int, POINTER),
        "backend_graph_compute": (c_int, POINTER, POINTER)}
CPU = {"backend_cpu_init": (POINTER,),
       "backend_cpu_set_n_threads": (None, POINTER, c_int)}


def load():
    """Loads ggml. Returns its functions under their names without 'ggml_'."""
    package = find_spec("llama_cpp")
    if not package:
        raise ImportError("no llama_cpp")
    ggml = SimpleNamespace()
    for file, functions in (("libggml-base.so", BASE), ("libggml-cpu.so", CPU)):
        library = ctypes.CDLL(str(Path(package.origin).parent / "lib" / file), ctypes.RTLD_GLOBAL)
        for name, (result, *arguments) in functions.items():
            function = getattr(library, "ggml_" + name)
            function.restype, function.argtypes = result, arguments
            setattr(ggml, name, function)
    return ggml


ggml = load()


def version():
    return f"(llama-cpp-python {metadata.version('llama-cpp-python')}, ggml {ggml.version().decode()})"


class Graph:
    """A graph of operators. The tensors lie in NumPy arrays. ggml writes shapes in reverse order."""

    def __init__(self, backend):
        self.backend, self.arrays = backend, []
        self.context = ggml.init(InitParams(CONTEXT, None, True))

    def place(self, tensor, array):
        size = ggml.nbytes(tensor)
        assert size == array.nbytes, (size, array.shape)
        buffer = ggml.backend_cpu_buffer_from_ptr(array.ctypes.data, size)
        assert ggml.backend_tensor_alloc(buffer, tensor, array.ctypes.data) == 0
        self.arrays.append(array)  # the library keeps only the address of the array
        return tensor

    def tensor(self, array, type):
        *sizes, last = array.shape
        sizes = [last * ELEMENTS.get(type, 1), *reversed(sizes)]
        return self.place(ggml.new_tensor_4d(self.context, type, *sizes), array)

    def matrix(self, array, type):
        """Returns the tensor of a matrix. Each item of an array of q8_0 is a block."""
        return self.tensor(array.reshape(1, 1, *array.shape), type)

    def cached(self, array, workload):
        """Returns the tensor of K or V."""
        type = KV_TYPES[workload.type]
        if not workload.token:
            return self.tensor(array, type)
        view = ggml.permute(self.context, self.tensor(array.swapaxes(1, 2), type), 0, 2, 1, 3)
        assert ggml.backend_view_init(view) == 0
        return view

    def apply(self, operator, tensors, constants, out):
        return self.place(operator(self.context, *tensors, *constants), out)

    def finish(self, result):
        self.graph = ggml.new_graph(self.context)
        ggml.build_forward_expand(self.graph, result)

    def __call__(self):
        assert ggml.backend_graph_compute(self.backend, self.graph) == 0


def scale(workload):
    return workload.dim ** -0.5


def needed_mask(workload, dtype):
    return additive(workload, dtype) if workload.causal or workload.mask else None


def float32(array):
    return aligned_copy(widened(array).astype(np.float32))


def flash(workload, tensors, backend):
    """Builds the form that calls ggml's flash attention. The result of ggml's op is [batch, rows, heads, dim]."""
    q, mask = float32(tensors.q), needed_mask(workload, np.float16)
    out = aligned((workload.batch, workload.q_len, workload.q_heads, workload.dim))

    def graph(k, v):
        made = Graph(backend)
        inputs = [made.tensor(q, F32), made.cached(k, workload), made.cached(v, workload),
                  None if mask is None else made.tensor(mask, F16)]
        made.finish(made.apply(ggml.flash_attn_ext, inputs, (scale(workload), NO_BIAS, NO_SOFTCAP), out))
        return made
    return Form([graph(k, v) for k, v in tensors.kv], lambda: out.swapaxes(1, 2))


def products(workload, tensors, backend):
    """Builds the form of two matrix products with a softmax in between. The scores and weights of all query rows are in
    memory."""
    q, mask = float32(tensors.q), needed_mask(workload, np.float32)
    scores, weights = (aligned((*q.shape[:3], workload.kv_len)) for _ in range(2))
    out = aligned(q.shape)

    def graph(k, v):
        made = Graph(backend)
        made_k, made_q = made.cached(k, workload), made.tensor(q, F32)
        made_v = made.tensor(aligned_copy(v.swapaxes(2, 3)), KV_TYPES[workload.type])
        made_mask = None if mask is None else made.tensor(mask, F32)
        made_scores = made.apply(ggml.mul_mat, (made_k, made_q), (), scores)
        made_weights = made.apply(ggml.soft_max_ext, (made_scores, made_mask), (scale(workload), NO_BIAS),
                                  weights)
        made.finish(made.apply(ggml.mul_mat, (made_v, made_weights), (), out))
        return made
    return Form([graph(k, v) for k, v in tensors.kv], lambda: out)


def backend_of(setting):
    backend = ggml.backend_cpu_init()
    ggml.backend_cpu_set_n_threads(backend, setting.threads)
    return backend


def forms(workload, tensors, setting):
    if workload.padded:
        raise Cannot("its operators have no lengths of sequences")
    backend = backend_of(setting)
    yield "flash attention", lambda: flash(workload, tensors, backend)
    if workload.type != "q8_0":
        yield "products, V transposed", lambda: products(workload, tensors, backend)
