"""The kernels of a look have the statistics of the whole map: compiled on a GPU, or interpreted on a CPU.

On a CPU they need Triton's interpreter, and NumPy below 2.4 for that of Triton 3.6:
`TRITON_INTERPRET=1 pytest tests/ops/backends/test_look_triton.py`.
"""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from softlook import attention, attention_and_look, look, masks, positions
from softlook.ops import arguments
from softlook.ops.backends import look_terms, look_triton
from softlook.ops.backends.look_triton import Blocks
from softlook.ops.look import ALL_STATS, Look
from tests.laws.test_look import check_look
from tests.ops_cases import Case, TensorRNG, cases

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and find_spec("triton") is not None
DEVICES = [
    pytest.param("cpu", marks=pytest.mark.skipif(not INTERPRETED, reason="needs Triton and TRITON_INTERPRET=1")),
    pytest.param("cuda", marks=pytest.mark.cuda),
]
TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
"""Products of half-precision inputs are exact, and statistics are computed in float32; outputs are rounded."""
STATISTICS_TOLERANCE = 5e-5
SUMMED = ("entropy", "max_weight", "received", "pooled_mean", "pooled_max")
pytestmark = [  # of the interpreter
    pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def kernels_for_small_maps() -> Iterator[None]:
    """Use the kernels at every size, and on a CPU with blocks that small maps fill several of."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(look_terms, "MIN_ELEMENTS", 0)
        patch.setattr(look_triton, "PARTS_BYTES", 1 << 12)
        if INTERPRETED:
            small = {purpose: {256: Blocks(16, 16, 1, 1)} for purpose in look_triton.BLOCKS}
            patch.setattr(look_terms, "DEVICES", ("cuda", "cpu"))
            patch.setattr(look_triton, "BLOCKS", small)
            patch.setattr(look_triton, "REDUCE", (16, 4))
        yield


def make_case(device: str, T: int = 37, S: int = 37, *, G: int = 1, D: int = 24, E: int = 20, **options: Any) -> Case:
    rng = TensorRNG(torch.Generator().manual_seed(T + S), torch.float64)
    tensors = (rng.normal(2, 2, T, D), rng.normal(2, G, S, D), rng.normal(2, G, S, E))
    query, key, value = (tensor.to(device) for tensor in tensors)
    return Case(query, key, value, options, rng)


def check(case: Case, dtype: torch.dtype = torch.float32, top_k: int = 3, bins: int = 5) -> None:
    """Compare with the whole map, in float64."""
    query, key, value = (tensor.to(dtype) for tensor in (case.query, case.key, case.value))
    arguments = {"stats": ALL_STATS, "top_k": top_k, "bins": bins, **case.options}
    output, seen = attention_and_look(query, key, value, **arguments)
    assert seen.backend == "kernels"
    check_look(case, seen, top_k, bins, STATISTICS_TOLERANCE)
    expected = attention(case.query, case.key, case.value, **case.options, backend="reference")
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(output.double(), expected, rtol=tolerance, atol=tolerance)


MASKS = {
    "none": None,
    "causal": masks.causal(),
    "window": masks.window(17, 5),
    "causal window": masks.causal() & masks.window(17),
    "future": masks.window(0, 20),
    "prefix": masks.prefix(20) | masks.causal(),
    "padding": masks.padding([37, 20]) & masks.causal(),
    "left padding": masks.padding([37, 0], side="left", length=37),
    "documents": masks.documents(torch.arange(37) // 12) & masks.causal(),
    "dense": torch.rand(2, 1, 37, 37, generator=torch.Generator().manual_seed(0)) > 0.7,
    "function": masks.from_function(lambda b, h, i, j: (i + j + h) % 3 == 0),
    "no key": torch.zeros(37, 37, dtype=torch.bool),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("device", DEVICES)
def test_every_mask(device: str, name: str) -> None:
    mask = MASKS[name]
    check(make_case(device, mask=mask.to(device) if isinstance(mask, Tensor) else mask))


@pytest.mark.parametrize("sizes", [(1, 1), (1, 37), (17, 37), (37, 17), (16, 32)], ids=str)
@pytest.mark.parametrize("mask", [None, masks.causal(), masks.window(9)], ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_lengths_that_are_no_multiples_of_a_block(device: str, mask: Any, sizes: tuple[int, int]) -> None:
    check(make_case(device, *sizes, mask=mask))


OPTIONS: dict[str, dict[str, Any]] = {
    "softcap": {"softcap": 2.0},
    "sink": {"sink": torch.tensor([-3.0, 100.0])},
    "softcap and sink": {"softcap": 2.0, "sink": 1.0, "mask": masks.window(5, 3)},
    "alibi": {"bias": positions.alibi(2), "mask": masks.causal()},
    "t5": {"bias": positions.t5(torch.arange(32.0, dtype=torch.float64).view(16, 2) / 8, max_distance=30)},
    "dense bias": {"bias": torch.randn(2, 1, 37, generator=torch.Generator().manual_seed(0))[None]},
    "negative scale": {"scale": -0.5, "mask": masks.causal()},
    "scale 0": {"scale": 0.0, "mask": masks.window(20)},
    "negative scale with softcap": {"scale": -0.5, "softcap": 3.0},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("device", DEVICES)
def test_every_option(device: str, name: str) -> None:
    check(make_case(device, **OPTIONS[name]))


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_dtypes_and_shared_keys(device: str, dtype: torch.dtype, heads: int) -> None:
    if INTERPRETED and dtype == torch.bfloat16:
        pytest.skip("Triton's interpreter multiplies the bits of bfloat16 as integers")
    check(make_case(device, G=heads, mask=masks.causal()), dtype)


@pytest.mark.parametrize(("top_k", "bins"), [(1, 1), (2, 7), (5, 100), (32, 64)])
@pytest.mark.parametrize("device", DEVICES)
def test_any_number_of_top_keys_and_bins(device: str, top_k: int, bins: int) -> None:
    check(make_case(device, mask=masks.causal()), top_k=top_k, bins=bins)


@pytest.mark.parametrize("device", DEVICES)
def test_tied_weights_are_listed_once(device: str) -> None:
    case = make_case(device)
    check(case.replace(query=case.query * 0, mask=masks.causal()), top_k=8)


@pytest.mark.parametrize("device", DEVICES)
def test_a_bias_of_minus_infinity_masks(device: str) -> None:
    bias = torch.randn(37, 37, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(device)
    bias[::2, 10:] = bias[5] = -torch.inf
    check(make_case(device, bias=bias))


@pytest.mark.parametrize("stat", ALL_STATS)
@pytest.mark.parametrize("device", DEVICES)
def test_each_statistic_alone(device: str, stat: str) -> None:
    case = make_case(device, mask=masks.causal())
    query, key = case.query.float(), case.key.float()
    alone = look(query, key, mask=masks.causal(), stats=stat, bins=6, top_k=2)
    together = look(query, key, mask=masks.causal(), stats=ALL_STATS, bins=6, top_k=2)
    torch.testing.assert_close(alone.values[stat], together.values[stat])


@pytest.mark.parametrize("mask", [None, masks.causal()], ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_statistics_from_the_log_sum_exp_of_another_kernel(
    device: str, mask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where cuDNN computes output and log-sum-exp, one pass over the keys yields the rest."""

    def fused(args: arguments.AttentionArgs, value: Tensor) -> tuple[Tensor, Tensor]:
        return value, look(args.query, args.key, mask=args.mask, stats="lse").lse

    case = make_case(device, G=2, mask=mask)
    query, key, value = (tensor.float() for tensor in (case.query, case.key, case.value))
    _, expected = attention_and_look(query, key, value, mask=mask, stats=SUMMED, bins=7)
    monkeypatch.setattr(look_triton, "fused_output", fused)
    _, seen = attention_and_look(query, key, value, mask=mask, stats=SUMMED, bins=7)
    for name in SUMMED:
        torch.testing.assert_close(seen.values[name], expected.values[name], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("mask", [None, masks.causal(), masks.padding([37, 20]), masks.window(9, 2)], ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_chunks_of_the_keys(device: str, mask: Any) -> None:
    case = make_case(device, T=20, mask=mask)
    query, key = case.query.float(), case.key.float()
    whole = look(query, key, mask=mask, stats=ALL_STATS, top_k=2)
    for first, last in ((0, 25), (25, 37)):
        part = look(query, key[:, :, first:last], mask=mask, part=(first, 37), stats="received", lse=whole.lse)
        assert part.backend == "kernels"
        torch.testing.assert_close(part.received, whole.received[..., first:last], rtol=1e-4, atol=1e-5)
        rows = look(query, key[:, :, first:last], mask=mask, part=(first, 37), stats=("lse", "top_indices"), top_k=2)
        assert (rows.top_indices.eq(-1) | ((first <= rows.top_indices) & (rows.top_indices < last))).all()


@pytest.mark.parametrize("device", DEVICES)
def test_spread_multiplies_by_the_transposed_map(device: str) -> None:
    case = make_case(device, mask=masks.causal(), sink=0.5)
    amounts = case.rng.normal(2, 2, 37, 6).to(device)
    seen = look(case.query.float(), case.key.float(), **case.options)
    expected = case.weights().mT @ amounts
    torch.testing.assert_close(seen.spread(amounts.float()).double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=DEVICES[0].marks)])
def test_any_call_that_the_kernels_support(device: str) -> None:
    @settings(max_examples=40)
    @given(case=cases(dtype=torch.float32))
    def law(case: Case) -> None:
        seen = look(case.query, case.key, **case.options, stats=ALL_STATS, top_k=3, bins=4)
        check_look(case, seen, 3, 4, STATISTICS_TOLERANCE)

    law()


@pytest.mark.parametrize("device", DEVICES)
def test_what_the_kernels_do_not_support_is_computed_in_tiles(device: str) -> None:
    case = make_case(device, mask=masks.causal())
    query, key = case.query.float(), case.key.float()

    def backend(query: Tensor = query, key: Tensor = key, **options: Any) -> str:
        seen: Look = look(query, key, **options)
        return seen.backend

    assert backend() == "kernels"
    assert backend(query.double(), key.double()) == "tiles: the kernels have no float64"
    assert backend(query.clone().requires_grad_()) == "tiles: the kernels have no gradient"
    assert backend(score=lambda q, k: q @ k.mT) == "tiles: the kernels have no gradient"
    assert backend(bias=positions.shaw(torch.randn(5, 24, device=device))) == "tiles: the kernels have no bias shaw"
    assert backend(stats="top_weights", top_k=33) == "tiles: the kernels find at most 32 top keys"
