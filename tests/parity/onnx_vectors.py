"""The operator test vectors of the onnx package: a node, its inputs and its expected outputs."""

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
    import_module(
        f"onnx.backend.test.case.node.{module}"
    )  # importing a module creates its vectors, which are deterministic


@dataclass(frozen=True)
class Vector:
    """One node with its tensors by the operator's names, without omitted ones."""

    name: str
    attributes: Mapping[str, Any]
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    rtol: float
    atol: float


def vectors(operator: str) -> list[Vector]:
    """All vectors of one operator, without those of its expansion into several nodes."""
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
    if array.dtype.name == "bfloat16":  # ml_dtypes adds it to numpy, and torch.from_numpy does not accept it
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
