"""Attention between short sequences by its Triton kernels: on a GPU, or in Triton's interpreter on a CPU."""

import os
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from softlook import attention, explain, masks
from softlook.ops.arguments import prepare_args
from softlook.ops.backends import short
from softlook.ops.backends.short import has_short_kernel, short_attention

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and find_spec("triton") is not None
DEVICES = [
    pytest.param("cpu", marks=pytest.mark.skipif(not INTERPRETED, reason="needs Triton and TRITON_INTERPRET=1")),
    pytest.param("cuda", marks=pytest.mark.cuda),
]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # of the interpreter


def tensors(device: str, T: int, S: int, D: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(T + S)
    made = [torch.randn(2, size, 3, D, generator=generator).transpose(1, 2) for size in (T, S, S)]
    return [tensor.to(device, dtype).requires_grad_() for tensor in made]


def check(inputs: list[Tensor], scale: float = 0.3) -> None:
    """Output and gradients are those of the whole map in float64."""
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    output = short_attention(inputs[0], inputs[1], inputs[2], scale, 0.0)
    expected = attention(*exact, scale=scale, backend="reference")
    tolerance = TOLERANCE[inputs[0].dtype]
    assert_close(output.double(), expected, rtol=tolerance, atol=tolerance)
    upstream = torch.randn_like(output)
    grads = torch.autograd.grad(output, inputs, upstream)
    for given, wanted in zip(grads, torch.autograd.grad(expected, exact, upstream.double()), strict=True):
        assert_close(given.double(), wanted, rtol=tolerance, atol=4 * tolerance)


@pytest.mark.parametrize("sizes", [(16, 16, 16), (9, 9, 24), (55, 55, 24), (1, 33, 8), (60, 5, 40)], ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_outputs_and_gradients_match_the_reference(device: str, sizes: tuple[int, int, int]) -> None:
    check(tensors(device, *sizes))


@pytest.mark.parametrize("scale", [-0.4, 0.0])
@pytest.mark.parametrize("device", DEVICES)
def test_any_scale_matches_the_reference(device: str, scale: float) -> None:
    check(tensors(device, 9, 12, 16), scale)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("sizes", [(16, 16, 64), (55, 55, 24), (64, 64, 64), (33, 50, 40)], ids=str)
def test_dtypes_and_widths_match_the_reference(sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    check(tensors("cuda", *sizes, dtype))


@pytest.mark.parametrize("device", DEVICES)
def test_dropout_drops_the_same_weights_in_both_passes(device: str) -> None:
    """With identity matrices as values the output is the dropped map, and it is linear in the values."""
    query, key, _ = tensors(device, 20, 16, 16)
    value = torch.eye(16, device=device).expand(2, 3, 16, 16).clone().requires_grad_()
    torch.manual_seed(3)
    dropped = short_attention(query, key, value, 0.25, 0.4)
    plain = attention(query, key, value, scale=0.25, backend="reference")
    kept = dropped != 0
    assert 0.5 < kept.float().mean() < 0.7
    assert_close(dropped, torch.where(kept, plain / 0.6, 0.0), rtol=1e-4, atol=1e-5)
    upstream = torch.randn_like(dropped)
    factor = kept.float() / 0.6
    given = torch.autograd.grad(dropped, (query, key, value), upstream)
    weights = (query @ key.mT * 0.25).softmax(-1) * factor
    expected = torch.autograd.grad(weights @ value, (query, key, value), upstream)
    for one, other in zip(given, expected, strict=True):
        assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_each_call_and_each_map_drops_other_weights(device: str) -> None:
    query, key, value = (tensor.detach() * 0 + 1 for tensor in tensors(device, 16, 16, 16))
    one, other = (short_attention(query, key, value, 0.25, 0.5) for _ in range(2))
    assert not torch.equal(one, other)
    assert not torch.equal(one[0, 0], one[0, 1])


def test_the_kernel_is_for_plain_short_sequences_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value = (torch.randn(256, 2, 20, 16) for _ in range(3))
    assert not has_short_kernel(prepare_args(query, key), value)  # no GPU
    monkeypatch.setattr(short, "_has_triton", lambda: True)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: True))
    assert has_short_kernel(prepare_args(query, key), value)
    assert not has_short_kernel(prepare_args(query, key, mask=masks.causal()), value)
    assert not has_short_kernel(prepare_args(query[:, :, :1].expand(-1, -1, 65, -1), key), value)
    assert not has_short_kernel(prepare_args(query[:100], key[:100]), value[:100])


@pytest.mark.cuda
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_cuda_graphs_contain_the_kernel(dropout: float) -> None:
    inputs = [torch.randn(512, 2, 20, 16, device="cuda", requires_grad=True) for _ in range(3)]
    assert explain(*inputs, dropout=dropout).kernel == "short"
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            attention(*inputs, dropout=dropout)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = attention(*inputs, dropout=dropout)
    graph.replay()
    first = captured.clone()
    graph.replay()
    assert torch.equal(first, captured) == (dropout == 0)
