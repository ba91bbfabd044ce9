# SPDX-License-Identifier: Apache-2.0
"""attnkit, in the shared library of a build, called through ctypes. The time of a call includes the overhead of ctypes.
With several threads, each thread makes the same call for its own share. With several threads and no dense mask, there
is also a form on one thread. In some workloads of decode, there is a form with K in rows, and a form with K in tiles of
16 keys. attnkit_append can write K both ways. A dense mask is passed as a bias. If a column (columns.py) has a mode,
such as "integers", its calls have the flags of this mode (FLAGS)."""

import ctypes
import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from attnkit_structs import (BF16_PRODUCTS, BOTTOM_RIGHT, CAUSAL, INTEGERS, MESSAGE_SIZE, SHORT_WEIGHTS,
                             TILE_KEYS, TILED, AttentionArgs, Exec, IsaInfo, new, tensor)
from libraries.forms import Cannot, Form
from tensors import additive, aligned_copy
from workloads import SHORT


# A dict: mode -> its flags.
FLAGS = {None: 0, "integers": INTEGERS, "bf16 products": BF16_PRODUCTS, "short weights": BF16_PRODUCTS | SHORT_WEIGHTS}


@functools.lru_cache
def load(path):
    library = ctypes.CDLL(path)
    library.attnkit_version.restype = ctypes.c_char_p
    return library


def library_version(path):
    return load(path).attnkit_version().decode()


def isas(path, scalar=False):
    """Returns the instruction sets that can run here, the best first. Leaves out scalar unless `scalar` is true."""
    found = []
    for i in range(load(path).attnkit_isa_count()):
        info = new(IsaInfo)
        if load(path).attnkit_isa_get(i, ctypes.byref(info), None) == 0 and info.can_run:
            found.append(info.name.decode())
    return [isa for isa in reversed(found) if scalar or isa != "scalar"]


def version():
    return "through ctypes"


def check(status, message):
    if status:
        raise Cannot(message.value.decode())


def cached(array, workload):
    """Returns a tensor of K or V."""
    return tensor(array, strides=array.strides[:3] if workload.token else None)


def bias_of(workload, type):
    """Returns the dense mask as a tensor that all batch entries and heads share."""
    mask = additive(workload, type)
    return tensor(mask, strides=(0, 0, mask.strides[2]))


def describe(workload, q, k, v, out, kv_lens, bias, flags=0):
    """Returns the AttentionArgs of a call. k and v are Tensors. bias is a Tensor or None. q, out and kv_lens are
    arrays."""
    causal = {"align": BOTTOM_RIGHT} if workload.causal else {}
    return new(AttentionArgs, flags=flags | CAUSAL * workload.causal, batch=workload.batch, q_heads=workload.q_heads,
               kv_heads=workload.kv_heads, q_len=workload.q_len, kv_len=workload.kv_len,
               head_dim=workload.dim, q=q, k=k, v=v, out=out, bias=bias,
               kv_lens=kv_lens if workload.padded else None, **causal)


def make_shares(library, args, setting, query="attnkit_attention_workspace"):
    """Returns the exec of each thread, and the workspace that the execs use."""
    shares = [new(Exec, isa=setting.isa.encode(), threads=setting.threads, thread=i)
              for i in range(setting.threads)]
    size, message = ctypes.c_size_t(), ctypes.create_string_buffer(MESSAGE_SIZE)
    check(getattr(library, query)(ctypes.byref(args), ctypes.byref(shares[0]), ctypes.byref(size),
                                  message), message)
    workspace = np.empty(size.value, dtype=np.uint8)
    for share in shares:
        share.workspace, share.workspace_size = workspace.ctypes.data, size.value
    return shares, workspace


def on_threads(pool, shares):
    """Makes one call on all threads. Each of `shares` is a function that computes a share. This thread computes the
    first share."""
    others = [pool.submit(share) for share in shares[1:]]
    shares[0]()
    for other in others:
        other.result()


def make_calls(function, args, execs):
    """Returns, for each of the args, a function that makes a call on all threads."""
    pool = ThreadPoolExecutor(max(1, len(execs) - 1))
    calls = []
    for one in args:
        shares = [functools.partial(function, ctypes.byref(one), ctypes.byref(share), None)
                  for share in execs]
        calls.append(shares[0] if len(shares) == 1 else
                     functools.partial(on_threads, pool, shares))
    return calls


def in_tiles(k):
    """Returns [batch, heads, keys, dim] as [batch, heads, tiles, dim, 16]. The number of keys is a multiple of 16."""
    *heads, keys, dim = k.shape
    return aligned_copy(k.reshape(*heads, keys // TILE_KEYS, TILE_KEYS, dim).swapaxes(3, 4))


def build(workload, tensors, setting, tiled=False, mask_type=None):
    library = load(setting.library)
    kv_lens = np.array(workload.kv_lens, dtype=np.int64)
    kv = [(tensor(in_tiles(k), layout=TILED) if tiled else cached(k, workload), cached(v, workload))
          for k, v in tensors.kv]
    bias = bias_of(workload, mask_type) if mask_type else None
    flags = FLAGS[setting.mode]
    args = [describe(workload, tensors.q, k, v, tensors.out, kv_lens, bias, flags) for k, v in kv]
    execs, workspace = make_shares(library, args[0], setting)
    # The default argument of the lambda keeps the arrays alive as long as the Form.
    return Form(make_calls(library.attnkit_attention, args, execs),
                lambda keep=(kv_lens, kv, bias, workspace): tensors.out)


def masked_forms(workload, tensors, setting):
    for type in dict.fromkeys(("float16", workload.q_type)):
        yield (f"attnkit_attention, bias in {SHORT[type]}",
               functools.partial(build, workload, tensors, setting, mask_type=type))


def forms(workload, tensors, setting):
    if workload.mask:
        yield from masked_forms(workload, tensors, setting)
        return
    yield "attnkit_attention", lambda: build(workload, tensors, setting)
    has_tiles = workload.decode and not workload.token and workload.kv_len % TILE_KEYS == 0
    if has_tiles and not FLAGS[setting.mode] & BF16_PRODUCTS:
        yield "attnkit_attention, K in tiles", lambda: build(workload, tensors, setting, tiled=True)
    if setting.threads > 1:  # attnkit starts no threads: its caller decides whether a call is worth several threads
        alone = setting._replace(threads=1)
        yield "attnkit_attention on one thread", lambda: build(workload, tensors, alone)
