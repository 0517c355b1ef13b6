"""Statistics of a look: the grouped top-k, and memory below that of the whole map."""

import pytest
import torch

from softlook import attention_and_look, look, masks, positions
from softlook.ops import statistics
from softlook.ops.look import ALL_STATS
from softlook.ops.statistics import grouped_top_k
from tests.memory import LargestTensor
from tests.ops_cases import DEVICE, TensorRNG

RNG = TensorRNG(torch.Generator().manual_seed(11), torch.float32)


@pytest.fixture(autouse=True)
def grouped_at_every_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the grouped top-k even at lengths where it is not faster."""
    monkeypatch.setattr(statistics, "GROUPED_TOP_K_MIN_KEYS", 0)


def assert_holds_the_largest(weights: torch.Tensor, count: int) -> None:
    values, indices = grouped_top_k(weights, count)
    expected = weights.topk(min(count, weights.shape[-1]), dim=-1).values
    assert values.equal(expected)
    assert weights.gather(-1, indices).equal(values)
    assert indices.sort(-1).values.diff(dim=-1).gt(0).all(), "a key is listed twice"


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_the_largest_weights_are_found_at_every_length(count: int) -> None:
    around_group_sizes = [n * n * count + off for n in range(3, 9) for off in (-1, 0, 1, n)]
    for length in (1, 2, count, count + 1, *around_group_sizes):
        assert_holds_the_largest(RNG.normal(2, 1, 5, length).softmax(-1), count)


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("length", [5, 64, 127, 128, 129, 300])
def test_tied_weights_are_listed_once(count: int, length: int) -> None:
    assert_holds_the_largest(torch.full((1, 1, 2, length), 0.25, device=DEVICE), count)
    assert_holds_the_largest(RNG.integers(0, 3, 1, 2, 4, length).float(), count)


@pytest.mark.parametrize("length", [128, 131, 300])
def test_top_weights_may_be_adjacent_or_at_the_end(length: int) -> None:
    weights = torch.zeros(1, 1, 3, length, device=DEVICE)
    weights[..., 0, 17:21] = torch.tensor([0.1, 0.4, 0.3, 0.2], device=DEVICE)
    weights[..., 1, -4:] = torch.tensor([0.1, 0.4, 0.3, 0.2], device=DEVICE)
    weights[..., 2, ::60] = 1 / len(weights[0, 0, 2, ::60])
    assert_holds_the_largest(weights, 4)
    assert grouped_top_k(weights, 4)[1][0, 0, 0].tolist() == [18, 19, 20, 17]
    assert grouped_top_k(weights, 4)[1][0, 0, 1].tolist() == [length - 3, length - 2, length - 1, length - 4]


OPTIONS = {
    "plain": {},
    "causal": {"mask": masks.causal()},
    "padding": {"mask": masks.padding([300])},
    "alibi": {"bias": positions.alibi(2)},
    "capped": {"softcap": 5.0, "sink": 0.0},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_look_never_allocates_the_map(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "TILE_ELEMENTS", {"cpu": 1 << 13, "cuda": 1 << 13})
    T = 512
    query, key = RNG.normal(1, 2, T, 4), RNG.normal(1, 1, T, 4)
    with LargestTensor() as largest:
        seen = look(query, key, stats=ALL_STATS, bins=16, **OPTIONS[name])
        seen.mix(key)
        seen.spread(query)
        attention_and_look(query, key, key, **OPTIONS[name])
    assert largest.elements <= 2 * 16 * T * 2, f"{largest.elements} elements allocated by {largest.name}"
