"""The log-sum-exp of the fused kernel is that of the tiles."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from softlook import look, masks, positions
from softlook.ops import log_sum_exp as module
from softlook.ops.arguments import prepare_args
from softlook.ops.log_sum_exp import log_sum_exp

T = 150
visible = torch.rand(2, 1, 1, T) > 0.3
FUSED: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"mask": masks.causal()},
    "padding": {"mask": masks.padding([T, 20])},
    "padding on the left": {"mask": masks.padding([T, 20], side="left", length=T)},
    "prefix": {"mask": masks.prefix(5)},
    "one row for all queries": {"mask": visible},
    "sink and scale": {"mask": masks.causal(), "sink": torch.randn(6), "scale": 0.3},
}
OTHERS: dict[str, dict[str, Any]] = {
    "window": {"mask": masks.window(9)},
    "causal and padding": {"mask": masks.causal() & masks.padding([T, 20])},
    "bias": {"bias": positions.alibi(6)},
    "softcap": {"softcap": 2.0},
    "score": {"score": lambda query, key: query @ key.mT},
    "fully masked": {"mask": masks.padding([T, 0])},
}


@pytest.mark.parametrize("key_heads", [6, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("name", [*FUSED, *OTHERS])
def test_the_log_sum_exp_is_that_of_the_tiles(name: str, dtype: torch.dtype, key_heads: int) -> None:
    query, key = torch.randn(2, 6, T, 8, dtype=dtype), torch.randn(2, key_heads, T, 8, dtype=dtype)
    args = prepare_args(query, key, **(FUSED | OTHERS)[name])
    expected = look(query, key, stats="lse", **(FUSED | OTHERS)[name]).lse
    assert_close(log_sum_exp(args), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", FUSED)
def test_plain_maps_use_the_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "compute_values", lambda *_, **__: pytest.fail("not by the kernel"))
    query, key = torch.randn(2, 2, 6, T, 8)
    log_sum_exp(prepare_args(query, key, **FUSED[name]))


def test_queries_of_a_longer_context_are_the_last_ones() -> None:
    query, key = torch.randn(1, 2, 140, 8), torch.randn(1, 2, 160, 8)
    expected = look(query, key, mask=masks.causal(), stats="lse").lse
    assert_close(log_sum_exp(prepare_args(query, key, mask=masks.causal())), expected, atol=1e-5, rtol=1e-5)


def test_a_query_of_nan_has_the_log_sum_exp_nan() -> None:
    query, key = torch.randn(2, 1, 1, T, 8)
    query[0, 0, 3] = torch.nan
    lse = log_sum_exp(prepare_args(query, key))
    assert lse[0, 0, 3].isnan() and lse.isfinite().sum() == T - 1
