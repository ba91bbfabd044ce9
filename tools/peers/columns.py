# SPDX-License-Identifier: Apache-2.0
"""The candidates, which are the columns of the table. A further library needs a line here, its packages in
requirements.txt, its colour in plot.py, and a module with_<library>.py in libraries/. libraries/forms.py describes the
contents of with_<library>.py."""

from collections import namedtuple

# `module` is the name of a module in libraries/. `isa` is attnkit's instruction set, or None for other libraries.
Column = namedtuple("Column", "title module isa", defaults=[None])

PEERS = {
    "torch": Column("PyTorch", "with_torch"),
    "onnxruntime": Column("ONNX Runtime", "with_onnxruntime"),
    "openvino": Column("OpenVINO", "with_openvino"),
    "llamacpp": Column("llama.cpp", "with_llamacpp"),
    "numpy": Column("NumPy", "with_numpy"),
}
NAMES = ["attnkit", *PEERS]


def attnkit_column(isa):
    return Column(f"attnkit {isa}", "with_attnkit", isa)
