# SPDX-License-Identifier: Apache-2.0
"""Converts a node of FlexAttention to a node of Attention, if attnkit's options can express the score mod of
FlexAttention. A score mod is a graph. ONNX's cases have only a few graphs, which this module recognises by their
operators and constants."""

import numpy
from onnx import helper, numpy_helper

POSITIONS = ["Shape", "Gather", "Gather", "Range", "Reshape", "Range", "Reshape"]


class Unsayable(Exception):
    """attnkit's API cannot express a case, or this module does not know the score mod of the case. The message says
    why."""


def constant(graph, name):
    """Returns the value of the graph's scalar with this name."""
    for tensor in graph.initializer:
        if tensor.name == name:
            return numpy_helper.to_array(tensor)[()]
    raise Unsayable(f"{graph.name} has no constant {name}")


def require(graph, is_so):
    if not is_so:
        raise Unsayable(f"{graph.name} is not a score mod that this test knows")


def queries_and_keys(graph):
    """Checks the inputs of the first nodes of the graph, whose operators are POSITIONS. Returns the names of the row
    index and the key index."""
    nodes = graph.node
    sizes = {}
    for gather in nodes[1:3]:
        require(graph, list(gather.input)[0] == nodes[0].output[0])
        sizes[gather.output[0]] = int(constant(graph, gather.input[1]))
    indices = {}
    for count, reshape in ((nodes[3], nodes[4]), (nodes[5], nodes[6])):
        require(graph, (constant(graph, count.input[0]), constant(graph, count.input[2])) == (0, 1))
        require(graph, list(reshape.input)[0] == count.output[0])
        indices[sizes[count.input[1]]] = reshape.output[0]
    require(graph, sorted(indices) == [2, 3] and list(nodes[0].input) == [graph.input[0].name])
    return [indices[2], indices[3]]


def added(graph, key_count):
    (add,) = graph.node
    require(graph, add.input[0] == graph.input[0].name)
    bias = constant(graph, add.input[1])
    return {}, numpy.full(key_count, bias)


def causal(graph, _):
    compare, where = graph.node[-2:]
    require(graph, list(compare.input) == queries_and_keys(graph))
    require(graph, list(where.input[:2]) == [compare.output[0], graph.input[0].name])
    require(graph, constant(graph, where.input[2]) == -numpy.inf)
    return {"is_causal": 1}, None


def capped(graph, _):
    divide, tanh, multiply = graph.node
    require(graph, list(divide.input) == [graph.input[0].name, multiply.input[1]])
    require(graph, [tanh.input[0], multiply.input[0]] == [divide.output[0], tanh.output[0]])
    return {"softcap": float(constant(graph, multiply.input[1]))}, None


def relative(graph, _):
    subtract, cast, add = graph.node[-3:]
    require(graph, list(subtract.input) == queries_and_keys(graph))
    require(graph, list(cast.input) == [subtract.output[0]])
    require(graph, list(add.input) == [graph.input[0].name, cast.output[0]])
    return {"alibi_slope": -1.0}, None  # score + (row - key)


FUNCTIONS = {
    ("Add",): added,
    ("Div", "Tanh", "Mul"): capped,
    (*POSITIONS, "GreaterOrEqual", "Where"): causal,
    (*POSITIONS, "Sub", "Cast", "Add"): relative,
}


def attention(node, inputs):
    """Returns a node of Attention that computes the results of this node of FlexAttention, and the inputs of the new
    node."""
    attributes, bias = {}, None
    if any(array.dtype == numpy.float64 for array in inputs):
        raise Unsayable("attnkit has no tensors of float64")
    for attribute in node.attribute:
        if attribute.name == "score_mod":
            function = FUNCTIONS.get(tuple(inner.op_type for inner in attribute.g.node))
            require(attribute.g, function)
            attributes, bias = function(attribute.g, inputs[1].shape[2])
        elif attribute.name == "scale":
            attributes["scale"] = attribute.f
        else:
            raise Unsayable(f"attnkit has no {attribute.name}")
    if bias is not None:
        inputs = [*inputs, bias.astype(inputs[0].dtype)]
    names = ["Q", "K", "V", "attn_mask"][:len(inputs)]
    return helper.make_node("Attention", names, ["Y"], **attributes), inputs
