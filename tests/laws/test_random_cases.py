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
from softlook.ops import cpu
from tests.asking import small_tiles
from tests.laws.float64_reference import Leaves, Problem, solve
from tests.laws.random_cases import Drawing, arguments

FEW, MANY = 200, int(os.environ.get("SOFTLOOK_RANDOM_CASES", "10000"))
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}
"""Relative to the largest number, and absolute where that is below 1."""
LARGEST_IN_TILES = 500
"""Entries of a map that is worked through in tiles of a few: they take long."""
PATHS = ("auto", "reference", "blocks", "small tiles", "fused", "three steps")


def answered(problem: Problem, leaves: Leaves, path: str) -> Tensor | None:
    """The output by one path; None where it cannot answer."""
    asked = arguments(problem, leaves)
    backend: Any = {"small tiles": "blocks", "fused": "sdpa", "three steps": "sdpa"}.get(path, path)
    try:
        explain(**asked, backend=backend)
    except BackendError:
        return None
    return attention(**asked, backend=backend)


def on(path: str) -> AbstractContextManager[object]:
    """Inside, `path` is what its name says: there are two ways through "blocks" and two through "sdpa"."""
    if path == "small tiles":
        return small_tiles()
    short = 64 if path in ("three steps", "auto") else 0
    return mock.patch.multiple(cpu, FEW=short, SHORT=short)


def gradients(output: Tensor, leaves: Leaves) -> list[Tensor]:
    """Of the output, each number with a weight of its own."""
    weight = torch.linspace(-1, 1, max(output.numel(), 1), dtype=torch.float64)[: output.numel()].view(output.shape)
    if not output.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves.values()]
    found = torch.autograd.grad(output, list(leaves.values()), weight.to(output.dtype), allow_unused=True)
    return [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves.values(), found, strict=True)]


def hold_close(came: Tensor, wanted: Tensor, tolerance: float, what: str) -> None:
    assert came.shape == wanted.shape, f"{what}: {tuple(came.shape)} instead of {tuple(wanted.shape)}"
    if not wanted.numel():
        return
    largest = max(1.0, float(wanted.abs().max()))
    off = float((came.double() - wanted).abs().max())
    assert off <= tolerance * largest, f"{what}: off by {off:.3g}, where the largest is {largest:.3g}"


def hold_right(seed: int) -> int:
    """One problem by three of the paths; how many of them can answer."""
    problem = Drawing(seed).problem()
    exact = {name: numbers.clone().requires_grad_() for name, numbers in problem.numbers.items()}
    wanted, weights, lse = solve(problem, exact)
    slopes, tolerance, count = gradients(wanted, exact), TOLERANCE[problem.dtype], 0
    for path in random.Random(seed).sample(PATHS, 3):
        if path == "small tiles" and math.prod(problem.sizes) > LARGEST_IN_TILES:
            continue
        leaves = {n: numbers.to(problem.dtype, copy=True).requires_grad_() for n, numbers in problem.numbers.items()}
        with on(path):
            output = answered(problem, leaves, path)
            if output is None:
                continue
            came = gradients(output, leaves)
            with torch.no_grad():
                again = answered(problem, leaves, path)
        count += 1
        what = f"seed {seed}, {path}, {problem.dtype}"
        assert again is not None and output.dtype == again.dtype == problem.dtype
        hold_close(output.detach(), wanted.detach(), tolerance, f"output ({what})")
        hold_close(again, wanted.detach(), tolerance, f"output without a gradient ({what})")
        for name, one, slope in zip(leaves, came, slopes, strict=True):
            hold_close(one, slope, tolerance, f"gradient of {name} ({what})")
    hold_statistics(problem, weights.detach(), lse.detach(), tolerance, f"seed {seed}, {problem.dtype}")
    return count


def hold_statistics(problem: Problem, weights: Tensor, lse: Tensor, tolerance: float, what: str) -> None:
    asked = arguments(problem, {name: numbers.to(problem.dtype) for name, numbers in problem.numbers.items()})
    del asked["value"]
    hold_close(attention_weights(**asked), weights, tolerance, f"weights ({what})")
    seen = look(**asked, ask=("lse", "received"))
    hold_close(seen.received, weights.sum(2), tolerance * 10, f"received ({what})")
    assert seen.lse.isneginf().equal(lse.isneginf()), f"who sees nothing ({what})"
    finite = ~lse.isneginf()
    hold_close(seen.lse[finite], lse[finite], tolerance, f"lse ({what})")


@pytest.mark.parametrize("part", range(4))
def test_every_path_agrees_with_the_independent_reference(part: int) -> None:
    assert sum(hold_right(seed) for seed in range(part, FEW, 4)) > FEW // 4


@pytest.mark.slow
def test_many_random_cases_agree_with_the_independent_reference() -> None:
    assert sum(hold_right(FEW + seed) for seed in range(MANY)) > MANY
