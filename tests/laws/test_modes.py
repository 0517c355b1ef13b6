"""What ran before leaves no trace: nothing made in inference mode or a transform reaches an ordinary call."""

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

Work = Callable[[Tensor], Tensor]


def in_inference_mode(work: Work, x: Tensor) -> None:
    with torch.inference_mode():
        work(x)


def in_no_grad(work: Work, x: Tensor) -> None:
    with torch.no_grad():
        work(x)


def with_fake_tensors(work: Work, x: Tensor) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        work(mode.from_tensor(x))


def on_the_meta_device(work: Work, x: Tensor) -> None:
    with torch.device("meta"):
        work(x.to("meta"))


def in_a_gradient_of_torch_func(work: Work, x: Tensor) -> None:
    torch.func.grad(lambda x: work(x).sum())(x)


def in_vmap(work: Work, x: Tensor) -> None:
    torch.func.vmap(work)(x[None])


def traced(work: Work, x: Tensor) -> None:
    make_fx(work)(x)


BEFORE = [
    in_inference_mode,
    in_no_grad,
    with_fake_tensors,
    on_the_meta_device,
    in_a_gradient_of_torch_func,
    in_vmap,
    traced,
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
    "both": lambda: masks.window(30) & masks.padding([T, T - 3]),
    "opposite": lambda: ~masks.window(2),
}
BIASES: dict[str, Any] = {
    "none": lambda: None,
    "alibi": lambda: positions.alibi(2),
    "t5": lambda: positions.t5(torch.ones(8, 2, device=DEVICE)),
}


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("name", MASKS)
def test_an_ordinary_call_is_the_same_after_any_mode(name: str, before: Callable[[Work, Tensor], None]) -> None:
    x = torch.randn(2, 2, T, 8, device=DEVICE)
    for backend in ("auto", "sdpa", "tiled"):
        cache._shared_cache.clear()
        made: list[masks.Mask | None] = []

        def work(x: Tensor, backend: Any = backend, made: list[Any] = made) -> Tensor:
            made[:] = made or [MASKS[name]()]  # made inside, as models do, and used again outside
            return attention(x, x, x, mask=made[0], backend=backend)

        kept_before = MASKS[name]()
        with suppress(Exception):  # whether it works inside is another law's matter
            before(lambda x, mask=kept_before, b=backend: attention(x, x, x, mask=mask, backend=b), x)
        check_ordinary(lambda x, mask=kept_before, b=backend: attention(x, x, x, mask=mask, backend=b), name, x)
        if before in (in_inference_mode, in_no_grad):
            before(work, x)
            check_ordinary(work, name, x)


def check_ordinary(work: Work, name: str, x: Tensor) -> None:
    """Output and gradient are those of a mask that nobody used before."""
    learning = x.clone().requires_grad_()
    output = work(learning)
    (gradient,) = torch.autograd.grad(output.square().sum(), learning)
    expected = attention(learning, learning, learning, mask=MASKS[name](), backend="reference")
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(
        gradient, torch.autograd.grad(expected.square().sum(), learning)[0], atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("before", BEFORE)
def test_biases_and_looks_are_the_same_after_any_mode(bias: str, before: Callable[[Work, Tensor], None]) -> None:
    x, made = torch.randn(2, 2, T, 8, device=DEVICE), BIASES[bias]()

    def work(x: Tensor) -> Tensor:
        seen = look(x, x, bias=made, mask=masks.window(5)).entropy
        return attention(x, x, x, bias=made, mask=masks.window(5)) + seen[..., None]

    fresh = work(x)
    with suppress(Exception):
        before(work, x)
    learning = x.clone().requires_grad_()
    output = work(learning)
    output.square().sum().backward()
    torch.testing.assert_close(output, fresh, atol=1e-5, rtol=1e-4)
    assert learning.grad is not None and learning.grad.isfinite().all()


@pytest.mark.parametrize("tiny", list(TINY.values()), ids=str)
def test_a_model_trains_after_it_was_evaluated_in_inference_mode(tiny: Tiny) -> None:
    cache._shared_cache.clear()
    model, inputs = tiny.build(), tiny.inputs()
    with torch.inference_mode():
        before = tiny.ask(model, inputs).clone()
    output = tiny.ask(model, inputs)
    torch.testing.assert_close(output.detach(), before, atol=1e-5, rtol=1e-4)
    output.square().sum().backward()


def test_a_band_stays_ordinary_while_it_is_used_in_inference_mode() -> None:
    x = torch.randn(1, 2, T, 8, device=DEVICE)
    cache._shared_cache.clear()
    with torch.inference_mode():
        attention(x, x, x, mask=masks.window(5), backend="sdpa")
    (made,) = cache._shared_cache["additive"].values()
    assert not any(tensor.is_inference() for tensor in made if tensor is not None)


@pytest.mark.cuda
@pytest.mark.skipif(DEVICE.type != "cuda", reason="runs with SOFTLOOK_DEVICE=cuda")
@pytest.mark.parametrize("name", MASKS)
def test_a_captured_graph_leaves_nothing_behind_and_depends_on_nothing_kept(name: str) -> None:
    x, mask = torch.randn(2, 2, T, 8, device=DEVICE), MASKS[name]()
    if name == "graph":
        pytest.skip("a graph mask waits for the GPU")
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
