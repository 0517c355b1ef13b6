"""softlook gives the outputs of ONNX's operator test vectors, with every backend that supports them.

The tolerances are those of the vectors, 1e-3 relative and 1e-7 absolute. In half precision the vectors round at every
step, and 1e-3 is below one unit in the last place: as in onnx's runner for bfloat16, half precision gets two units.
"""

from typing import get_args

import pytest
import torch
from torch import Tensor

from softlook import positions
from softlook.blocks.norms import rms_norm
from tests.parity.onnx_attention import Attention, EagerBackend
from tests.parity.onnx_vectors import Vector, vectors

HALF = (torch.float16, torch.bfloat16)

ATTENTION, ROTARY, RMS = (vectors(name) for name in ("Attention", "RotaryEmbedding", "RMSNormalization"))
IN_HALF = [vector for vector in ATTENTION if vector.inputs["Q"].dtype in HALF]


def every(cases: list[Vector]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", cases, ids=[vector.name for vector in cases])


def compare(vector: Vector, name: str, found: Tensor) -> None:
    expected = vector.outputs[name]
    least = 2 * torch.finfo(expected.dtype).eps if expected.dtype in HALF else 0
    torch.testing.assert_close(found, expected, rtol=max(vector.rtol, least), atol=vector.atol)


def test_all_vectors_are_tested() -> None:
    assert (len(ATTENTION), len(ROTARY), len(RMS)) == (93, 8, 19)
    assert len({vector.name for vector in (*ATTENTION, *ROTARY, *RMS)}) == 93 + 8 + 19


def test_only_sdpa_with_a_softcap_is_unsupported() -> None:
    capped = [vector.name for vector in ATTENTION if vector.attributes.get("softcap", 0) > 0]
    for backend in get_args(EagerBackend):
        nodes = {vector.name: Attention(vector.inputs, vector.attributes) for vector in ATTENTION}
        unsupported = [name for name, node in nodes.items() if not node.supports(backend)]
        assert unsupported == (capped if backend == "sdpa" else []), backend
    assert capped


@every(ATTENTION)
def test_attention_gives_the_outputs_of_the_vector_with_every_backend(vector: Vector) -> None:
    node = Attention(vector.inputs, vector.attributes)
    for backend in get_args(EagerBackend):
        if node.supports(backend):
            compare(vector, "Y", node.output(backend))
    others = node.other_outputs()
    for name in vector.outputs.keys() - {"Y"}:
        compare(vector, name, others[name])


@every(IN_HALF)
def test_in_half_precision_attention_is_at_least_as_accurate_as_the_vector(vector: Vector) -> None:
    doubled = {name: t.double() if t.is_floating_point() else t for name, t in vector.inputs.items()}
    exact = Attention(doubled, vector.attributes).output("reference")
    allowed = (vector.outputs["Y"].double() - exact).abs().max()
    node = Attention(vector.inputs, vector.attributes)
    for backend in get_args(EagerBackend):
        if node.supports(backend):
            assert (node.output(backend).double() - exact).abs().max() <= allowed, backend


@every(ROTARY)
def test_rotary_embedding_gives_the_output_of_the_vector(vector: Vector) -> None:
    x, cos, sin = (vector.inputs[name] for name in ("input", "cos_cache", "sin_cache"))
    if "position_ids" in vector.inputs:  # the caches are tables; otherwise they are already indexed
        cos, sin = cos[vector.inputs["position_ids"]], sin[vector.inputs["position_ids"]]
    assert vector.attributes.get("rotary_embedding_dim", 2 * cos.shape[-1]) == 2 * cos.shape[-1]
    heads = vector.attributes.get("num_heads")
    x = x if heads is None else x.unflatten(-1, (heads, -1)).transpose(1, 2)
    layout = "interleaved" if vector.attributes.get("interleaved") else "half"
    rotated = positions.rotary(x, positions.RotaryAngles(cos, sin), layout=layout)
    compare(vector, "output", rotated if heads is None else rotated.transpose(1, 2).flatten(2))


@every(RMS)
def test_rms_norm_gives_the_output_of_the_vector(vector: Vector) -> None:
    x, weight = vector.inputs["X"], vector.inputs["W"]
    axis = vector.attributes.get("axis", -1)
    axes = x.ndim - axis if axis >= 0 else -axis
    compare(vector, "Y", rms_norm(x, weight, axes=axes, eps=vector.attributes.get("epsilon", 1e-5)))
