# SPDX-License-Identifier: Apache-2.0
"""Some structs of the public headers for ctypes, and functions that fill these structs from arrays. Python programs
that call the library through ctypes use this module. tests/repository/structs.py compares the structs with
attnkit.h."""

import ctypes
from ctypes import c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_void_p

F32, F16, BF16, I8, Q8_0, BOOL, BITS = 0, 1, 2, 3, 4, 64, 65
INT64, INT32 = 0, 1
STRIDED, TILED = 1, 2
CAUSAL, SCALE_GIVEN, INTEGERS, BF16_PRODUCTS, SHORT_WEIGHTS = 1, 2, 4, 8, 16
NO_APPEND = 1
UPPER_LEFT, BOTTOM_RIGHT, OFFSETS = 1, 2, 3
ATTEND, IGNORE = 1, 2
SOFTMAX = 1
INTERLEAVED, HALF = 1, 2
MESSAGE_SIZE = 256
TILE_KEYS = 16

# A dict: dtype of an array -> its attnkit_type. NumPy has no bfloat16, so uint16 stands for bfloat16. A block of Q8_0
# is a record of 34 bytes, which NumPy names by its 272 bits.
TYPES = {"float32": F32, "float16": F16, "uint16": BF16, "void272": Q8_0}
INT_TYPES = {"int64": INT64, "int32": INT32}


def fields(kind, *names):
    return [(name, kind) for name in names]


# ------------------------------------------------------------------------------- the structs


class Tensor(ctypes.Structure):
    """attnkit_tensor"""
    _fields_ = [("data", c_void_p), ("strides", c_int64 * 3), ("type", c_int32),
                ("layout", c_uint32)]


class Ints(ctypes.Structure):
    """attnkit_ints"""
    _fields_ = [("data", c_void_p), ("type", c_int32), ("reserved", c_int32)]


class Pages(ctypes.Structure):
    """attnkit_pages"""
    _fields_ = [("size", c_size_t), ("block_table", c_void_p),
                *fields(c_int64, "block_table_stride", "page_size", "pages")]


class KvStorage(ctypes.Structure):
    """attnkit_kv_storage"""
    _fields_ = [("size", c_size_t), ("pages", ctypes.POINTER(Pages)),
                *fields(Tensor, "k_scales", "v_scales"),
                *fields(c_int64, "k_scale_group", "v_scale_group"),
                *fields(Ints, "cu_seqlens_q", "cu_seqlens_kv", "key_index"),
                ("key_index_stride", c_int64)]


class Window(ctypes.Structure):
    """attnkit_window"""
    _fields_ = [("size", c_size_t), *fields(c_int64, "left", "right", "keep_first")]


class Visibility(ctypes.Structure):
    """attnkit_visibility"""
    _fields_ = [("size", c_size_t), ("kv_lens", Ints), ("window", ctypes.POINTER(Window)),
                *fields(c_void_p, "q_segment_ids", "kv_segment_ids"),
                *fields(Tensor, "mask", "mask_bits"),
                *fields(c_int64, "mask_columns", "mask_bits_columns"),
                *fields(c_int32, "mask_kind", "mask_bits_kind")]


class ScoreMods(ctypes.Structure):
    """attnkit_score_mods"""
    _fields_ = [("size", c_size_t), ("softcap", c_double), ("bias", Tensor),
                ("bias_columns", c_int64), *fields(c_void_p, "alibi_slopes", "sinks"),
                ("dropout", c_double), *fields(c_void_p, "dropout_seeds", "bias_scales")]


class State(ctypes.Structure):
    """attnkit_state"""
    _fields_ = fields(c_void_p, "max", "sum", "out")


class States(ctypes.Structure):
    """attnkit_states"""
    _fields_ = [("size", c_size_t), ("first_key", c_int64), *fields(State, "state_in", "state_out")]


class WeightsOut(ctypes.Structure):
    """attnkit_weights_out"""
    _fields_ = [("size", c_size_t), ("weights", Tensor), ("kind", c_int32), ("flags", c_uint32)]


class AttentionArgs(ctypes.Structure):
    """attnkit_attention_args"""
    _fields_ = [("size", c_size_t), ("flags", c_uint32), ("align", c_int32),
                *fields(c_int64, "batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_dim",
                        "value_dim"),
                ("scale", c_double), *fields(Tensor, "q", "k", "v", "out", "lse"),
                ("q_offsets", Ints), ("storage", ctypes.POINTER(KvStorage)),
                ("visibility", ctypes.POINTER(Visibility)), ("scores", ctypes.POINTER(ScoreMods)),
                ("states", ctypes.POINTER(States)), ("weights", ctypes.POINTER(WeightsOut))]


