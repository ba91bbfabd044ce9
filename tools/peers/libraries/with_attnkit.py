# SPDX-License-Identifier: Apache-2.0
"""attnkit, through ctypes on the shared library of a build. A call is the C call and what ctypes
adds to it; several threads each make the same call with their own share. For decode, K lies in rows or
in tiles of 16 keys, as attnkit_append writes either.
"""

import ctypes
import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from libraries.forms import Cannot, Form
from tensors import aligned_copy

CAUSAL, TILED = 1, 8
BOTTOM_RIGHT = 2
TILE_KEYS = 16
MESSAGE_SIZE = 256
TYPES = {"float32": 0, "float16": 1, "bfloat16": 2}
TENSORS = ("q", "k", "v", "out", "lse")
STATES = [f"{when}_{part}" for when in ("before", "after") for part in ("max", "sum", "out")]
MASKS = ("mask", "mask_bits", "bias")
SIZES = ("batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_dim", "value_dim")


class Args(ctypes.Structure):
    """attnkit_attention_args"""
    _fields_ = [
        ("size", ctypes.c_size_t), ("flags", ctypes.c_uint32), ("align", ctypes.c_int),
        *((name, ctypes.c_int64) for name in SIZES),
        *((name, ctypes.c_void_p) for name in TENSORS),
        *((name + "_type", ctypes.c_int) for name in ("q", "k", "v", "out")),
        *((name + "_scales", ctypes.c_void_p) for name in ("k", "v")),
        *((name + "_scale_group", ctypes.c_int64) for name in ("k", "v")),
        *((name + "_strides", ctypes.c_int64 * 3) for name in (*TENSORS, "k_scale", "v_scale")),
        ("page_table", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("page_table_stride", "page_size", "pages")),
        *((name, ctypes.c_void_p) for name in ("q_starts", "kv_starts")),
        ("first_key", ctypes.c_int64), *((name, ctypes.c_void_p) for name in STATES),
        ("scale", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("kv_lens", "q_offsets")),
        *((name, ctypes.c_int64) for name in ("window_left", "window_right", "keep_first")),
        *((name, ctypes.c_void_p) for name in ("q_docs", "kv_docs", *MASKS)),
        *((name, ctypes.c_int) for name in ("mask_kind", "mask_bits_kind", "bias_type")),
        *((name + "_columns", ctypes.c_int64) for name in MASKS),
        *((name + "_strides", ctypes.c_int64 * 3) for name in MASKS),
        ("softcap", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("alibi_slopes", "sinks")),
        ("dropout", ctypes.c_double), ("dropout_seeds", ctypes.c_void_p),
        ("weights", ctypes.c_void_p), ("weights_kind", ctypes.c_int),
        ("weights_strides", ctypes.c_int64 * 3)]


class Exec(ctypes.Structure):
    """attnkit_exec"""
    _fields_ = [
        ("size", ctypes.c_size_t), ("workspace", ctypes.c_void_p),
        ("workspace_size", ctypes.c_size_t), ("isa", ctypes.c_char_p),
        ("threads", ctypes.c_int64), ("thread", ctypes.c_int64),
        ("parallel_for", ctypes.c_void_p), ("pool", ctypes.c_void_p), ("barrier", ctypes.c_void_p)]


class IsaInfo(ctypes.Structure):
    """attnkit_isa_info"""
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("needs", ctypes.c_char_p),
                ("built", ctypes.c_int32), ("can_run", ctypes.c_int32), ("reason", ctypes.c_char_p)]


@functools.lru_cache
def load(path):
    library = ctypes.CDLL(path)
    library.attnkit_version.restype = ctypes.c_char_p
    return library


def library_version(path):
    return load(path).attnkit_version().decode()


