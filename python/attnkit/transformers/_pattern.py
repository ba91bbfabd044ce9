# SPDX-License-Identifier: Apache-2.0
"""Recognises the mask functions of transformers. Mask functions that are made by other functions are recognised by
their code objects. A mask function says for one row and one key whether the row sees the key. attnkit takes arguments
instead, causal and window, that hold for all rows and keys.

For a function that is not recognised, recognise() returns None. The mask is then computed for every pair of row and
key."""

from typing import NamedTuple, Optional

from transformers import masking_utils as theirs


class Pattern(NamedTuple):
    """Which keys a row sees. The window is (left, right) in keys, without the key at the position of the row."""
    causal: bool
    window: Optional[tuple] = None


AND = theirs.and_masks(theirs.causal_mask_function).__code__
LEFT = theirs.sliding_window_overlay(1).__code__
AROUND = theirs.sliding_window_bidirectional_overlay(1).__code__
PLAIN = {theirs.causal_mask_function: Pattern(True), theirs.bidirectional_mask_function: Pattern(False)}


def _held(function):
    """Returns the variables of the enclosing function that a function has captured: name -> value."""
    return {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ())}


def recognise(function) -> Optional[Pattern]:
    """Returns the pattern of a mask function, or None if the function is not recognised."""
    if function in PLAIN:
        return PLAIN[function]
    if getattr(function, "__code__", None) is not AND:
        return None
    parts = _held(function).get("mask_functions", ())
    if len(parts) != 2 or parts[1] not in PLAIN:
        return None
    causal, code = PLAIN[parts[1]].causal, getattr(parts[0], "__code__", None)
    width = _held(parts[0]).get("sliding_window") if code in (LEFT, AROUND) else None
    if not isinstance(width, int) or width < 1:
        return None
    if code is LEFT:
        return Pattern(True, (width - 1, 0)) if causal else None
    return Pattern(causal, (width, 0 if causal else width))
