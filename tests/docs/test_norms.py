"""The figure of norm placement and warmup shows the recorded numbers, and the training guide quotes them."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
FIGURE = ROOT / "docs/figures/norms_and_warmup.svg"
PAGES = [page for page in (ROOT / "docs").rglob("*.md") if FIGURE.name in page.read_text(encoding="utf-8")]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("norms_and_warmup", ROOT / "examples/norms_and_warmup.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return json.loads(FIGURE.with_suffix(".json").read_text(encoding="utf-8"))


def final_losses(results: dict[str, Any], norm: str, *, warmup: bool) -> list[float]:
    """Return the final losses of the runs with a norm placement, with or without warmup."""
    return [run["loss"][-1][1] for run in results["runs"] if run["norm"] == norm and (run["warmup"] > 0) == warmup]


def test_the_figure_is_drawn_from_the_recorded_numbers(example: ModuleType, results: dict[str, Any]) -> None:
    assert example.draw(results) == FIGURE.read_text(encoding="utf-8")
    ElementTree.fromstring(example.draw(results))


def test_only_post_norm_without_warmup_fails_to_learn(results: dict[str, Any]) -> None:
    failed = final_losses(results, "post", warmup=False)
    assert min(failed) > 0.98 * results["unigram_entropy"]
    for norm, warmup in (("pre", False), ("pre", True), ("post", True)):
        assert len(losses := final_losses(results, norm, warmup=warmup)) == len(failed) >= 2
        assert max(losses) < results["unigram_entropy"] / 4


def test_gradients_grow_towards_the_output_with_post_norm_only(example: ModuleType) -> None:
    dates = example.make_dates(500)
    post, pre = (example.gradients(dates, norm, seed=0) for norm in ("post", "pre"))
    assert post == sorted(post) and post[-1] > 2 * post[0]
    assert pre[-1] < pre[0] and post[-1] > 2 * pre[-1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_with_the_figure_quote_its_numbers(page: Path, results: dict[str, Any]) -> None:
    text = page.read_text(encoding="utf-8")
    for norm in ("pre", "post"):
        for warmup in (False, True):
            losses = sorted(final_losses(results, norm, warmup=warmup))
            assert f"{losses[0]:.2f}" in text and f"{losses[-1]:.2f}" in text
        first, *_, last = results["gradients"][norm]
        assert f"{first:.1f}" in text and f"{last:.1f}" in text
