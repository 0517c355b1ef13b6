"""A look has the statistics of the whole attention map without materializing it."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from softlook import attention_and_look, attention_scores, look
from softlook.ops.look import ALL_STATS
from tests.ops_cases import Case, cases, close, small_tiles


def statistics_of_the_map(case: Case, top_k: int, bins: int) -> dict[str, Tensor]:
    """Every statistic, computed from the weights."""
    weights = case.weights()
    _, _, T, S = case.sizes
    options: dict[str, Any] = case.options | {"sink": None}
    lse = attention_scores(case.query, case.key, **options).logsumexp(-1)
    sink = case.options.get("sink")
    if sink is not None:
        lse = torch.logaddexp(
            lse, torch.as_tensor(sink, dtype=lse.dtype, device=lse.device).expand(lse.shape[1])[:, None]
        )
    mass, square, some = weights.sum(-1), weights.square().sum(-1), weights.masked_fill(weights == 0, 1)
    distances = (torch.arange(T)[:, None] + S - T - torch.arange(S)).abs().to(weights)
    best = weights.sort(-1, descending=True).values[..., :top_k]
    return {
        "lse": lse,
        "entropy": -(some * some.log()).sum(-1),
        "effective_keys": mass.square() / square.masked_fill(square == 0, 1),
        "max_weight": weights.amax(-1),
        "mean_distance": (weights * distances).sum(-1),
        "received": weights.sum(-2),
        "top_weights": torch.nn.functional.pad(best, (0, top_k - best.shape[-1])),
    } | pooled(weights, bins)


def pooled(weights: Tensor, bins: int) -> dict[str, Tensor]:
    """The map pooled over cells of sizes that differ by at most one."""
    T, S = weights.shape[-2:]
    rows, columns = ([n * length // min(length, bins) for n in range(min(length, bins) + 1)] for length in (T, S))
    cells = [
        [weights[..., top:bottom, left:right].flatten(-2) for left, right in zip(columns, columns[1:], strict=False)]
        for top, bottom in zip(rows, rows[1:], strict=False)
    ]
    means = torch.stack([torch.stack([cell.mean(-1) for cell in row], -1) for row in cells], -2)
    maxima = torch.stack([torch.stack([cell.amax(-1) for cell in row], -1) for row in cells], -2)
    return {"pooled_mean": means, "pooled_max": maxima}


def check_look(case: Case, seen: Any, top_k: int, bins: int, tolerance: float = 1e-9) -> None:
    for name, expected in statistics_of_the_map(case, top_k, bins).items():
        close(getattr(seen, name).to(expected.dtype), expected, tolerance)
    indices, weights = seen.top_indices, case.weights()
    assert indices.eq(-1).eq(seen.top_weights.eq(0)).all()
    close(
        weights.gather(-1, indices.clamp(min=0)).masked_fill(indices.eq(-1), 0), seen.top_weights.to(weights), tolerance
    )
    ordered = indices.sort(-1).values
    assert (ordered.diff(dim=-1).ne(0) | ordered[..., 1:].eq(-1)).all(), "a key is listed twice"


@pytest.mark.parametrize("tiles", ["one tile", "small tiles"])
@given(case=cases(), top_k=st.integers(1, 9), bins=st.integers(1, 9))
def test_a_look_matches_the_whole_map(case: Case, top_k: int, bins: int, tiles: str) -> None:
    def compute() -> Any:
        return look(case.query, case.key, **case.options, stats=ALL_STATS, top_k=top_k, bins=bins)

    if tiles == "one tile":
        return check_look(case, compute(), top_k, bins)
    with small_tiles():
        seen = compute()
    return check_look(case, seen, top_k, bins)


@given(cases(dtype=torch.float32))
def test_a_look_in_float32_is_accurate_to_five_digits(case: Case) -> None:
    seen = look(case.query, case.key, **case.options, stats=ALL_STATS, top_k=3, bins=4)
    check_look(case, seen, 3, 4, 1e-5)


@given(cases())
def test_mix_multiplies_by_the_map_and_spread_by_its_transpose(case: Case) -> None:
    B, H, T, _ = case.sizes
    seen, weights = look(case.query, case.key, **case.options), case.weights()
    group_size = H // case.key.shape[1]
    close(seen.mix(case.value), weights @ case.value.repeat_interleave(group_size, 1))
    close(seen.mix(case.value[0, 0]), weights @ case.value[0, 0])
    amounts = case.rng.normal(B, H, T, 3)
    close(seen.spread(amounts), weights.mT @ amounts)
    close(seen.spread(amounts[0, 0]), weights.mT @ amounts[0, 0])
    with small_tiles():
        close(seen.mix(case.value), weights @ case.value.repeat_interleave(group_size, 1))
        close(seen.spread(amounts), weights.mT @ amounts)


@given(cases(kinds="every"), st.booleans())
def test_attention_and_look_match_the_separate_calls(case: Case, requires_grad: bool) -> None:
    query = case.query.clone().requires_grad_(requires_grad)
    output, seen = attention_and_look(query, case.key, case.value, **case.options)
    close(output, case.attend(backend="reference"))
    assert output.requires_grad == requires_grad
    alone = look(case.query, case.key, **case.options)
    for name in alone.values:
        close(getattr(seen, name), getattr(alone, name))
        assert requires_grad or not getattr(seen, name).requires_grad
