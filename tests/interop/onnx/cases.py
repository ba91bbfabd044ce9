# SPDX-License-Identifier: Apache-2.0
"""The cases of ONNX's Attention and FlexAttention: made by the package onnx, and written for the
program onnx_attention, a folder for each.
"""

import dataclasses
import shutil
import warnings
from typing import Any

import flex
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

COUNT = {"Attention": 93, "FlexAttention": 11}  # of onnx 1.23.2
LEFT_OUT = ["test_flexattention_prob_mod", "test_flexattention_double"]  # attnkit cannot express them


@dataclasses.dataclass
class Case:
    name: str
    node: Any       # a node of Attention
    inputs: list    # arrays of the node's inputs that are not left out
    outputs: list   # expected arrays of its outputs
    rtol: float
    atol: float
    cannot: str = ""  # why it cannot be run


def collect():
    """Returns operator -> its cases, without the cases that expand the operator into other operators."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other operators' cases
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
    """Returns the names of the files of the inputs or outputs that are not left out, by their position."""
    return [f"{kind}_{i}.pb" for i, name in enumerate(present) if name]


def write(case, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "node.pb").write_bytes(case.node.SerializeToString())
    for name, array in zip(names("input", case.node.input), case.inputs, strict=True):
        (folder / name).write_bytes(numpy_helper.from_array(array).SerializeToString())
