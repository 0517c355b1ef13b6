"""Weights, parts and statistics of every family are those of the kernels that the model ran."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.testing import assert_close

from softlook.blocks import AttentionCore
from softlook.lens import trace
from tests.lens.families import FAMILIES, build, kernel_maps


def one_map(name: str, calls: list[Tensor]) -> Tensor:
    """The queries of several calls, one after another; a memory of fixed length drops the first keys."""
    stops = torch.tensor([weights.shape[2] for weights in calls]).cumsum(0).tolist()
    starts = [stop - weights.shape[3] if "memory" in name else 0 for stop, weights in zip(stops, calls, strict=True)]
    keys = max(start + weights.shape[3] for start, weights in zip(starts, calls, strict=True))
    placed = [pad(x, (start, keys - start - x.shape[3])) for start, x in zip(starts, calls, strict=True)]
    return torch.cat(placed, 2)


@pytest.mark.parametrize("name", FAMILIES)
def test_weights_are_those_of_the_kernel(name: str) -> None:
    model, forward = build(name)
    expected = kernel_maps(model)
    with torch.no_grad(), trace(model) as recorded:
        forward(model)
    assert set(recorded) == set(expected)
    for path, layer in recorded.items():
        dense = one_map(name, expected[path])
        assert layer.shape == dense.shape
        assert_close(layer.weights(), dense, atol=1e-6, rtol=1e-5)
        part = {"heads": slice(0, 1), "rows": slice(0, None, 2), "columns": slice(1, None, 3)}
        assert_close(layer.weights(**part), dense[:, :1, ::2, 1::3], atol=1e-6, rtol=1e-5)
        assert_close(layer.tile(1, 0, 0, pool="max").amax((2, 3)), dense.amax((2, 3)), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_lanes_are_statistics_of_the_map_of_the_kernel(name: str) -> None:
    model, forward = build(name)
    expected = kernel_maps(model)
    with torch.no_grad(), trace(model) as recorded:
        forward(model)
    for path, layer in recorded.items():
        dense, lanes = one_map(name, expected[path]), layer.lanes(top_k=1)
        assert_close(lanes["received"], dense.sum(2), atol=1e-5, rtol=1e-4)
        assert_close(lanes["entropy"], -torch.xlogy(dense, dense).sum(-1), atol=1e-5, rtol=1e-4)
        assert_close(lanes["top_weights"][..., 0], dense.amax(-1), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_attention_times_gradient_is_that_of_autograd(name: str) -> None:
    model, forward = build(name)
    maps = kernel_maps(model)

    def replace(path: str, args: tuple[Tensor, ...]) -> Tensor:
        weights = maps[path.removesuffix(".core")][-1]
        return weights @ args[2].repeat_interleave(weights.shape[1] // args[2].shape[1], 1)

    for path, core in model.named_modules():
        if isinstance(core, AttentionCore):  # the output is computed from the map, which gets a gradient so
            core.register_forward_hook(lambda core, args, output, path=path: replace(path, args))
    with trace(model, grad=True) as recorded:
        forward(model)
    for path, layer in recorded.items():
        outputs = [call.output for call in layer.calls if call.output is not None]
        scalar = torch.stack([(x.square() * torch.linspace(0, 1, x.shape[-1])).sum() for x in outputs]).sum()
        gradients = torch.autograd.grad(scalar, maps[path], retain_graph=True)
        expected = one_map(name, [(a * b).detach() for a, b in zip(maps[path], gradients, strict=True)])
        assert_close(layer.gradient_times_attention(scalar), expected, atol=1e-5, rtol=1e-3)
        part = layer.gradient_times_attention(scalar, heads=slice(0, 1), rows=slice(0, 4), columns=slice(0, None, 2))
        assert_close(part, expected[:, :1, :4, ::2], atol=1e-5, rtol=1e-3)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_trace_on_a_gpu_has_the_weights_of_the_kernel(dtype: torch.dtype) -> None:
    model, _ = build("llama, grouped, softcap and windows")
    model, expected = model.to("cuda", dtype), kernel_maps(model)
    with torch.no_grad(), trace(model) as recorded:
        model(torch.randint(20, (2, 16), device="cuda"))
    for path, layer in recorded.items():
        tolerance = 1e-5 if dtype == torch.float32 else 2e-2
        assert_close(layer.weights().float(), expected[path][0].float(), atol=tolerance, rtol=tolerance)
        assert_close(layer.tile(1, 0, 0), layer.overview(size=8), atol=1e-6, rtol=1e-5)
