"""The reference backend, to which all others are compared, against plain Python arithmetic."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from softlook import attention, attention_scores, attention_weights, masks
from tests.ops_cases import DEVICE, TensorRNG, close

RNG = TensorRNG(torch.Generator().manual_seed(5), torch.float64)


def by_hand(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> tuple[list[Any], list[Any]]:
    """Attention in Python floats: scores, scale, softcap, bias, mask, softmax, weighted sum."""
    B, H, T, D = query.shape
    G, S, E = value.shape[1:]
    cap, bias, mask, sink = (options.get(name) for name in ("softcap", "bias", "mask", "sink"))
    q, k, v = query.tolist(), key.tolist(), value.tolist()
    weights = [[[[0.0] * S for _ in range(T)] for _ in range(H)] for _ in range(B)]
    output = [[[[0.0] * E for _ in range(T)] for _ in range(H)] for _ in range(B)]
    for b, h, i in ((b, h, i) for b in range(B) for h in range(H) for i in range(T)):
        g = h // (H // G)
        exps = {}
        for j in range(S):
            score = sum(x * y for x, y in zip(q[b][h][i], k[b][g][j], strict=True)) * options.get("scale", D**-0.5)
            score = score if cap is None else cap * math.tanh(score / cap)
            score += 0.0 if bias is None else float(bias[b, h, i, j])
            if mask is None or bool(mask[b, h, i, j]):
                exps[j] = math.exp(score)
        total = sum(exps.values()) + (0.0 if sink is None else math.exp(float(sink[h])))
        for j, e in exps.items():
            weights[b][h][i][j] = e / total
            for n in range(E):
                output[b][h][i][n] += e / total * v[b][g][j][n]
    return weights, output


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "scale": {"scale": 2.0},
    "softcap": {"softcap": 0.7},
    "bias": {"bias": RNG.normal(2, 4, 3, 5)},
    "mask": {"mask": RNG.booleans(2, 4, 3, 5)},
    "sink": {"sink": RNG.normal(4)},
    "all": {
        "scale": 0.3,
        "softcap": 0.4,
        "bias": RNG.normal(2, 4, 3, 5),
        "mask": RNG.booleans(2, 4, 3, 5),
        "sink": RNG.normal(4),
    },
    "fully masked": {"mask": torch.zeros(2, 4, 3, 5, dtype=torch.bool, device=DEVICE)},
}


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("name", OPTIONS)
def test_the_reference_matches_plain_arithmetic(name: str, groups: int) -> None:
    query, key, value = RNG.normal(2, 4, 3, 6), RNG.normal(2, groups, 5, 6), RNG.normal(2, groups, 5, 2)
    weights, output = by_hand(query, key, value, **OPTIONS[name])
    close(attention_weights(query, key, **OPTIONS[name]), torch.tensor(weights, dtype=torch.float64, device=DEVICE))
    actual = attention(query, key, value, **OPTIONS[name], backend="reference")
    close(actual, torch.tensor(output, dtype=torch.float64, device=DEVICE))


def test_stages_are_computed_in_order() -> None:
    query, key = RNG.normal(1, 2, 3, 4), RNG.normal(1, 2, 3, 4)
    bias = RNG.normal(3, 3)
    options = {"scale": 3.0, "softcap": 0.5, "bias": bias, "mask": masks.causal()}
    scaled, softcapped, masked, weights = (
        attention_scores(query, key, stage=stage, **options) for stage in ("scaled", "softcapped", "masked", "weights")
    )
    close(scaled, query @ key.mT * 3)
    close(softcapped, 0.5 * (scaled / 0.5).tanh())
    assert softcapped.abs().max() <= 0.5
    hidden = torch.ones(3, 3, device=DEVICE).triu(1).bool()
    close(masked, (softcapped + bias).masked_fill(hidden, -torch.inf))
    close(weights, masked.softmax(-1))
    assert weights[..., hidden].eq(0).all(), "the softcap lets a masked key through"


def test_huge_scores_do_not_overflow() -> None:
    query = torch.tensor([[[[1e4], [-1e4]]]], device=DEVICE)
    weights = attention_weights(query, query, scale=1.0)
    assert weights[0, 0].tolist() == [[1, 0], [0, 1]]
    assert attention_weights(query, query, scale=1.0, sink=0.0).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    query, key = RNG.normal(1, 2, 7, 8).to(dtype), RNG.normal(1, 2, 9, 8).to(dtype)
    exact = attention(query.double(), key.double(), key.double(), backend="reference")
    actual = attention(query, key, key, backend="reference")
    assert actual.dtype == dtype
    torch.testing.assert_close(actual.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-5)
