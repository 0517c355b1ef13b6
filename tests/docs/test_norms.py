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
    sys.modules[spec.name] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return json.loads(FIGURE.with_suffix(".json").read_text(encoding="utf-8"))


def last(found: dict[str, Any], norm: str, *, warm: bool) -> list[float]:
    """The final losses of these runs."""
    return [run["loss"][-1][1] for run in found["runs"] if run["norm"] == norm and (run["warmup"] > 0) == warm]


def test_the_figure_is_drawn_from_the_recorded_numbers(example: ModuleType, found: dict[str, Any]) -> None:
    assert example.draw(found) == FIGURE.read_text(encoding="utf-8")
    ElementTree.fromstring(example.draw(found))


def test_only_post_norm_without_warmup_fails_to_learn(found: dict[str, Any]) -> None:
    stuck = last(found, "post", warm=False)
    assert min(stuck) > 0.98 * found["unigram_entropy"]
    for norm, warm in (("pre", False), ("pre", True), ("post", True)):
        assert len(losses := last(found, norm, warm=warm)) == len(stuck) >= 2
        assert max(losses) < found["unigram_entropy"] / 4


def test_gradients_grow_towards_the_output_with_post_norm_only(example: ModuleType) -> None:
    dates = example.make_dates(500)
    post, pre = (example.gradients(dates, norm, seed=0) for norm in ("post", "pre"))
    assert post == sorted(post) and post[-1] > 2 * post[0]
    assert pre[-1] < pre[0] and post[-1] > 2 * pre[-1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_with_the_figure_quote_its_numbers(page: Path, found: dict[str, Any]) -> None:
    text = page.read_text(encoding="utf-8")
    for norm in ("pre", "post"):
        for warm in (False, True):
            losses = sorted(last(found, norm, warm=warm))
            assert f"{losses[0]:.2f}" in text and f"{losses[-1]:.2f}" in text
        assert all(f"{length:.1f}" in text for length in (found["gradients"][norm][0], found["gradients"][norm][-1]))
