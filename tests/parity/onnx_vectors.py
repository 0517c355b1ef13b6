"""The operator vectors that the onnx package makes: a node, what goes in, and what has to come out."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import onnx
import torch
from onnx.backend.test.case import node as node_cases
from torch import Tensor

MODULES = {"Attention": "attention", "RotaryEmbedding": "rotaryembedding", "RMSNormalization": "rmsnormalization"}
for module in MODULES.values():
    import_module(f"onnx.backend.test.case.node.{module}")  # importing one makes its vectors, always the same ones


@dataclass(frozen=True)
class Vector:
    """One node with its tensors by the names of the operator, holes left out."""

    name: str
    attributes: Mapping[str, Any]
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    rtol: float
    atol: float


def vectors(operator: str) -> list[Vector]:
    """All vectors of one operator; those that spell it out in smaller ones (several nodes) are not about it."""
    cases = [case for case in node_cases._NodeTestCases if len(case.model.graph.node) == 1]
    return [_vector(case) for case in cases if case.model.graph.node[0].op_type == operator]


def _vector(case: Any) -> Vector:
    (node,) = case.model.graph.node
    ((inputs, outputs),) = case.data_sets
    return Vector(
        name=case.name.removeprefix("test_"),
        attributes={a.name: onnx.helper.get_attribute_value(a) for a in node.attribute},
        inputs=_named(node.input, inputs),
        outputs=_named(node.output, outputs),
        rtol=case.rtol,
        atol=case.atol,
    )


def _named(names: list[str], arrays: list[np.ndarray]) -> dict[str, Tensor]:
    return dict(zip(filter(None, names), map(_tensor, arrays), strict=True))


def _tensor(array: np.ndarray) -> Tensor:
    if array.dtype.name == "bfloat16":  # numpy knows it only by loan, and torch does not take it from there
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
