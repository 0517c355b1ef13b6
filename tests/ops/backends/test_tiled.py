"""Tiled attention: a running average over tiles, never the whole map."""

import pytest
import torch

from softlook import attention, masks, positions, scores
from softlook.ops.backends import tiled
from tests.memory import LargestTensor
from tests.ops_cases import DEVICE, TensorRNG, close, small_tiles

RNG = TensorRNG(torch.Generator().manual_seed(13), torch.float64)
OPTIONS = {
    "plain": {},
    "causal": {"mask": masks.causal()},
    "window": {"mask": masks.window(40)},
    "fully masked rows": {"mask": masks.window(20) & masks.padding([100])},
    "bias that masks": {"bias": RNG.normal(300, 300).masked_fill(RNG.booleans(300, 300), -torch.inf)},
    "alibi": {"bias": positions.alibi(2)},
    "shaw": {"bias": positions.shaw(RNG.normal(9, 3), RNG.normal(9, 2))},
    "softcap and sink": {"softcap": 2.0, "sink": 0.3},
    "additive": {"score": scores.additive(RNG.normal(2, 3, 4), RNG.normal(2, 3, 4), RNG.normal(4))},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_many_tiles_match_the_reference_and_its_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled, "TILE_COLUMNS", 64)
    monkeypatch.setattr(tiled, "TILE_ELEMENTS", {"cpu": 1 << 12, "cuda": 1 << 12})
    monkeypatch.setattr(tiled, "RECOMPUTE_ABOVE", 0)
    groups = (
        2 if name == "additive" else 1
    )  # so that a tile holds one of the two heads, each of which has its own weights
    query, key, value = RNG.normal(1, 2, 300, 3), RNG.normal(1, groups, 300, 3), RNG.normal(1, groups, 300, 2)
    inputs = [tensor.requires_grad_() for tensor in (query, key, value)]
    actual, expected = (attention(*inputs, **OPTIONS[name], backend=path) for path in ("tiled", "reference"))
    close(actual, expected)
    weight = RNG.normal(*actual.shape)
    for one, other in zip(*(torch.autograd.grad(o, inputs, weight) for o in (actual, expected)), strict=True):
        close(one, other, 1e-9)


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 8, 100])
def test_the_number_of_keys_per_tile_does_not_matter(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled, "TILE_COLUMNS", columns)
    query, key = RNG.normal(2, 2, 5, 3), RNG.normal(2, 2, 8, 3)
    for mask in (None, masks.causal(), masks.window(1, 1), ~masks.prefix(4), masks.padding([0, 3])):
        close(
            attention(query, key, key, mask=mask, backend="tiled"),
            attention(query, key, key, mask=mask, backend="reference"),
        )


def saved(N: int) -> int:
    """Elements saved for the backward pass, each storage counted once."""
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        memory = tensor.untyped_storage()
        kept[memory.data_ptr()] = memory.nbytes() // tensor.element_size()
        return tensor

    query = RNG.normal(1, 1, N, 4).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = attention(query, query, query, mask=masks.causal(), softcap=5.0, backend="tiled")
    assert output.requires_grad
    return sum(kept.values())


def test_memory_saved_for_backward_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled, "TILE_ELEMENTS", {"cpu": 1 << 12, "cuda": 1 << 12})
    monkeypatch.setattr(tiled, "RECOMPUTE_ABOVE", 0)
    assert saved(1024) <= 1.1 * 2 * saved(512) + 1024


@pytest.mark.parametrize("name", ["plain", "causal", "alibi", "softcap and sink"])
def test_the_whole_map_is_never_allocated(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled, "TILE_ELEMENTS", {"cpu": 1 << 12, "cuda": 1 << 12})
    monkeypatch.setattr(tiled, "RECOMPUTE_ABOVE", 0)
    monkeypatch.setattr(tiled, "TILE_COLUMNS", 128)
    T = 512
    query, key, value = (RNG.normal(1, 2, T, 4).requires_grad_() for _ in range(3))
    with LargestTensor() as seen:
        attention(query, key, value, **OPTIONS[name], backend="tiled").sum().backward()
    assert seen.elements <= 16 * T, f"{seen.elements} elements allocated by {seen.name}"


def test_recomputed_tiles_use_the_same_dropout() -> None:
    query = RNG.normal(1, 2, 6, 3).requires_grad_()
    eye = torch.eye(6, dtype=torch.float64, device=DEVICE).expand(1, 2, 6, 6).clone().requires_grad_()
    with small_tiles():
        output = attention(query, query, eye, dropout=0.5, backend="tiled")
        output.sum().backward()
    assert eye.grad is not None
    close(eye.grad.sum(-1) / 6, output.sum(2))  # the weights of a key are the gradient of its value


def test_two_averages_are_merged_by_their_log_sum_exp() -> None:
    score, value = RNG.normal(1, 1, 4, 9), RNG.normal(9, 2)
    halves = [
        (part.softmax(-1) @ v, part.logsumexp(-1)) for part, v in zip(score.split(5, -1), value.split(5), strict=True)
    ]
    output, lse = tiled.merge_pair(*halves[0], *halves[1])
    close(output, score.softmax(-1) @ value)
    close(lse, score.logsumexp(-1))


def test_merging_fully_masked_rows_gives_zeros() -> None:
    zero, nothing = torch.zeros(1, 1, 2, 3), torch.full((1, 1, 2), -torch.inf)
    output, lse = tiled.merge_pair(zero, nothing, zero, nothing)
    assert output.eq(0).all() and lse.eq(-torch.inf).all()
    ones = torch.ones(1, 1, 2, 3)
    output, lse = tiled.merge_pair(zero, nothing, ones, torch.zeros(1, 1, 2))
    assert output.equal(ones) and lse.eq(0).all()
