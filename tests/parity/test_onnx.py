"""ONNX's own operator vectors come out of softlook, through every path that accepts them.

The tolerances are the vectors' own, 1e-3 relative and 1e-7 absolute. They round at every step, in half precision too,
where 1e-3 is finer than one unit: as onnx's runner does for bfloat16, half precision is given two units.
"""

from typing import get_args

import pytest
import torch
from torch import Tensor

from softlook import positions
from softlook.blocks.norms import rms_norm
from tests.parity.onnx_attention import Attention, Path
from tests.parity.onnx_vectors import Vector, vectors

HALF = (torch.float16, torch.bfloat16)

ATTENTION, ROTARY, RMS = (vectors(name) for name in ("Attention", "RotaryEmbedding", "RMSNormalization"))
IN_HALF = [vector for vector in ATTENTION if vector.inputs["Q"].dtype in HALF]


def named(parts: list[Vector]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", parts, ids=[vector.name for vector in parts])


def compare(vector: Vector, name: str, found: Tensor) -> None:
    expected = vector.outputs[name]
    least = 2 * torch.finfo(expected.dtype).eps if expected.dtype in HALF else 0
    torch.testing.assert_close(found, expected, rtol=max(vector.rtol, least), atol=vector.atol)


def test_no_vector_is_left_out() -> None:
    assert (len(ATTENTION), len(ROTARY), len(RMS)) == (93, 8, 19)
    assert len({vector.name for vector in (*ATTENTION, *ROTARY, *RMS)}) == 93 + 8 + 19


def test_torch_kernels_refuse_the_vectors_with_a_soft_cap_and_no_other_path_refuses_any() -> None:
    capped = [vector.name for vector in ATTENTION if vector.attributes.get("softcap", 0) > 0]
    for path in get_args(Path):
        refused = [vector.name for vector in ATTENTION if Attention(vector.inputs, vector.attributes).refuses(path)]
        assert refused == (capped if path == "sdpa" else []), path
    assert capped


@named(ATTENTION)
def test_attention_gives_the_outputs_of_the_vector_on_every_path(vector: Vector) -> None:
    node = Attention(vector.inputs, vector.attributes)
    for path in get_args(Path):
        if not node.refuses(path):
            compare(vector, "Y", node.output(path))
    others = node.others()
    for name in vector.outputs.keys() - {"Y"}:
        compare(vector, name, others[name])


@named(IN_HALF)
def test_in_half_precision_attention_is_no_farther_from_the_exact_answer_than_the_vector(vector: Vector) -> None:
    doubled = {name: t.double() if t.is_floating_point() else t for name, t in vector.inputs.items()}
    exact = Attention(doubled, vector.attributes).output("reference")
    allowed = (vector.outputs["Y"].double() - exact).abs().max()
    node = Attention(vector.inputs, vector.attributes)
    for path in get_args(Path):
        if not node.refuses(path):
            assert (node.output(path).double() - exact).abs().max() <= allowed, path


@named(ROTARY)
def test_rotary_positions_give_the_output_of_the_vector(vector: Vector) -> None:
    x, cos, sin = (vector.inputs[name] for name in ("input", "cos_cache", "sin_cache"))
    if "position_ids" in vector.inputs:  # a table to look up in; otherwise it has been looked up already
        cos, sin = cos[vector.inputs["position_ids"]], sin[vector.inputs["position_ids"]]
    assert vector.attributes.get("rotary_embedding_dim", 2 * cos.shape[-1]) == 2 * cos.shape[-1]
    heads = vector.attributes.get("num_heads")
    x = x if heads is None else x.unflatten(-1, (heads, -1)).transpose(1, 2)
    layout = "interleaved" if vector.attributes.get("interleaved") else "half"
    turned = positions.rotary(x, positions.RotaryAngles(cos, sin), layout=layout)
    compare(vector, "output", turned if heads is None else turned.transpose(1, 2).flatten(2))


@named(RMS)
def test_rms_norm_gives_the_output_of_the_vector(vector: Vector) -> None:
    x, weight = vector.inputs["X"], vector.inputs["W"]
    axis = vector.attributes.get("axis", -1)
    axes = x.ndim - axis if axis >= 0 else -axis
    compare(vector, "Y", rms_norm(x, weight, axes=axes, eps=vector.attributes.get("epsilon", 1e-5)))
