# SPDX-License-Identifier: Apache-2.0
"""The cases of ONNX's Attention and FlexAttention operators. The package onnx makes them. This module writes each case
to a folder for the program onnx_attention.
"""

import dataclasses
import shutil
import warnings
from typing import Any

import flex
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

COUNT = {"Attention": 93, "FlexAttention": 11}  # number of cases in onnx 1.23.2
LEFT_OUT = ["test_flexattention_prob_mod", "test_flexattention_double"]  # cases that attnkit cannot express


@dataclasses.dataclass
class Case:
    name: str
    node: Any       # a node of Attention; if `cannot` is set, a node of FlexAttention
    inputs: list    # arrays of the inputs that the node has
    outputs: list   # expected arrays of the node's outputs
    rtol: float
    atol: float
    cannot: str = ""  # why attnkit cannot express the case


def collect():
    """Returns a dict: operator -> its cases. Cases that expand the operator into other operators are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about other operators' cases
        everything = collect_testcases(None)
    found = {operator: [] for operator in COUNT}
    for case in everything:
        nodes = case.model.graph.node
        if len(nodes) == 1 and nodes[0].op_type in found and "_expanded" not in case.name:
            found[nodes[0].op_type].append(as_case(case, nodes[0]))
    return found


def as_case(case, node):
    ((inputs, outputs),) = case.data_sets
    made = Case(case.name, node, list(inputs), list(outputs), case.rtol, case.atol)
    if node.op_type == "FlexAttention":
        try:
            made.node, made.inputs = flex.attention(node, made.inputs)
        except flex.Unsayable as reason:
            made.cannot = str(reason)
    return made


def names(kind, present):
    """Returns the file names of the inputs or outputs that are present. A file name has the position of the input or
    output in the operator's list."""
    return [f"{kind}_{i}.pb" for i, name in enumerate(present) if name]


def write(case, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "node.pb").write_bytes(case.node.SerializeToString())
    for name, array in zip(names("input", case.node.input), case.inputs, strict=True):
        (folder / name).write_bytes(numpy_helper.from_array(array).SerializeToString())
