"""The compiled path: the same answers, really compiled, and never unfused in silence. Compiling is slow."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any
from unittest import mock

import pytest
import torch
import torch._dynamo

from softlook import attention, masks, positions
from softlook.base.moving import moved
from softlook.ops import flex
from tests.asking import DEVICE, Made

unfused = import_module("torch._higher_order_ops.flex_attention")  # a function of the same name hides the module
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("no_shape_checks"),
    pytest.mark.filterwarnings("ignore"),  # the compiler has warnings of its own
]

MADE = Made(torch.Generator().manual_seed(31), torch.float32)
OPTIONS: dict[str, dict[str, Any]] = {
    "causal window": {"mask": masks.causal() & masks.window(40)},
    "softcap": {"softcap": 5.0, "mask": masks.causal()},
    "alibi": {"bias": positions.alibi(4), "mask": masks.causal()},
    "t5": {"bias": positions.t5(MADE.normal(8, 4), max_distance=20)},
    "graph": {"mask": masks.graph(torch.stack([torch.arange(130), torch.arange(130).flip(0) + 60]), loops=False)},
    "blind rows": {"mask": masks.window(20) & masks.padding([100])},
    "dense bias that hides": {"bias": MADE.normal(1, 4, 1, 200).masked_fill(MADE.coin(1, 4, 1, 200), -torch.inf)},
}


@pytest.fixture(autouse=True)
def _nothing_unfused() -> Iterator[None]:
    """The plain-torch version behind FlexAttention must never run."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("FlexAttention went on unfused")

    with mock.patch.object(unfused, "math_attention", refuse), mock.patch.object(unfused, "sdpa_dense", refuse):
        yield


def inputs(T: int, S: int, width: int = 16) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return MADE.normal(1, 4, T, width), MADE.normal(1, 2, S, width), MADE.normal(1, 2, S, width)


def hold_equal(T: int, S: int, **options: Any) -> None:
    query, key, value = inputs(T, S)
    came = attention(query, key, value, **options, backend="flex")
    wanted = attention(query, key, value, **options, backend="reference")
    torch.testing.assert_close(came, wanted, rtol=5e-3, atol=5e-3)  # a GPU's kernel may round products to TF32


@pytest.mark.parametrize("name", OPTIONS)
def test_the_compiled_path_answers_like_the_reference(name: str) -> None:
    with torch.no_grad():
        hold_equal(130, 200, **OPTIONS[name])


def test_it_really_is_compiled() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with torch.no_grad():
        hold_equal(64, 64, mask=masks.causal())
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 1
    assert not torch._dynamo.utils.counters["graph_break"]


def test_twelve_shapes_do_not_make_it_give_up() -> None:
    torch._dynamo.reset()
    with torch.no_grad(), torch._dynamo.config.patch(automatic_dynamic_shapes=False, recompile_limit=2):
        for length in range(40, 52):
            hold_equal(length, length + 3, mask=masks.causal())


def test_past_its_limit_it_says_so_and_does_not_go_on_unfused(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr(flex, "SHAPES", 1)
    with torch.no_grad(), torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        hold_equal(64, 64, mask=masks.causal())
        with pytest.raises(Exception, match="fullgraph=True"):
            hold_equal(65, 65, mask=masks.causal())


def test_a_mask_is_prepared_once_for_each_shape() -> None:
    mask, sizes = moved(masks.window(3) & masks.padding([50]), DEVICE), (1, 4, 64, 64)
    assert flex._block_mask(mask, sizes, DEVICE) is flex._block_mask(mask, sizes, DEVICE)
    assert flex._block_mask(mask, (1, 4, 32, 64), DEVICE) is not flex._block_mask(mask, sizes, DEVICE)
    assert flex._block_mask(masks.causal(), sizes, DEVICE) is flex._block_mask(masks.causal(), sizes, DEVICE)


@pytest.mark.parametrize("lengths", [(300, 300), (130, 400), (257, 129)], ids=str)
@pytest.mark.parametrize("mask", [masks.causal(), masks.window(50), ~masks.prefix(130), masks.padding([200])], ids=str)
def test_a_list_of_blocks_holds_every_key_that_is_seen(mask: masks.Mask, lengths: tuple[int, int]) -> None:
    T, S = lengths
    blocks = flex._blocks(moved(mask, DEVICE), (1, 1, T, S), DEVICE)
    seen = mask.dense((1, 1, T, S), DEVICE).expand(1, 1, T, S)[0, 0].cpu()
    partial = listed(blocks.kv_num_blocks, blocks.kv_indices)
    full = listed(blocks.full_kv_num_blocks, blocks.full_kv_indices)
    for row in range(-(-T // flex.SIDE)):
        for column in range(-(-S // flex.SIDE)):
            cell = seen[row * flex.SIDE : (row + 1) * flex.SIDE, column * flex.SIDE : (column + 1) * flex.SIDE]
            assert ((row, column) in partial | full) == bool(cell.any())
            assert (row, column) not in full or (cell.all() and cell.shape == (flex.SIDE, flex.SIDE))


def listed(counts: torch.Tensor, indices: torch.Tensor) -> set[tuple[int, int]]:
    rows = zip(counts[0, 0].tolist(), indices[0, 0].tolist(), strict=True)
    return {(row, column) for row, (count, columns) in enumerate(rows) for column in columns[:count]}


@pytest.mark.skipif(DEVICE.type != "cuda", reason="a CPU's compiled kernel gives no gradient and no log-sum-exp")
@pytest.mark.parametrize("options", [*OPTIONS.values(), {"sink": torch.zeros(4), "softcap": 5.0}], ids=str)
def test_on_a_gpu_gradients_flow_through_the_compiled_path(options: dict[str, Any]) -> None:
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