def isas(path, scalar=False):
    """Those that can run here, the best one first, with or without the scalar one."""
    found = []
    for i in range(load(path).attnkit_isa_count()):
        info = IsaInfo(size=ctypes.sizeof(IsaInfo))
        if load(path).attnkit_isa_get(i, ctypes.byref(info), None) == 0 and info.can_run:
            found.append(info.name.decode())
    return [isa for isa in reversed(found) if scalar or isa != "scalar"]


def version():
    return "through ctypes"


def check(status, message):
    if status:
        raise Cannot(message.value.decode())


def describe(workload, q, k, v, out, kv_lens):
    kind = TYPES[workload.type]
    args = Args(size=ctypes.sizeof(Args), batch=workload.batch, q_heads=workload.q_heads,
                kv_heads=workload.kv_heads, q_len=workload.q_len, kv_len=workload.kv_len,
                head_dim=workload.dim, q=q.ctypes.data, k=k.ctypes.data, v=v.ctypes.data,
                out=out.ctypes.data, q_type=kind, k_type=kind, v_type=kind, out_type=kind)
    if workload.causal:
        args.flags, args.align = CAUSAL, BOTTOM_RIGHT
    if workload.padded:
        args.kv_lens = kv_lens.ctypes.data
    return args


def make_shares(library, args, setting, query="attnkit_attention_workspace"):
    """What each thread passes as exec, and the memory behind it."""
    shares = [Exec(size=ctypes.sizeof(Exec), isa=setting.isa.encode(), threads=setting.threads,
                   thread=i) for i in range(setting.threads)]
    size, message = ctypes.c_size_t(), ctypes.create_string_buffer(MESSAGE_SIZE)
    check(getattr(library, query)(ctypes.byref(args), ctypes.byref(shares[0]), ctypes.byref(size),
                                  message), message)
    workspace = np.empty(size.value, dtype=np.uint8)
    for share in shares:
        share.workspace, share.workspace_size = workspace.ctypes.data, size.value
    return shares, workspace


def on_threads(pool, shares):
    """One call of all shares; the first is this thread's."""
    others = [pool.submit(share) for share in shares[1:]]
    shares[0]()
    for other in others:
        other.result()


def make_calls(function, args, execs):
    """A call of all shares for each of the args."""
    pool = ThreadPoolExecutor(max(1, len(execs) - 1))
    calls = []
    for one in args:
        shares = [functools.partial(function, ctypes.byref(one), ctypes.byref(share), None)
                  for share in execs]
        calls.append(shares[0] if len(shares) == 1 else
                     functools.partial(on_threads, pool, shares))
    return calls


def in_tiles(k):
    """[batch, heads, keys, dim] as [batch, heads, tiles, dim, 16]."""
    *heads, keys, dim = k.shape
    return aligned_copy(k.reshape(*heads, keys // TILE_KEYS, TILE_KEYS, dim).swapaxes(3, 4))


def build(workload, tensors, setting, tiled=False):
    library = load(setting.library)
    kv_lens = np.array(workload.kv_lens, dtype=np.int64)
    kv = [(in_tiles(k) if tiled else k, v) for k, v in tensors.kv]
    args = [describe(workload, tensors.q, k, v, tensors.out, kv_lens) for k, v in kv]
    for one in args:
        one.flags |= TILED * tiled
    execs, workspace = make_shares(library, args[0], setting)
    # The default names what must live as long as the calls.
    return Form(make_calls(library.attnkit_attention, args, execs),
                lambda keep=(kv_lens, kv, workspace): tensors.out)


def forms(workload, tensors, setting):
    yield "attnkit_attention", lambda: build(workload, tensors, setting)
    if workload.decode and workload.kv_len % TILE_KEYS == 0:
        yield "attnkit_attention, K in tiles", lambda: build(workload, tensors, setting, tiled=True)
    if setting.threads > 1:  # it starts no thread: whether a call is worth several, its caller says
        alone = setting._replace(threads=1)
        yield "attnkit_attention on one thread", lambda: build(workload, tensors, alone)