class Exec(ctypes.Structure):
    """attnkit_exec"""
    _fields_ = [("size", c_size_t), ("workspace", c_void_p), ("workspace_size", c_size_t),
                ("isa", c_char_p), *fields(c_int64, "threads", "thread"),
                *fields(c_void_p, "parallel_for", "pool", "barrier")]


class IsaInfo(ctypes.Structure):
    """attnkit_isa_info"""
    _fields_ = [("size", c_size_t), *fields(c_char_p, "name", "needs"),
                *fields(c_int32, "built", "can_run"), ("reason", c_char_p)]


class Rotation(ctypes.Structure):
    """attnkit_rotation"""
    _fields_ = [("size", c_size_t), ("kind", c_int32), ("flags", c_uint32), ("dim", c_int64),
                ("base", c_double), *fields(c_void_p, "cos", "sin"), ("table_positions", c_int64),
                ("positions", Ints)]


class PackArgs(ctypes.Structure):
    """attnkit_pack_args"""
    _fields_ = [("size", c_size_t), *fields(c_int64, "out_dim", "in_dim"), ("w", Tensor),
                ("packed_type", c_int32), ("flags", c_uint32), ("packed", c_void_p),
                ("packed_size", c_size_t)]


class LinearArgs(ctypes.Structure):
    """attnkit_linear_args"""
    _fields_ = [("size", c_size_t), *fields(c_int64, "rows", "in_dim", "out_dim"),
                *fields(Tensor, "x", "w", "y"), ("bias", c_void_p),
                ("flags", c_uint32), ("reserved", c_uint32)]


class LayerWeights(ctypes.Structure):
    """attnkit_layer_weights"""
    _fields_ = [("size", c_size_t),
                *fields(c_int64, "d_model", "d_key", "d_value", "d_out", "q_heads", "kv_heads",
                        "head_dim", "value_dim"),
                *fields(c_void_p, "w_q", "w_k", "w_v", "w_qkv", "w_o"),
                *fields(c_void_p, "b_q", "b_k", "b_v", "b_qkv", "b_o"),
                *fields(c_int32, "w_type", "packed_type", "bias_type"), ("flags", c_uint32)]


class LayerArgs(ctypes.Structure):
    """attnkit_layer_args"""
    _fields_ = [("size", c_size_t), ("flags", c_uint32), ("reserved", c_uint32),
                ("packed", c_void_p), ("packed_size", c_size_t),
                *fields(c_int64, "batch", "q_len", "kv_len"),
                *fields(Tensor, "x", "key", "value", "out"), ("rotation", ctypes.POINTER(Rotation)),
                ("attention", ctypes.POINTER(AttentionArgs)), ("cached", Ints),
                ("mean_weights", c_void_p)]


# --------------------------------------------------------------------------- filling the structs


def type_of(array):
    return TYPES[array.dtype.name]


def tensor(array, type=None, strides=None, layout=0):
    """Returns the Tensor of an array. The Tensor keeps the array alive. `strides` are three strides in bytes; without
    them, the array is dense."""
    made = Tensor(array.ctypes.data, type=type_of(array) if type is None else type,
                  layout=layout)
    if strides is not None:
        made.strides[:], made.layout = strides, layout | STRIDED
    made.array = array
    return made


def as_field(kind, value):
    """Returns the value of a field of type `kind`. An array becomes a dense Tensor or Ints if `kind` is one of these
    structs. Otherwise the array becomes its address."""
    if not hasattr(value, "ctypes"):
        return value
    if kind is Tensor:
        return tensor(value)
    if kind is Ints:
        return Ints(value.ctypes.data, INT_TYPES[value.dtype.name])
    return value.ctypes.data


def is_group(kind):
    return hasattr(kind, "contents")


def take(struct, values):
    """Fills a struct with the values of the dict that have a field in the struct or in one of its groups. Removes these
    values from the dict. Returns the struct, and whether there were any such values."""
    made, count = struct(size=ctypes.sizeof(struct)), len(values)
    for name, kind in struct._fields_:
        if is_group(kind) and not is_group(type(values.get(name))):
            group, is_used = take(kind._type_, values)
            if is_used:
                setattr(made, name, ctypes.pointer(group))
        elif name in values:
            setattr(made, name, as_field(kind, values.pop(name)))
    return made, len(values) < count


def new(struct, **values):
    """Returns a struct with its size set. A value goes to the field of its name. If the struct has no field of this
    name, the value goes to the optional group that has such a field. A value of None counts as not given. `weights` is
    the name of a group and of a field in this group, and so is `pages`. A pointer sets the group, any other value sets
    the field. The arrays must outlive the struct."""
    left = {name: value for name, value in values.items() if value is not None}
    made, _ = take(struct, left)
    if left:
        raise TypeError(f"{struct.__name__} has no {', '.join(left)}")
    return made
