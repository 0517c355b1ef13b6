"""Gradients of a look match those computed from the whole map, also when chunks are merged."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from torch import Tensor

from softlook import attention, attention_and_look, look, masks
from softlook.ops import statistics
from softlook.ops.look import ALL_STATS
from softlook.ops.merge import merge_looks, merge_outputs
from tests.laws.test_look import statistics_of_the_map
from tests.memory import LargestTensor
from tests.ops_cases import Case, TensorRNG, cases, close, small_tiles

DIFFERENTIABLE = [name for name in ALL_STATS if name != "top_indices"]
TOP, BINS = 2, 3


def gradients(outputs: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """Gradients of the outputs, each with its own upstream value; -inf is ignored."""
    if not outputs.requires_grad:  # every row is fully masked
        return [torch.zeros_like(tensor) for tensor in inputs]
    outputs = outputs.masked_fill(outputs.isinf(), 0)
    weight = torch.linspace(-1, 1, outputs.numel(), device=outputs.device, dtype=outputs.dtype).view(outputs.shape)
    found = torch.autograd.grad(outputs, inputs, weight, allow_unused=True, retain_graph=True)
    return [torch.zeros_like(i) if g is None else g for i, g in zip(inputs, found, strict=True)]


def no_ties(case: Case) -> bool:
    """Whether all weights of a row differ: of tied maxima, any may receive the gradient."""
    weights = case.weights().sort(-1).values
    return bool((weights.diff(dim=-1).gt(1e-9) | weights[..., 1:].eq(0)).all())


@pytest.mark.parametrize("tiles", ["one tile", "small tiles"])
@settings(max_examples=20)
@given(case=cases())
def test_the_gradient_of_each_statistic_matches_that_of_the_whole_map(case: Case, tiles: str) -> None:
    assume(no_ties(case))
    inputs = [case.query.requires_grad_(), case.key.requires_grad_()]
    expected = statistics_of_the_map(case, TOP, BINS)
    with nullcontext() if tiles == "one tile" else small_tiles():
        seen = look(case.query, case.key, **case.options, stats=DIFFERENTIABLE, top_k=TOP, bins=BINS)
        for name in DIFFERENTIABLE:
            for one, other in zip(gradients(seen.values[name], inputs), gradients(expected[name], inputs), strict=True):
                close(one, other, 1e-7)


@settings(max_examples=20)
@given(cases())
def test_mix_and_spread_have_the_gradients_of_products_with_the_map(case: Case) -> None:
    amounts = case.rng.normal(*case.sizes[:3], 2).requires_grad_()
    case = case.replace(query=case.query.requires_grad_(), value=case.value.requires_grad_())
    group_size = case.sizes[1] // case.key.shape[1]
    with small_tiles():
        seen = look(case.query, case.key, **case.options)
        actual = gradients(seen.mix(case.value), [case.query, case.value])
        actual += gradients(seen.spread(amounts), [case.query, amounts])
    expected = gradients(case.weights() @ case.value.repeat_interleave(group_size, 1), [case.query, case.value])
    expected += gradients(case.weights().mT @ amounts, [case.query, amounts])
    for one, other in zip(actual, expected, strict=True):
        close(one, other, 1e-8)


@pytest.mark.parametrize("sink", [None, -0.5])
def test_the_look_of_attention_and_look_has_the_gradient_of_look(sink: float | None) -> None:
    rng = TensorRNG(torch.Generator().manual_seed(3), torch.float64)
    query, key, value = rng.normal(1, 2, 4, 3).requires_grad_(), rng.normal(1, 2, 5, 3), rng.normal(1, 2, 5, 3)
    actual = attention_and_look(query, key, value, sink=sink, stats="lse")[1].lse
    expected = look(query, key, sink=sink, stats="lse").lse
    close(gradients(actual, [query])[0], gradients(expected, [query])[0])


SPANS = [(0, 3), (3, 4), (4, 7)]


def merged_and_whole(**options: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Output and gradients of query, key, value and bias: merged from chunks of the keys, and over all keys."""
    rng = TensorRNG(torch.Generator().manual_seed(19), torch.float64)
    inputs = [rng.normal(1, 2, 3, 4), rng.normal(1, 1, 7, 4), rng.normal(1, 1, 7, 2), rng.normal(1, 2, 3, 7)]
    query, key, value, bias = (tensor.requires_grad_() for tensor in inputs)
    lses, outputs = [], []
    for a, b in SPANS:
        chunk: dict[str, Any] = {"bias": bias[..., a:b], **options}
        if "mask" in options:
            chunk["mask"] = options["mask"][..., a:b]
        lses.append(look(query, key[:, :, a:b], stats="lse", **chunk).lse)
        outputs.append(attention(query, key[:, :, a:b], value[:, :, a:b], **chunk))
    merged = merge_outputs(outputs, lses)
    whole = attention(query, key, value, bias=bias, **options)
    leaves = [query, key, value, bias]
    return [merged, *gradients(merged, leaves)], [whole, *gradients(whole, leaves)]


