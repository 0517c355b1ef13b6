"""Attention under torch's transforms: meta and fake tensors, vmap, torch.export, torch.compile, make_fx."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim
from torch.fx.experimental.proxy_tensor import make_fx

from softlook import attention, masks, positions
from softlook.models import GPT, GPTConfig, Llama, LlamaConfig
from softlook.ops.masks import Mask
from tests.ops.transform_cases import BIASES, LENGTHS, MASKS, inputs

every_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
every_length = pytest.mark.parametrize("length", LENGTHS)


@every_length
@every_mask
def test_the_meta_device_gives_the_output_shape(mask: Callable[[int], Mask | None], length: int) -> None:
    query, key, value = (tensor.to("meta") for tensor in inputs(length))
    assert attention(query, key, value, mask=mask(length)).shape == value.shape


@every_length
@pytest.mark.parametrize("mask", [make for name, make in MASKS.items() if name != "graph"])
def test_fake_tensors_give_the_output_shape(mask: Callable[[int], Mask | None], length: int) -> None:
    with FakeTensorMode():
        query, key, value = inputs(length)
        assert attention(query, key, value, mask=mask(length)).shape == value.shape


@every_length
def test_fake_tensors_are_not_cached(length: int) -> None:
    with FakeTensorMode():
        attention(*inputs(length), mask=masks.window(2))
    output = attention(*inputs(length), mask=masks.window(2))
    assert type(output) is Tensor and output.isfinite().all()


@every_length
@every_mask
def test_vmap_matches_a_loop(mask: Callable[[int], Mask | None], length: int) -> None:
    query, key, value = inputs(length, batch=(3, 2))
    one = mask(length)
    mapped = torch.vmap(lambda q, k, v: attention(q, k, v, mask=one))(query, key, value)
    looped = torch.stack([attention(q, k, v, mask=one) for q, k, v in zip(query, key, value, strict=True)])
    torch.testing.assert_close(mapped, looped)


@every_length
def test_vmap_over_a_bias_matches_a_loop(length: int) -> None:
    query, key, value = inputs(length)
    biases = torch.randn(3, 2, 2, length, length)
    mapped = torch.vmap(lambda bias: attention(query, key, value, bias=bias))(biases)
    looped = torch.stack([attention(query, key, value, bias=bias) for bias in biases])
    torch.testing.assert_close(mapped, looped)


@every_length
def test_vmap_over_a_mask_matches_a_loop(length: int) -> None:
    query, key, value = inputs(length)
    dense = torch.rand(3, 2, 1, length, length) > 0.5
    mapped = torch.vmap(lambda mask: attention(query, key, value, mask=mask))(dense)
    looped = torch.stack([attention(query, key, value, mask=mask) for mask in dense])
    torch.testing.assert_close(mapped, looped)


@every_length
def test_per_sample_gradients_match_a_loop(length: int) -> None:
    query, key, value = inputs(length, batch=(3, 1))

    def loss(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, mask=masks.causal()).square().sum()

    gradient = torch.func.grad(loss)
    mapped = torch.vmap(gradient)(query, key, value)
    looped = torch.stack([gradient(q, k, v) for q, k, v in zip(query, key, value, strict=True)])
    torch.testing.assert_close(mapped, looped)


@every_length
@every_mask
def test_make_fx_traces_attention(mask: Callable[[int], Mask | None], length: int) -> None:
    one, (query, key, value) = mask(length), inputs(length)
    traced = make_fx(lambda q, k, v: attention(q, k, v, mask=one))(query, key, value)
    query, key, value = inputs(length)
    torch.testing.assert_close(traced(query, key, value), attention(query, key, value, mask=one))


@pytest.mark.parametrize(
    "names", [("padding", "graph"), pytest.param((*MASKS, *BIASES), marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_masks_and_biases_compile_as_one_graph(names: tuple[str, ...]) -> None:
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "tests.ops.transform_cases", *names]
    child = subprocess.run(command, env=os.environ | paths, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr


class AttentionModule(torch.nn.Module):
    """Attention with one mask, as a module that can be exported."""

    def __init__(self, mask: Mask | None) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention(query, key, value, mask=self.mask)


@pytest.mark.parametrize("mask", [None, masks.causal(), masks.window(3), masks.causal() | masks.prefix(2)], ids=str)
@pytest.mark.usefixtures("no_shape_checks")
def test_a_dynamic_length_is_exported(mask: Mask | None) -> None:
    length = Dim("length", min=2, max=4096)
    module = AttentionModule(mask)
    program = torch.export.export(module, inputs(48), dynamic_shapes=({2: length}, {2: length}, {2: length}))
    for T in (2, 17, 100):
        query, key, value = inputs(T)
        torch.testing.assert_close(program.module()(query, key, value), module(query, key, value))


@pytest.mark.usefixtures("no_shape_checks")
def test_a_dynamic_number_of_queries_and_keys_is_exported() -> None:
    T, S = Dim("T", min=2, max=4096), Dim("S", min=2, max=4096)
    module = AttentionModule(None)
    query, key, value = inputs(48)
    shapes = ({2: T}, {2: S}, {2: S})
    program = torch.export.export(module, (query[:, :, :40].contiguous(), key, value), dynamic_shapes=shapes)
    torch.testing.assert_close(program.module()(query, key, value), module(query, key, value))


SMALL: dict[str, Any] = {"vocab_size": 10, "context": 64, "dim": 16, "depth": 2, "heads": 2}


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(
    "make", [lambda: GPT(GPTConfig(**SMALL)), lambda: Llama(LlamaConfig(**SMALL))], ids=["gpt", "llama"]
)
def test_a_model_is_exported_with_a_dynamic_length(make: Callable[[], torch.nn.Module]) -> None:
    model = make().eval()
    shapes = {0: Dim("batch", min=2, max=64), 1: Dim("length", min=2, max=64)}
    program = torch.export.export(model, (torch.randint(0, 10, (2, 40)),), dynamic_shapes=(shapes,)).module()
    for batch, length in ((2, 5), (3, 64), (4, 33)):
        ids = torch.randint(0, 10, (batch, length))
        torch.testing.assert_close(program(ids), model(ids))


@pytest.mark.usefixtures("no_shape_checks")
def test_a_mask_of_another_type_raises_an_error() -> None:
    with pytest.raises(TypeError, match=r"mask.*function"):
        attention(*inputs(4), mask=lambda b, h, i, j: i >= j)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"bias.*str"):
        attention(*inputs(4), bias="alibi")  # pyright: ignore[reportArgumentType]


def test_no_queries_work_with_every_bias() -> None:
    _, key, value = inputs(4)
    query = torch.randn(2, 2, 0, 8)
    xl = positions.transformer_xl(torch.randn(2, 4, 8), torch.randn(2, 8), torch.randn(2, 8))
    for bias in (xl, *(make(4) for name, make in BIASES.items() if name != "dense")):
        assert attention(query, key, value, bias=bias).shape == (2, 2, 0, 8)


def test_inference_then_training_is_possible_with_every_mask() -> None:
    for length in LENGTHS:
        for make in MASKS.values():
            mask = make(length)
            with torch.inference_mode():
                attention(*inputs(length), mask=mask)
            query, key, value = (tensor.requires_grad_() for tensor in inputs(length))
            attention(query, key, value, mask=mask).sum().backward()
            assert query.grad is not None and query.grad.isfinite().all()
