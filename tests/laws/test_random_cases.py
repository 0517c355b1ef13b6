"""Random questions, answered by every path and by a float64 reference written apart from softlook.

SOFTLOOK_RANDOM_CASES sets how many the slow test asks.
"""

import math
import os
import random
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from softlook import attention, attention_weights, explain, look
from softlook.base.errors import BackendError
from softlook.ops.backends import sdpa_cpu
from tests.laws.float64_reference import Leaves, Problem, solve
from tests.laws.random_cases import Drawing, arguments
from tests.ops_cases import small_tiles

FEW, MANY = 200, int(os.environ.get("SOFTLOOK_RANDOM_CASES", "10000"))
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}
"""Relative to the largest number, and absolute where that is below 1."""
LARGEST_IN_TILES = 500
"""Entries of a map that is worked through in tiles of a few: they take long."""
PATHS = ("auto", "reference", "tiled", "small tiles", "fused", "three steps")


def answered(problem: Problem, leaves: Leaves, path: str) -> Tensor | None:
    """The output by one path; None where it cannot answer."""
    asked = arguments(problem, leaves)
    backend: Any = {"small tiles": "tiled", "fused": "sdpa", "three steps": "sdpa"}.get(path, path)
    try:
        explain(**asked, backend=backend)
    except BackendError:
        return None
    return attention(**asked, backend=backend)


def on(path: str) -> AbstractContextManager[object]:
    """Inside, `path` is what its name says: there are two ways through "tiled" and two through "sdpa"."""
    if path == "small tiles":
        return small_tiles()
    short = 64 if path in ("three steps", "auto") else 0
    return mock.patch.multiple(sdpa_cpu, MATH_MAX_QUERIES=short, MATH_MAX_LENGTH_WITH_GRAD=short)


def gradients(output: Tensor, leaves: Leaves) -> list[Tensor]:
    """Of the output, each number with a weight of its own."""
    weight = torch.linspace(-1, 1, max(output.numel(), 1), dtype=torch.float64)[: output.numel()].view(output.shape)
    if not output.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves.values()]
    found = torch.autograd.grad(output, list(leaves.values()), weight.to(output.dtype), allow_unused=True)
    return [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves.values(), found, strict=True)]


def assert_near(actual: Tensor, expected: Tensor, tolerance: float, what: str) -> None:
    assert actual.shape == expected.shape, f"{what}: {tuple(actual.shape)} instead of {tuple(expected.shape)}"
    if not expected.numel():
        return
    largest = max(1.0, float(expected.abs().max()))
    off = float((actual.double() - expected).abs().max())
    assert off <= tolerance * largest, f"{what}: off by {off:.3g}, where the largest is {largest:.3g}"


def check_case(seed: int) -> int:
    """One problem by three of the paths; how many of them can answer."""
    problem = Drawing(seed).problem()
    exact = {name: numbers.clone().requires_grad_() for name, numbers in problem.numbers.items()}
    expected, weights, lse = solve(problem, exact)
    slopes, tolerance, count = gradients(expected, exact), TOLERANCE[problem.dtype], 0
    for path in random.Random(seed).sample(PATHS, 3):
        if path == "small tiles" and math.prod(problem.sizes) > LARGEST_IN_TILES:
            continue
        leaves = {n: numbers.to(problem.dtype, copy=True).requires_grad_() for n, numbers in problem.numbers.items()}
        with on(path):
            output = answered(problem, leaves, path)
            if output is None:
                continue
            actual = gradients(output, leaves)
            with torch.no_grad():
                again = answered(problem, leaves, path)
        count += 1
        what = f"seed {seed}, {path}, {problem.dtype}"
        assert again is not None and output.dtype == again.dtype == problem.dtype
        assert_near(output.detach(), expected.detach(), tolerance, f"output ({what})")
        assert_near(again, expected.detach(), tolerance, f"output without a gradient ({what})")
        for name, one, slope in zip(leaves, actual, slopes, strict=True):
            assert_near(one, slope, tolerance, f"gradient of {name} ({what})")
    check_statistics(problem, weights.detach(), lse.detach(), tolerance, f"seed {seed}, {problem.dtype}")
    return count


def check_statistics(problem: Problem, weights: Tensor, lse: Tensor, tolerance: float, what: str) -> None:
    asked = arguments(problem, {name: numbers.to(problem.dtype) for name, numbers in problem.numbers.items()})
    del asked["value"]
    assert_near(attention_weights(**asked), weights, tolerance, f"weights ({what})")
    seen = look(**asked, stats=("lse", "received"))
    assert_near(seen.received, weights.sum(2), tolerance * 10, f"received ({what})")
    assert seen.lse.isneginf().equal(lse.isneginf()), f"who sees nothing ({what})"
    finite = ~lse.isneginf()
    assert_near(seen.lse[finite], lse[finite], tolerance, f"lse ({what})")


@pytest.mark.parametrize("part", range(4))
def test_every_backend_matches_the_float64_reference(part: int) -> None:
    assert sum(check_case(seed) for seed in range(part, FEW, 4)) > FEW // 4


@pytest.mark.slow
def test_many_random_cases_match_the_float64_reference() -> None:
    assert sum(check_case(FEW + seed) for seed in range(MANY)) > MANY