@pytest.mark.parametrize(
    "options",
    [{}, {"softcap": 2.0}, {"mask": torch.tensor([[0, 0, 0, 1, 0, 1, 1], [0] * 7, [1] * 7]).bool()}],
    ids=["plain", "softcap", "a fully masked query and a fully masked chunk"],
)
def test_merged_outputs_have_the_gradients_of_the_whole(options: dict[str, Any]) -> None:
    for one, other in zip(*merged_and_whole(**options), strict=True):
        close(one, other)


def test_merged_statistics_have_the_gradients_of_the_whole() -> None:
    rng = TensorRNG(torch.Generator().manual_seed(23), torch.float64)
    query, key = rng.normal(1, 2, 3, 4).requires_grad_(), rng.normal(1, 2, 7, 4)
    names = ("lse", "entropy", "effective_keys", "max_weight")
    mask = torch.ones(3, 7, dtype=torch.bool)
    mask[0], mask[1, :3] = False, False
    parts = [look(query, key[:, :, a:b], mask=mask[:, a:b], stats=names) for a, b in SPANS]
    merged, whole = merge_looks(parts), look(query, key, mask=mask, stats=names)
    for name in names:
        close(gradients(merged.values[name], [query])[0], gradients(whole.values[name], [query])[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_a_large_gradient_of_a_statistic_stays_finite_with_masked_keys(name: str, dtype: torch.dtype) -> None:
    query = torch.randn(1, 1, 6, 4, dtype=dtype, requires_grad=True)
    mask = masks.causal() & masks.dense(torch.tensor([True] * 3 + [False] * 3).repeat(6, 1).T)
    seen = look(query, query.detach(), mask=mask, stats=(name,), bins=2).values[name]
    (gradient,) = torch.autograd.grad(1000 * seen.masked_fill(seen.isinf(), 0).sum(), query)
    assert gradient.isfinite().all()


def test_the_gradient_is_exact_where_weights_tie_and_scores_do_not() -> None:
    scores = torch.tensor([0.1, 0.1 + 1e-8, -1.0])
    key = scores.view(1, 1, 3, 1).requires_grad_()
    lse = look(torch.ones(1, 1, 1, 1), key, scale=1.0, stats="lse").lse
    (gradient,) = torch.autograd.grad(lse.sum(), key)
    torch.testing.assert_close(gradient.flatten(), scores.softmax(-1))


def test_the_backward_pass_of_a_look_never_allocates_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "TILE_ELEMENTS", {"cpu": 1 << 13, "cuda": 1 << 13})
    monkeypatch.setattr(statistics, "RECOMPUTE_ABOVE", 0)
    T, saved = 512, []
    query, key = torch.randn(1, 2, T, 4, requires_grad=True), torch.randn(1, 1, T, 4)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: (saved.append(x.numel()), x)[1], lambda x: x):
        seen = look(query, key, stats=DIFFERENTIABLE, bins=16)
    assert max(saved, default=0) < T * T
    with LargestTensor() as largest:
        torch.autograd.grad(torch.stack([part.sum() for part in seen.values.values()]).sum(), query)
    assert largest.elements <= 2 * 16 * T * 2, f"{largest.elements} elements allocated by {largest.name}"


def test_a_look_requires_a_gradient_only_if_an_input_does() -> None:
    query = torch.randn(1, 1, 3, 4, requires_grad=True)
    with torch.no_grad():
        assert not look(query, query).lse.requires_grad
    assert not look(query.detach(), query.detach()).lse.requires_grad
    assert look(query, query.detach()).entropy.requires_grad
