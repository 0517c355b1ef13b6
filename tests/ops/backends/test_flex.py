"""FlexAttention: equal to the reference, compiled, never silently unfused. Compiling is slow."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any
from unittest import mock

import pytest
import torch
import torch._dynamo

from softlook import attention, bias, masks, positions
from softlook.base.tensors import to_device
from softlook.ops.backends import flex
from tests.ops_cases import DEVICE, TensorRNG

unfused = import_module("torch._higher_order_ops.flex_attention")  # a function of the same name shadows the module
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("no_shape_checks"),
    pytest.mark.filterwarnings("ignore"),  # of the compiler
]

RNG = TensorRNG(torch.Generator().manual_seed(31), torch.float32)
OPTIONS: dict[str, dict[str, Any]] = {
    "causal window": {"mask": masks.causal() & masks.window(40)},
    "softcap": {"softcap": 5.0, "mask": masks.causal()},
    "alibi": {"bias": positions.alibi(4), "mask": masks.causal()},
    "t5": {"bias": positions.t5(RNG.normal(8, 4), max_distance=20)},
    "function mask": {"mask": masks.from_function(lambda b, h, q_idx, kv_idx: (q_idx - kv_idx) % 3 == 0)},
    "score function": {"bias": bias.from_function(lambda score, b, h, q_idx, kv_idx: score - 0.1 * (q_idx - kv_idx))},
    "fully masked rows": {"mask": masks.window(20) & masks.padding([100])},
    "dense bias that masks": {"bias": RNG.normal(1, 4, 1, 200).masked_fill(RNG.booleans(1, 4, 1, 200), -torch.inf)},
}


@pytest.fixture(autouse=True)
def _never_unfused() -> Iterator[None]:
    """FlexAttention's unfused fallback must never run."""

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("FlexAttention ran unfused")

    with mock.patch.object(unfused, "math_attention", fail), mock.patch.object(unfused, "sdpa_dense", fail):
        yield


def inputs(T: int, S: int, width: int = 16) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return RNG.normal(1, 4, T, width), RNG.normal(1, 2, S, width), RNG.normal(1, 2, S, width)


def assert_matches_reference(T: int, S: int, **options: Any) -> None:
    query, key, value = inputs(T, S)
    actual = attention(query, key, value, **options, backend="flex")
    expected = attention(query, key, value, **options, backend="reference")
    torch.testing.assert_close(actual, expected, rtol=5e-3, atol=5e-3)  # a GPU's kernel may round products to TF32


@pytest.mark.parametrize("name", OPTIONS)
def test_flex_matches_the_reference(name: str) -> None:
    with torch.no_grad():
        assert_matches_reference(130, 200, **OPTIONS[name])


def test_flex_is_compiled() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with torch.no_grad():
        assert_matches_reference(64, 64, mask=masks.causal())
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 1
    assert not torch._dynamo.utils.counters["graph_break"]


def test_twelve_shapes_stay_within_the_recompile_limit() -> None:
    torch._dynamo.reset()
    with torch.no_grad(), torch._dynamo.config.patch(automatic_dynamic_shapes=False, recompile_limit=2):
        for length in range(40, 52):
            assert_matches_reference(length, length + 3, mask=masks.causal())


def test_past_the_recompile_limit_it_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr(flex, "RECOMPILE_LIMIT", 1)
    with torch.no_grad(), torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        assert_matches_reference(64, 64, mask=masks.causal())
        with pytest.raises(Exception, match="fullgraph=True"):
            assert_matches_reference(65, 65, mask=masks.causal())


def test_a_block_mask_is_cached_per_shape() -> None:
    mask, sizes = to_device(masks.window(3) & masks.padding([50]), DEVICE), (1, 4, 64, 64)
    assert flex._block_mask(mask, sizes, DEVICE) is flex._block_mask(mask, sizes, DEVICE)
    assert flex._block_mask(mask, (1, 4, 32, 64), DEVICE) is not flex._block_mask(mask, sizes, DEVICE)
    assert flex._block_mask(masks.causal(), sizes, DEVICE) is flex._block_mask(masks.causal(), sizes, DEVICE)


@pytest.mark.parametrize("lengths", [(300, 300), (130, 400), (257, 129)], ids=str)
@pytest.mark.parametrize("mask", [masks.causal(), masks.window(50), ~masks.prefix(130), masks.padding([200])], ids=str)
def test_a_block_mask_holds_every_visible_key(mask: masks.Mask, lengths: tuple[int, int]) -> None:
    T, S = lengths
    blocks = flex._build_block_mask(to_device(mask, DEVICE), (1, 1, T, S), DEVICE)
    visible = mask.to_dense((1, 1, T, S), DEVICE).expand(1, 1, T, S)[0, 0].cpu()
    partial = block_set(blocks.kv_num_blocks, blocks.kv_indices)
    full = block_set(blocks.full_kv_num_blocks, blocks.full_kv_indices)
    for row in range(-(-T // flex.BLOCK_SIZE)):
        for column in range(-(-S // flex.BLOCK_SIZE)):
            cell = visible[
                row * flex.BLOCK_SIZE : (row + 1) * flex.BLOCK_SIZE,
                column * flex.BLOCK_SIZE : (column + 1) * flex.BLOCK_SIZE,
            ]
            assert ((row, column) in partial | full) == bool(cell.any())
            assert (row, column) not in full or (cell.all() and cell.shape == (flex.BLOCK_SIZE, flex.BLOCK_SIZE))


def block_set(counts: torch.Tensor, indices: torch.Tensor) -> set[tuple[int, int]]:
    rows = zip(counts[0, 0].tolist(), indices[0, 0].tolist(), strict=True)
    return {(row, column) for row, (count, columns) in enumerate(rows) for column in columns[:count]}


@pytest.mark.skipif(DEVICE.type != "cuda", reason="the CPU kernel has no gradient and no log-sum-exp")
@pytest.mark.parametrize("options", [*OPTIONS.values(), {"sink": torch.zeros(4), "softcap": 5.0}], ids=str)
def test_cuda_gradients_match_the_reference(options: dict[str, Any]) -> None:
    tensors = [tensor.requires_grad_() for tensor in inputs(130, 200)]
    if "sink" in options:
        options = options | {"sink": options["sink"].to(DEVICE).requires_grad_()}
        tensors.append(options["sink"])
    gradients = []
    for path in ("flex", "reference"):
        output = attention(*tensors[:3], **options, backend=path)
        gradients.append(torch.autograd.grad(output.square().sum(), tensors))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2 * float(other.abs().max()))
