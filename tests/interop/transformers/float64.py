# SPDX-License-Identifier: Apache-2.0
"""Runs a model in float64. The code of transformers converts numbers to float32 in norms, rotations and softmax, also
in a model of float64. Inside `with Float64()`, a conversion to float32 gives float64."""

import torch
from torch.overrides import TorchFunctionMode


def _wider(value):
    return torch.float64 if value is torch.float32 else value


class Float64(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), keywords=None):
        if function is torch.Tensor.float:
            return arguments[0].double()
        return function(*(_wider(value) for value in arguments),
                        **{name: _wider(value) for name, value in (keywords or {}).items()})


def in_float64(model, call, *arguments):
    """Returns call(model, *arguments), computed in float64. Each argument is a dict of inputs. The model stays in
    float64 after the call."""
    model.config._experts_implementation = "eager"  # grouped products do not support float64
    def widen(value):
        return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    wide = [{name: widen(value) for name, value in inputs.items()} for inputs in arguments]
    with Float64():
        return call(model.double(), *wide)
