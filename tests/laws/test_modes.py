"""Caches do not leak between modes: tensors made in inference mode or a transform never reach an ordinary call."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from softlook import attention, look, masks, positions
from softlook.ops.masks import cache
from softlook.ops.packing import pack
from tests.models.tiny import TINY, Tiny
from tests.ops_cases import DEVICE

Function = Callable[[Tensor], Tensor]


def in_inference_mode(function: Function, x: Tensor) -> None:
    with torch.inference_mode():
        function(x)


def in_no_grad(function: Function, x: Tensor) -> None:
    with torch.no_grad():
        function(x)


def with_fake_tensors(function: Function, x: Tensor) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        function(mode.from_tensor(x))


def on_the_meta_device(function: Function, x: Tensor) -> None:
    with torch.device("meta"):
        function(x.to("meta"))


def in_a_gradient_of_torch_func(function: Function, x: Tensor) -> None:
    torch.func.grad(lambda x: function(x).sum())(x)


def in_vmap(function: Function, x: Tensor) -> None:
    torch.func.vmap(function)(x[None])


def in_make_fx(function: Function, x: Tensor) -> None:
    make_fx(function)(x)


BEFORE = [
    in_inference_mode,
    in_no_grad,
    with_fake_tensors,
    on_the_meta_device,
    in_a_gradient_of_torch_func,
    in_vmap,
    in_make_fx,
]
T = 40
MASKS: dict[str, Callable[[], masks.Mask | None]] = {
    "none": lambda: None,
    "causal": masks.causal,
    "window": lambda: masks.window(17),
    "window both": lambda: masks.window(3, 11),
    "padding": lambda: masks.padding([T - 7, T]),
    "padding of a tensor": lambda: masks.padding(torch.tensor([T - 7, T], device=DEVICE)),
    "prefix": lambda: masks.prefix([3, 5]) | masks.causal(),
    "documents": lambda: masks.documents(torch.arange(T, device=DEVICE) // 20),
    "packed": lambda: pack([torch.zeros(19, device=DEVICE).long(), torch.zeros(T - 19, device=DEVICE).long()]).mask,
    "graph": lambda: masks.graph(torch.stack([torch.arange(T, device=DEVICE), torch.zeros(T, device=DEVICE).long()])),
    "dense": lambda: masks.dense(torch.ones(T, T, device=DEVICE).tril(3).bool()),
    "and": lambda: masks.window(30) & masks.padding([T, T - 3]),
    "not": lambda: ~masks.window(2),
}
BIASES: dict[str, Any] = {
    "none": lambda: None,
    "alibi": lambda: positions.alibi(2),
    "t5": lambda: positions.t5(torch.ones(8, 2, device=DEVICE)),
}


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("name", MASKS)
def test_an_ordinary_call_is_the_same_after_any_mode(name: str, before: Callable[[Function, Tensor], None]) -> None:
    x = torch.randn(2, 2, T, 8, device=DEVICE)
    for backend in ("auto", "sdpa", "tiled"):
        cache._shared_cache.clear()
        made: list[masks.Mask | None] = []

        def function(x: Tensor, backend: Any = backend, made: list[Any] = made) -> Tensor:
            made[:] = made or [MASKS[name]()]  # made inside the mode, as in models, and reused outside
            return attention(x, x, x, mask=made[0], backend=backend)

        made_before = MASKS[name]()
        with suppress(Exception):  # other tests cover whether the mode itself is supported
            before(lambda x, mask=made_before, b=backend: attention(x, x, x, mask=mask, backend=b), x)
        check_ordinary(lambda x, mask=made_before, b=backend: attention(x, x, x, mask=mask, backend=b), name, x)
        if before in (in_inference_mode, in_no_grad):
            before(function, x)
            check_ordinary(function, name, x)


def check_ordinary(function: Function, name: str, x: Tensor) -> None:
    """Output and gradient equal those with a new mask."""
    leaf = x.clone().requires_grad_()
    output = function(leaf)
    (gradient,) = torch.autograd.grad(output.square().sum(), leaf)
    expected = attention(leaf, leaf, leaf, mask=MASKS[name](), backend="reference")
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.square().sum(), leaf)[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("before", BEFORE)
def test_biases_and_looks_are_the_same_after_any_mode(bias: str, before: Callable[[Function, Tensor], None]) -> None:
    x, made = torch.randn(2, 2, T, 8, device=DEVICE), BIASES[bias]()

    def function(x: Tensor) -> Tensor:
        seen = look(x, x, bias=made, mask=masks.window(5)).entropy
        return attention(x, x, x, bias=made, mask=masks.window(5)) + seen[..., None]

    fresh = function(x)
    with suppress(Exception):
        before(function, x)
    leaf = x.clone().requires_grad_()
    output = function(leaf)
    output.square().sum().backward()
    torch.testing.assert_close(output, fresh, atol=1e-5, rtol=1e-4)
    assert leaf.grad is not None and leaf.grad.isfinite().all()


@pytest.mark.parametrize("tiny", list(TINY.values()), ids=str)
def test_a_model_trains_after_it_was_evaluated_in_inference_mode(tiny: Tiny) -> None:
    cache._shared_cache.clear()
    model, inputs = tiny.build(), tiny.inputs()
    with torch.inference_mode():
        before = tiny.ask(model, inputs).clone()
    output = tiny.ask(model, inputs)
    torch.testing.assert_close(output.detach(), before, atol=1e-5, rtol=1e-4)
    output.square().sum().backward()


def test_cached_masks_of_windows_are_not_inference_tensors() -> None:
    x = torch.randn(1, 2, T, 8, device=DEVICE)
    cache._shared_cache.clear()
    with torch.inference_mode():
        attention(x, x, x, mask=masks.window(5), backend="sdpa")
    (made,) = cache._shared_cache["additive"].values()
    assert not any(tensor.is_inference() for tensor in made if tensor is not None)


@pytest.mark.cuda
@pytest.mark.skipif(DEVICE.type != "cuda", reason="runs with SOFTLOOK_DEVICE=cuda")
@pytest.mark.parametrize("name", MASKS)
def test_a_cuda_graph_neither_changes_nor_depends_on_the_cache(name: str) -> None:
    x, mask = torch.randn(2, 2, T, 8, device=DEVICE), MASKS[name]()
    if name == "graph":
        pytest.skip("a graph mask synchronizes with the GPU")
    expected = attention(x, x, x, mask=mask, backend="reference")
    attention(x, x, x, mask=mask, backend="sdpa")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = attention(x, x, x, mask=mask, backend="sdpa")
    torch.testing.assert_close(attention(x, x, x, mask=mask, backend="sdpa"), expected)
    cache._shared_cache.clear()
    torch.cuda.empty_cache()
    graph.replay()
    torch.testing.assert_close(captured, expected)
