"""Edge cases of attention: empty sizes, autocast, gradients, strides, compilation."""

import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from softlook import attention, attention_and_look, attention_scores, attention_weights, look, masks, scores
from softlook.ops.look import ALL_STATS
from tests.ops_cases import DEVICE, EAGER, TensorRNG, close

RNG = TensorRNG(torch.Generator().manual_seed(7), torch.float64)
FULL = {"B": 2, "H": 4, "G": 2, "T": 3, "S": 5, "D": 6, "E": 2}
EMPTY = {
    "batch": {"B": 0},
    "heads": {"H": 0, "G": 0},
    "queries": {"T": 0},
    "keys": {"S": 0},
    "width": {"D": 0},
    "value width": {"E": 0},
    "queries and keys": {"T": 0, "S": 0},
    "everything": dict.fromkeys(FULL, 0),
}
MASKS = {"no mask": None, "causal": masks.causal(), "mixed": masks.window(1) | ~masks.prefix(1)}
ONE = dict.fromkeys(FULL, 1)


def inputs(sizes: dict[str, int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    B, H, G, T, S, D, E = (sizes[name] for name in "BHGTSDE")
    tensors = RNG.normal(B, H, T, D), RNG.normal(B, G, S, D), RNG.normal(B, G, S, E)
    query, key, value = (tensor.requires_grad_() for tensor in tensors)
    return query, key, value


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("backend", (*EAGER, "auto"))
@pytest.mark.parametrize("name", EMPTY)
def test_empty_sizes_have_defined_outputs_and_gradients(name: str, backend: Any, mask: str) -> None:
    sizes, options = FULL | EMPTY[name], {"mask": MASKS[mask]}
    query, key, value = inputs(sizes)
    output = attention(query, key, value, backend=backend, **options)
    assert output.shape == tuple(sizes[axis] for axis in "BHTE")
    if name == "width":  # all scores are 0: equal weights on the visible keys
        weights = attention_weights(query, key, **options)
        close(output, weights @ value.repeat_interleave(2, 1))
    else:
        assert output.eq(0).all()
    output.sum().backward()
    for tensor in (query, key, value):
        assert tensor.grad is not None and tensor.grad.shape == tensor.shape and tensor.grad.isfinite().all()


@pytest.mark.parametrize("options", [{"sink": 0.5}, {"softcap": 2.0}, {"score": scores.cosine()}], ids=str)
@pytest.mark.parametrize("name", ["batch", "queries", "keys"])
def test_empty_sizes_work_with_every_option(name: str, options: dict[str, Any]) -> None:
    query, key, value = inputs(FULL | EMPTY[name])
    for backend in ("reference", "tiled", "auto"):
        assert attention(query, key, value, backend=backend, **options).eq(0).all()


@pytest.mark.parametrize("name", EMPTY)
def test_a_look_at_empty_sizes_is_defined(name: str) -> None:
    sizes = FULL | EMPTY[name]
    query, key, value = inputs(sizes)
    seen = look(query, key, stats=ALL_STATS, top_k=2, bins=2)
    assert seen.received.shape == (sizes["B"], sizes["H"], sizes["S"])
    assert seen.top_indices.shape == (sizes["B"], sizes["H"], sizes["T"], 2)
    if sizes["S"] == 0:
        assert seen.lse.eq(-torch.inf).all() and seen.entropy.eq(0).all() and seen.top_indices.eq(-1).all()
    assert attention_weights(query, key).shape == (sizes["B"], sizes["H"], sizes["T"], sizes["S"])
    output, _ = attention_and_look(query.detach(), key.detach(), value.detach())
    close(output, attention(query, key, value).detach())


@pytest.mark.parametrize("backend", EAGER)
def test_with_a_single_key_the_output_is_its_value(backend: Any) -> None:
    query, key, value = inputs(ONE)
    close(attention(query, key, value, backend=backend), value)


@pytest.mark.usefixtures("no_shape_checks")  # a GPU may pick the compiled path,
@pytest.mark.filterwarnings("ignore")  # whose compiler has warnings of its own
@pytest.mark.parametrize("options", [{}, {"mask": masks.causal()}, {"softcap": 5.0}, {"sink": 0.0}], ids=str)
def test_autocast_matches_torch(options: dict[str, Any]) -> None:
    query, key, value = (RNG.normal(1, 2, 4, 8).float() for _ in range(3))
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        output = attention(query, key, value, **options)
        expected = torch.nn.functional.scaled_dot_product_attention(query, key, value)
        assert attention_weights(query, key, **options).dtype == torch.bfloat16
    assert output.dtype == expected.dtype == torch.bfloat16
    close(output.float(), attention(query, key, value, **options), 3e-2)


def test_autocast_accepts_both_half_precisions() -> None:
    query, key, value = torch.randn(3, 1, 2, 5, 8, device=DEVICE)
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        mixed = attention(query.bfloat16(), key.half(), value)
        assert mixed.dtype == torch.bfloat16
        torch.testing.assert_close(mixed, attention(query.bfloat16(), key.half().bfloat16(), value.bfloat16()))


def test_autocast_leaves_double_precision_alone() -> None:
    query = RNG.normal(1, 2, 4, 8)
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        assert attention(query, query, query).dtype == torch.float64


def test_a_look_under_autocast_equals_a_look_at_the_rounded_inputs() -> None:
    query, key = (2 * RNG.normal(1, 2, 16, 8).float() for _ in range(2))
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        autocasted = look(query, key, stats=("lse", "entropy", "max_weight", "received"))
    rounded = look(query.bfloat16(), key.bfloat16(), stats=("lse", "entropy", "max_weight", "received"))
    for name in rounded.values:
        close(autocasted.values[name], rounded.values[name], 1e-5)


def test_second_derivatives_match_finite_differences() -> None:
    query, key, value = (RNG.normal(1, 1, 3, 2).requires_grad_() for _ in range(3))

    def call(*tensors: torch.Tensor) -> torch.Tensor:
        return attention(*tensors, mask=masks.causal(), softcap=3.0, sink=0.1, backend="reference")

    assert torch.autograd.gradcheck(call, (query, key, value))
    assert torch.autograd.gradgradcheck(call, (query, key, value))


@pytest.mark.parametrize("backend", ["sdpa", "tiled"])
def test_gradients_match_finite_differences(backend: Any) -> None:
    tensors = [RNG.normal(1, 2, 3, 2).requires_grad_() for _ in range(3)]
    assert torch.autograd.gradcheck(lambda q, k, v: attention(q, k, v, mask=masks.causal(), backend=backend), tensors)


def test_inputs_are_not_modified() -> None:
    query, key, value = (RNG.normal(1, 2, 4, 3) for _ in range(3))
    bias, mask = RNG.normal(4, 4), RNG.booleans(4, 4)
    before = [tensor.clone() for tensor in (query, key, value, bias, mask)]
    for backend in EAGER:
        attention(query, key, value, bias=bias, mask=mask, backend=backend)
    look(query, key, bias=bias, mask=mask, sink=0.0, stats=ALL_STATS)
    attention_scores(query, key, bias=bias, mask=mask, score=scores.cosine())
    for tensor, old in zip((query, key, value, bias, mask), before, strict=True):
        assert tensor.equal(old)


def test_strides_do_not_matter() -> None:
    tensors = [RNG.normal(2, 5, 4, 6) for _ in range(3)]
    strided = [tensor.transpose(1, 2) for tensor in tensors]  # (B, H, T, D) views of (B, T, H, D) memory
    for backend in EAGER:
        close(attention(*strided, backend=backend), attention(*(t.contiguous() for t in strided), backend=backend))


COMPILED = """
import torch
from softlook import attention, masks

query, key, value = torch.randn(3, 1, 2, 6, 8, device="DEVICE")

def call(query, key, value):
    return attention(query, key, value, mask=masks.causal())

compiled = torch.compile(call, fullgraph=True)
for queries in (query, query[:, :, -2:], query[:, :, -1:]):
    torch.testing.assert_close(compiled(queries, key, value), call(queries, key, value), rtol=1e-4, atol=1e-5)

inputs = [tensor.clone().requires_grad_() for tensor in (query, key, value)]
one, other = (torch.autograd.grad(f(*inputs).square().sum(), inputs) for f in (compiled, call))
torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)

many = torch.randn(1, 2, 140, 8, device="DEVICE")  # too long for math attention
traced = torch.compile(call, backend="eager", fullgraph=True)
torch.testing.assert_close(traced(many, many, many), call(many, many, many), rtol=1e-4, atol=1e-5)
"""


@pytest.mark.slow
def test_a_causal_call_compiles_as_one_graph() -> None:
    """In a subprocess: torch.compile cannot trace the shape checks of the test run."""
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    program = COMPILED.replace("DEVICE", DEVICE.type)
    child = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | paths, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
