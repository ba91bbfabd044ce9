# SPDX-License-Identifier: Apache-2.0
"""Linear maps with OpenVINO: a MatMul by a constant matrix. OpenVINO reorders the matrix when it compiles the model.
The inference precision is f32. For matrices of bfloat16, there is also a form with inference in bf16."""

import functools

from openvino import Model, PartialShape, opset13

from libraries.forms import Cannot, Form
from libraries.with_openvino import compile_for, tensor, type_of
from workloads import SHORT


def linear(tensors, setting, precision):
    def caller(w):
        x = opset13.parameter(PartialShape(tensors.x.shape), type_of(tensors.x))
        product = opset13.matmul(x, opset13.constant(tensor(w)), False, True)
        model = compile_for(Model([product], [x], "linear"), setting, precision)
        request = model.create_infer_request()
        request.set_input_tensor(0, tensor(tensors.x))
        request.set_output_tensor(tensor(tensors.out))
        return lambda: request.infer(share_inputs=True, share_outputs=True)
    return Form([caller(w) for w in tensors.matrices], lambda: tensors.out)


def linear_forms(workload, tensors, setting):
    if workload.type == "q8_0":
        raise Cannot("its MatMul has no q8_0")
    for precision in dict.fromkeys(("f32", SHORT[workload.type])):
        yield f"MatMul in {precision}", functools.partial(linear, tensors, setting, precision)


def layer_forms(workload, tensors, setting):
    raise Cannot("layers are not tried")
