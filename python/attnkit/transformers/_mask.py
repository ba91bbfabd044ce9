# SPDX-License-Identifier: Apache-2.0
"""The masks that attnkit makes for models of transformers. A Mask is a tensor that says which keys a row sees. Its
elements are made only when a function needs them.

For transformers a Mask is a bool tensor [batch, 1, rows, keys], true where a row sees a key, so models can look at its
shape and hand it on. Indexing and most other operations use the elements. Arithmetic is an error: models that add a
mask to scores expect numbers, and compute attention by themselves."""

import torch
from transformers.masking_utils import causal_mask_function, prepare_padding_mask, sdpa_mask

from ._pattern import recognise

# Models that get a mask in every call, because _bypassing.py recognises a call with attnkit by its Mask.
NEED_A_MASK = {"bloom", "falcon", "mpt"}
ARITHMETIC = {"add", "add_", "sub", "sub_", "rsub", "mul", "mul_", "div", "div_", "addcmul", "baddbmm", "addmm"}


class Mask(torch.Tensor):
    """A mask that is stored as a rule. Row i has the position first_row + i among the keys, and key j the position j.
    pattern has causal and window as in attnkit.attention. padding is None, or bool [batch, 1, 1, keys], false for keys
    that no row sees.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # __torch_dispatch__ below is enough, and costs less

    @staticmethod
    def __new__(cls, pattern, shape, first_row, padding, make):
        mask = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bool, device="cpu")
        mask.pattern, mask._sizes, mask.first_row, mask.padding = pattern, shape, first_row, padding
        mask._make = make
        mask._elements = mask._options = None
        return mask

    def __repr__(self, **_):
        return (f"Mask({self.pattern}, shape={tuple(self.shape)}, first_row={self.first_row}, "
                f"padding={'none' if self.padding is None else tuple(self.padding.shape)})")

    def elements(self) -> torch.Tensor:
        """Returns the mask as a plain tensor."""
        if self._elements is None:
            self._elements = self._make()
        return self._elements

    def options(self) -> dict:
        """Returns the mask as arguments of attnkit.torch.attention."""
        if self._options is None:
            self._options = self._say()
        return self._options

    def _say(self):
        causal, window = self.pattern
        batch, _, rows, keys = self._sizes
        options = {} if self.padding is None else {"mask": self.padding}
        if window is not None:
            options["window"] = window
        if not causal and window is None:
            return options
        if self.first_row == 0 and causal:
            options["causal"] = "upper-left"
        elif self.first_row == keys - rows and causal:
            options["causal"] = "bottom-right"
        else:
            options["q_offsets"] = torch.full((batch,), self.first_row, dtype=torch.int64)
            options["causal"] = causal or None
        return options

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), keywords=None):
        name = function.overloadpacket.__name__
        if name in ARITHMETIC:
            raise RuntimeError(f"attnkit: this model computes attention by itself ({name} on a mask), and not by the "
                               "interface of transformers: use another attn_implementation")

        def plain(value):
            if isinstance(value, Mask):
                return value.elements()
            return type(value)(plain(one) for one in value) if type(value) in (list, tuple) else value

        return function(*(plain(value) for value in arguments),
                        **{key: plain(value) for key, value in (keywords or {}).items()})


def _is_traced(attention_mask):
    """Returns whether a graph of the model is being made, so that no element of a mask may be read."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing() or \
        attention_mask is not None and type(attention_mask) is not torch.Tensor


def _padding(attention_mask, kv_length, kv_offset, last_key):
    """Returns which keys are no padding, as [batch, 1, 1, keys], or None if the padding hides no key from a row.

    last_key is the index of the last key that a row would see without padding. In a cache of fixed size there are keys
    after last_key. No row sees these keys, so the padding need not hide them."""
    if attention_mask is None:
        return None
    if attention_mask.shape[-1] > last_key and bool(attention_mask[:, kv_offset:].all()):
        return None
    whole = prepare_padding_mask(attention_mask, kv_length, kv_offset)
    return whole[:, None, None, kv_offset:kv_offset + kv_length]


def _hides_nothing(kv_length, q_offset, kv_offset, attention_mask, config):
    """Returns whether the mask of one row may be None, as for "sdpa": whether the row is a decoding step that sees all
    keys. A step computes so little that making a mask takes a noticeable part of its time. Returns False if the model
    is in NEED_A_MASK, if q_offset is a tensor, or if an attention_mask is given and the model is traced."""
    return (isinstance(q_offset, int) and q_offset + 1 == kv_offset + kv_length and
            getattr(config, "model_type", None) not in NEED_A_MASK and
            (attention_mask is None or not _is_traced(attention_mask) and
             attention_mask.shape[-1] > q_offset and bool(attention_mask[:, kv_offset:].all())))


def make_mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=causal_mask_function,
              attention_mask=None, device="cpu", local_size=None, allow_is_causal_skip=True, config=None, **more):
    """Is attnkit's function in transformers' AttentionMaskInterface.

    Returns None if allow_is_causal_skip is true, the call has one row, local_size is None or more than kv_length, and
    _hides_nothing() returns true. Otherwise returns a Mask if the model is not traced, _pattern.py knows the mask
    function, the device is the CPU, and attention_mask is None or has batch_size rows. In all other cases returns a
    plain bool tensor."""
    def make():
        options = dict(more, allow_is_causal_skip=False, allow_is_bidirectional_skip=False, config=config)
        return sdpa_mask(batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
                         kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask,
                         device=device, **options)

    if allow_is_causal_skip and q_length == 1 and (local_size is None or kv_length < local_size) and _hides_nothing(
            kv_length, q_offset, kv_offset, attention_mask, config):
        return None
    if _is_traced(attention_mask) or torch.device(device).type != "cpu":
        return make()
    pattern = recognise(mask_function)
    if pattern is None or attention_mask is not None and attention_mask.shape[0] != batch_size:
        return make()
    q_offset = int(q_offset)  # a cache of fixed size gives a tensor
    last = q_offset + q_length - 1 if pattern.causal else kv_offset + kv_length - 1
    padding = _padding(attention_mask, kv_length, kv_offset, min(last, kv_offset + kv_length - 1))
    return Mask(pattern, (batch_size, 1, q_length, kv_length), q_offset - kv_offset, padding, make)
