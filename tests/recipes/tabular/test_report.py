"""The page about a run on a table: its columns, what they were taken for, and what they matter."""

import json
import re
from pathlib import Path

import pytest

from softlook.recipes.tabular.report import render_columns, summarize_importances
from softlook.recipes.tabular.run import train_table
from softlook.recipes.tabular.scores import lines
from tests.recipes.small import tabular_config


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_table(tabular_config(tmp_path_factory.mktemp("page"), epochs=30)).folder


def test_every_column_is_there_with_what_it_was_taken_for(folder: Path) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert re.search(r"<td>age<br><span class=\"soft\">number, \d %", page)
    assert '<td>city<br><span class="soft">category, 3 values</span></td>' in page


def test_the_bars_are_the_numbers_of_the_scores(folder: Path) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    found = json.loads((folder / "scores.json").read_text())["importances"]
    assert found["measure"] == "log_loss" and found["rows"] == 48
    assert {one["name"] for one in found["columns"][:2]} == {"age", "city"}
    bars = re.findall(r'class="bar" style="--share:([\d.]+)%">([^<]+)<', page)
    assert len(bars) == 2 * len(found["columns"]) == 6
    costs = [one["permutation"] for one in found["columns"]]
    assert costs == sorted(costs, reverse=True)
    for cost, (share, said) in zip(costs, bars[1::2], strict=True):
        assert float(share) == pytest.approx(max(0, 100 * cost / costs[0]), abs=0.06)
        assert said == f"{'+' if cost >= 0 else '−'}{abs(cost):.4f}"


def test_the_command_can_be_typed_again_and_sizes_that_were_found_are_among_the_settings(tmp_path: Path) -> None:
    settings = tabular_config(tmp_path, epochs=1)
    settings = settings.model_copy(update={"model": settings.size.model_copy(update={"n_members": None})})
    page = (train_table(settings).folder / "report.html").read_text(encoding="utf-8")
    assert re.search(r"<td>size.members</td><td>\d</td><td>chosen for the data</td>", page)
    assert not re.search(r"<td>command</td><td>\[", page)


def test_while_nothing_is_known_columns_are_shown_in_their_order() -> None:
    shown = render_columns(["age: number", "city: category, 3 values", "a … b: one choice"], ["age", "city"], None)
    assert "bar" not in shown
    assert shown.index("age") < shown.index("city") < shown.index("one choice")


def test_the_name_of_a_column_is_text_and_nothing_else() -> None:
    evil = "<script>"
    found = {"measure": "rmse", "rows": 9, "rank_correlation": None}
    column = {"name": evil, "attention": None, "permutation": -2000.0}
    for known in (None, {**found, "columns": [column]}):
        assert evil not in render_columns([f"{evil}: number"], [evil], known)
    shown = render_columns([f"{evil}: number"], [evil], {**found, "columns": [column]})
    assert "not known" in shown and "−2,000" in shown and "RMSE, if shuffled" in shown


def test_where_no_column_matters_that_is_said() -> None:
    found = {"measure": "rmse", "columns": [{"name": "a", "permutation": -0.1}, {"name": "b", "permutation": None}]}
    assert summarize_importances(found).startswith("No column matters by itself")


def test_what_is_wide_can_be_moved_and_does_not_widen_the_page(folder: Path) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("<table") == page.count('<div class="wide"><table')
    assert '<div class="wide"><svg' in page


def test_where_amounts_are_small_their_first_digits_are_told() -> None:
    small = [
        {"name": "a", "attention": 0.5, "permutation": 2.5e-5},
        {"name": "b", "attention": 0.5, "permutation": 0.0},
    ]
    found = {"measure": "rmse", "rows": 9, "rank_correlation": None, "columns": small}
    assert summarize_importances(found).endswith("a 2.5e-05.") and "+2.5e-05" in render_columns([], [], found)
    assert lines([{"model": "softlook", "rmse": 1.234e-5, "r2": 1e-5}])[1].split() == ["softlook", "1.23e-05", "0.0000"]
    beside = [{"name": "c", "attention": 0.5, "permutation": 0.25}, *small]
    assert "2.5e-05" not in render_columns([], [], {**found, "columns": beside})
