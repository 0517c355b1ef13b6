"""Random calls of attention, compared between every kernel and a float64 reference independent of softlook.

SOFTLOOK_RANDOM_CASES sets the number of cases of the slow test.
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
from tests.laws.random_cases import ProblemSampler, arguments
from tests.ops_cases import small_tiles

FEW, MANY = 200, int(os.environ.get("SOFTLOOK_RANDOM_CASES", "10000"))
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}
"""Relative to the largest value, and absolute where that is below 1."""
MAX_ELEMENTS_IN_SMALL_TILES = 500
"""Larger maps take too long in small tiles."""
KERNELS = ("auto", "reference", "tiled", "small tiles", "fused", "math")


def run_attention(problem: Problem, leaves: Leaves, kernel: str) -> Tensor | None:
    """The output of one kernel; None if it does not support the problem."""
    named = arguments(problem, leaves)
    backend: Any = {"small tiles": "tiled", "fused": "sdpa", "math": "sdpa"}.get(kernel, kernel)
    try:
        explain(**named, backend=backend)
    except BackendError:
        return None
    return attention(**named, backend=backend)


def force_kernel(kernel: str) -> AbstractContextManager[object]:
    """Select between the two variants of "tiled" and the two kernels of "sdpa"."""
    if kernel == "small tiles":
        return small_tiles()
    limit = 64 if kernel in ("math", "auto") else 0
    return mock.patch.multiple(sdpa_cpu, MATH_MAX_QUERIES=limit, MATH_MAX_LENGTH_WITH_GRAD=limit)


def gradients(output: Tensor, leaves: Leaves) -> list[Tensor]:
    """Gradients of the output, each element with its own upstream value."""
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
    error = float((actual.double() - expected).abs().max())
    assert error <= tolerance * largest, f"{what}: error {error:.3g}, largest value {largest:.3g}"


def check_case(seed: int) -> int:
    """Check one problem with three of the kernels; returns how many of them support it."""
    problem = ProblemSampler(seed).problem()
    exact = {name: numbers.clone().requires_grad_() for name, numbers in problem.numbers.items()}
    expected, weights, lse = solve(problem, exact)
    expected_gradients, tolerance, count = gradients(expected, exact), TOLERANCE[problem.dtype], 0
    for kernel in random.Random(seed).sample(KERNELS, 3):
        if kernel == "small tiles" and math.prod(problem.sizes) > MAX_ELEMENTS_IN_SMALL_TILES:
            continue
        leaves = {n: numbers.to(problem.dtype, copy=True).requires_grad_() for n, numbers in problem.numbers.items()}
        with force_kernel(kernel):
            output = run_attention(problem, leaves, kernel)
            if output is None:
                continue
            actual = gradients(output, leaves)
            with torch.no_grad():
                again = run_attention(problem, leaves, kernel)
        count += 1
        what = f"seed {seed}, {kernel}, {problem.dtype}"
        assert again is not None and output.dtype == again.dtype == problem.dtype
        assert_near(output.detach(), expected.detach(), tolerance, f"output ({what})")
        assert_near(again, expected.detach(), tolerance, f"output without a gradient ({what})")
        for name, one, other in zip(leaves, actual, expected_gradients, strict=True):
            assert_near(one, other, tolerance, f"gradient of {name} ({what})")
    check_statistics(problem, weights.detach(), lse.detach(), tolerance, f"seed {seed}, {problem.dtype}")
    return count


def check_statistics(problem: Problem, weights: Tensor, lse: Tensor, tolerance: float, what: str) -> None:
    named = arguments(problem, {name: numbers.to(problem.dtype) for name, numbers in problem.numbers.items()})
    del named["value"]
    assert_near(attention_weights(**named), weights, tolerance, f"weights ({what})")
    seen = look(**named, stats=("lse", "received"))
    assert_near(seen.received, weights.sum(2), tolerance * 10, f"received ({what})")
    assert seen.lse.isneginf().equal(lse.isneginf()), f"fully masked rows ({what})"
    finite = ~lse.isneginf()
    assert_near(seen.lse[finite], lse[finite], tolerance, f"lse ({what})")


@pytest.mark.parametrize("part", range(4))
def test_every_backend_matches_the_float64_reference(part: int) -> None:
    assert sum(check_case(seed) for seed in range(part, FEW, 4)) > FEW // 4


@pytest.mark.slow
def test_many_random_cases_match_the_float64_reference() -> None:
    assert sum(check_case(FEW + seed) for seed in range(MANY)) > MANY
