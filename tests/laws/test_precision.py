"""Half precision rounds inputs and outputs only; scores are computed in float32 at least."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from softlook import attention, attention_weights, explain, look, positions, scores
from softlook.base.errors import BackendError
from tests.ops_cases import DEVICE

HALVES = [torch.bfloat16, torch.float16]
H, T, D = 2, 48, 16


def draw_values(*shape: int) -> Tensor:
    """Values that are exact in both half precisions, and large enough for rounded scores to change the output."""
    return (3 * torch.randn(*shape, device=DEVICE)).clamp(-8, 8).mul(8).round().div(8)


Options = Callable[[torch.dtype], dict[str, Any]]


def options() -> dict[str, Options]:
    """Options that contribute to the scores, as functions of the dtype."""
    keys, values, relative = (
        draw_values(9, D),
        draw_values(9, D),
        [draw_values(H, T, D), draw_values(H, D), draw_values(H, D)],
    )
    table, dense, weights = (
        draw_values(32, H),
        draw_values(T, T),
        [draw_values(D, 4) / 8, draw_values(D, 4) / 8, draw_values(4)],
    )
    return {
        "plain": lambda _: {},
        "shaw": lambda dtype: {"bias": positions.shaw(keys.to(dtype))},
        "shaw with values": lambda dtype: {"bias": positions.shaw(keys.to(dtype), values.to(dtype))},
        "transformer-xl": lambda dtype: {"bias": positions.transformer_xl(*(part.to(dtype) for part in relative))},
        "alibi": lambda _: {"bias": positions.alibi(H)},
        "t5": lambda dtype: {"bias": positions.t5(table.to(dtype))},
        "single-precision bias": lambda dtype: {"bias": dense.to(torch.promote_types(dtype, torch.float32)) + 1e-3},
        "distance": lambda _: {"score": scores.squared_distance(4.0)},
        "additive": lambda dtype: {"score": scores.additive(*(weight.to(dtype) for weight in weights))},
        "sink and softcap": lambda _: {"sink": 1.0, "softcap": 20.0},
    }


NAMES = list(options())


def rounding_error(dtype: torch.dtype, expected: Tensor) -> float:
    """Two rounding errors of the largest output: of the weights, and of the sum."""
    return 2 * torch.finfo(dtype).eps * float(expected.abs().max())


@pytest.mark.parametrize("cast", ["half precision", "autocast"])
@pytest.mark.parametrize("backend", ["auto", "reference", "tiled", "sdpa"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_no_backend_rounds_scores_to_half_precision(name: str, backend: Any, dtype: torch.dtype, cast: str) -> None:
    query, key, value, given = (
        draw_values(1, H, T, D),
        draw_values(1, H, T, D),
        draw_values(1, H, T, D),
        options()[name],
    )
    exact = {"query": query.double(), "key": key.double(), "value": value.double(), **given(torch.float64)}
    expected = attention(**exact, backend="reference")
    input_dtype = dtype if cast == "half precision" else torch.float32
    inputs = (("query", query), ("key", key), ("value", value))
    arguments: dict[str, Any] = {name: tensor.to(input_dtype) for name, tensor in inputs} | given(dtype)
    if DEVICE.type == "cuda" and backend == "sdpa" and "bias" in arguments:
        pytest.skip("a GPU's fused kernels take the bias in half precision")
    with torch.autocast(DEVICE.type, dtype=dtype, enabled=cast == "autocast"):
        try:
            explain(**arguments, backend=backend)
        except BackendError:
            return
        output = attention(**arguments, backend=backend)
    assert output.dtype == dtype
    assert (output.double() - expected).abs().max() <= rounding_error(dtype, expected)


@pytest.mark.parametrize("name", NAMES)
def test_statistics_and_weights_are_not_rounded_under_autocast(name: str) -> None:
    query, key, given = draw_values(1, H, T, D), draw_values(1, H, T, D), options()[name]
    expected = look(query.double(), key.double(), **given(torch.float64), stats="lse").lse
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        seen = look(query, key, **given(torch.bfloat16), stats="lse")
        weights = attention_weights(query, key, **given(torch.bfloat16))
    torch.testing.assert_close(seen.lse.double(), expected, rtol=1e-5, atol=1e-4)
    exact = attention_weights(query.double(), key.double(), **given(torch.float64))
    assert (weights.double() - exact).abs().max() <= torch.finfo(torch.bfloat16).eps


@pytest.mark.parametrize("heads", [2, 6, 12])
def test_the_slopes_of_alibi_are_exact_in_float64(heads: int) -> None:
    query = torch.zeros(1, heads, 3, 4, device=DEVICE, dtype=torch.float64)
    lse = look(query, query[:, :, :1], bias=positions.alibi(heads), stats="lse").lse
    power = 1 << (heads.bit_length() - 1)
    first = [2 ** (-8 * (n + 1) / power) for n in range(power)]
    between = [2 ** (-8 * (n + 1) / (2 * power)) for n in range(0, 2 * power, 2)][: heads - power]
    expected = -torch.tensor(first + between, dtype=torch.float64, device=DEVICE)[:, None] * torch.tensor(
        [2.0, 1.0, 0.0]
    ).to(DEVICE)
    torch.testing.assert_close(lse[0], expected, rtol=1e-14, atol=0)


def test_a_score_function_with_layers_runs_under_the_callers_autocast() -> None:
    layer, query = torch.nn.Linear(D, D, device=DEVICE), draw_values(1, H, 4, D)

    def score(query: Tensor, key: Tensor) -> Tensor:
        return layer(query) @ key.mT

    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        assert attention(query, query, query, score=score).dtype == torch.bfloat16
