# SPDX-License-Identifier: Apache-2.0
"""A form is one way to express a workload in a library. Each with_<library>.py has

    version()                            text, with what matters for speed
    forms(workload, tensors, setting)    pairs of a name and a function that builds the Form

Of a library's forms the fastest correct one is measured: what a careful user would write.
"""

from collections import namedtuple

# calls: functions without arguments, one for each copy of K and V. output: the result of the last
# call as [batch, heads, rows, dim].
Form = namedtuple("Form", "calls output")

# threads: of a call. library: the path of libattnkit. isa: of attnkit.
Setting = namedtuple("Setting", "threads library isa")


class Cannot(Exception):
    """A library that cannot do a workload, and why."""


def fold(array, workload):
    """The query heads of a decode that share a KV head, as that many rows of one head."""
    return array.reshape(workload.batch, workload.kv_heads, workload.group, workload.dim)
