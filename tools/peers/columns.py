# SPDX-License-Identifier: Apache-2.0
"""The candidates of tools/peers.py, which are the columns of its table. A further library needs a line here, its
packages in requirements.txt, its colour in plot.py, and a module with_<library>.py in libraries/. libraries/forms.py
describes the contents of with_<library>.py."""

from collections import namedtuple

# `module` is the name of a module in libraries/. `isa` is attnkit's instruction set, or None for other libraries.
# `mode` is one of the MODES, or None.
Column = namedtuple("Column", "title module isa mode", defaults=[None, None])

# A mode is one or two flags of attnkit's calls. With these flags, a call multiplies numbers of few bits, so its result
# has other bits than without the flags. For each mode, MODES has a function that says whether the mode is for a
# workload.
MODES = {"integers": lambda workload: workload.type == "q8_0" and workload.kind != "layer",
         "bf16 products": lambda workload: workload.type == "bfloat16" and workload.kind == "attention",
         "short weights": lambda workload: workload.type == "bfloat16" and workload.kind == "attention"}

PEERS = {
    "torch": Column("PyTorch", "with_torch"),
    "onnxruntime": Column("ONNX Runtime", "with_onnxruntime"),
    "openvino": Column("OpenVINO", "with_openvino"),
    "llamacpp": Column("llama.cpp", "with_llamacpp"),
    "numpy": Column("NumPy", "with_numpy"),
}
NAMES = ["attnkit", *PEERS]


def fits(column, workload):
    """Returns whether the column is for the workload. A column without a mode is for all workloads."""
    return not column.mode or MODES[column.mode](workload)


def attnkit_column(isa, mode=None):
    return Column(f"attnkit {mode or isa}", "with_attnkit", isa, mode)
