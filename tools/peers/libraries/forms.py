# SPDX-License-Identifier: Apache-2.0
"""A form is one way to express a workload in a library. Each with_<library>.py has

    version()                            text, with what matters for speed
    forms(workload, tensors, setting)    pairs of a name and a function that builds the Form

and those that are measured with linear maps and layers have linear_forms and layer_forms like it
in a layers_with_<library>.py. Of a library's forms the fastest correct one is measured: what a
careful user would write.
"""

from collections import namedtuple

import numpy as np

from tensors import additive

# calls: functions without arguments, one for each copy of what is to be in no cache. output: the
# result of the last call, shaped as the tensors' out.
Form = namedtuple("Form", "calls output")

# threads: of a call. library: the path of libattnkit. isa: of attnkit. processor_time, cold: see
# options.py.
Setting = namedtuple("Setting", "threads library isa processor_time cold", defaults=[False, None])


class Cannot(Exception):
    """A library that cannot do a workload, and why."""


def fold(array, workload):
    """The query heads that share a KV head, as rows of one head."""
    rows = workload.group * workload.q_len
    return array.reshape(workload.batch, workload.kv_heads, rows, workload.dim)


def mask_of(workload, dtype, folded=False):
    """The dense mask, [1, 1, rows, keys], of rows as they are or as fold() has them."""
    mask = additive(workload, dtype)
    return np.tile(mask, (1, 1, workload.group, 1)) if folded else mask
