# SPDX-License-Identifier: Apache-2.0
"""A form is a way to express a workload in a library. Each with_<library>.py has two functions:

    version()                            text, with the settings that matter for speed
    forms(workload, tensors, setting)    pairs of a name and a function that builds a Form

A layers_with_<library>.py has two functions like forms(): linear_forms for linear maps, and layer_forms for layers. A
library without this module is measured only with attention. The fastest correct form of a library is measured: a
careful user would write this form."""

from collections import namedtuple

import numpy as np

from tensors import additive

# `calls` are functions without arguments, one for each copy of the data (cold_copies of tensors.py). `output` returns
# the result of the last call, in the shape of tensors.out.
Form = namedtuple("Form", "calls output")

# `threads` is the number of threads of a call, `library` the path of libattnkit, and `isa` attnkit's instruction set.
# options.py describes `processor_time` and `cold`, columns.py describes `mode`.
Setting = namedtuple("Setting", "threads library isa processor_time cold mode", defaults=[False, None, None])


class Cannot(Exception):
    """A library cannot do a workload. The message says why."""


def fold(array, workload):
    """Turns the query heads that share a KV head into rows of one head."""
    rows = workload.group * workload.q_len
    return array.reshape(workload.batch, workload.kv_heads, rows, workload.dim)


def mask_of(workload, dtype, folded=False):
    """Returns the dense mask [1, 1, rows, keys]. With `folded`, the mask is for the rows that fold() makes."""
    mask = additive(workload, dtype)
    return np.tile(mask, (1, 1, workload.group, 1)) if folded else mask
