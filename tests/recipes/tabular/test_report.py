"""The HTML report of a table run: columns, their types and their importances."""

import json
import re
from pathlib import Path

import pytest

from softlook.recipes.run_dir.report.formatting import format_table
from softlook.recipes.tabular.run import train_table
from softlook.recipes.tabular.scores import render_columns, summarize_importances
from tests.recipes.small import tabular_config


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_table(tabular_config(tmp_path_factory.mktemp("report"), epochs=30)).run_dir


def test_every_column_is_listed_with_its_type(run_dir: Path) -> None:
    html = (run_dir / "report.html").read_text(encoding="utf-8")
    assert re.search(r"<td>age<br><span class=\"soft\">number, \d %", html)
    assert '<td>city<br><span class="soft">category, 3 values</span></td>' in html


def test_the_bars_show_the_importances_of_the_scores_file(run_dir: Path) -> None:
    html = (run_dir / "report.html").read_text(encoding="utf-8")
    importances = json.loads((run_dir / "scores.json").read_text())["importances"]
    assert importances["metric"] == "log_loss" and importances["rows"] == 48
    assert {one["name"] for one in importances["columns"][:2]} == {"age", "city"}
    bars = re.findall(r'class="bar" style="--share:([\d.]+)%">([^<]+)<', html)
    assert len(bars) == 2 * len(importances["columns"]) == 6
    increases = [one["permutation"] for one in importances["columns"]]
    assert increases == sorted(increases, reverse=True)
    for increase, (width, text) in zip(increases, bars[1::2], strict=True):
        assert float(width) == pytest.approx(max(0, 100 * increase / increases[0]), abs=0.06)
        assert text == f"{'+' if increase >= 0 else '−'}{abs(increase):.4f}"


def test_automatic_sizes_are_among_the_settings_and_the_command_is_no_list(tmp_path: Path) -> None:
    config = tabular_config(tmp_path, epochs=1)
    config = config.model_copy(update={"model": config.model.model_copy(update={"n_members": None})})
    html = (train_table(config).run_dir / "report.html").read_text(encoding="utf-8")
    assert re.search(r">model.n_members</td><td[^>]*>\d</td><td[^>]*>auto</td>", html)
    assert not re.search(r"<pre>\[", html)


def test_without_importances_the_columns_are_listed_in_table_order() -> None:
    html = render_columns(["age: number", "city: category, 3 values", "a … b: one-hot group"], ["age", "city"], None)
    assert "bar" not in html
    assert html.index("age") < html.index("city") < html.index("one-hot group")


def test_column_names_are_escaped() -> None:
    name = "<script>"
    importances = {"metric": "rmse", "rows": 9, "rank_correlation": None}
    column = {"name": name, "attention": None, "permutation": -2000.0}
    for known in (None, {**importances, "columns": [column]}):
        assert name not in render_columns([f"{name}: number"], [name], known)
    html = render_columns([f"{name}: number"], [name], {**importances, "columns": [column]})
    assert "unknown" in html and "−2,000" in html and "increase of RMSE" in html


def test_the_summary_says_when_no_column_is_important() -> None:
    columns = [{"name": "a", "permutation": -0.1}, {"name": "b", "permutation": None}]
    assert summarize_importances({"metric": "rmse", "columns": columns}).startswith("No column is important by itself")


def test_wide_elements_scroll_and_do_not_widen_the_page(run_dir: Path) -> None:
    html = (run_dir / "report.html").read_text(encoding="utf-8")
    assert html.count("<table") == html.count('<div class="wide"><table')
    assert "svg.softlook { display: block; width: 100%" in html


def test_the_rows_of_each_split_are_listed(run_dir: Path) -> None:
    html = (run_dir / "report.html").read_text(encoding="utf-8")
    splits = json.loads((run_dir / "data.json").read_text())["splits"]
    assert splits["training"]["rows"] > splits["validation"]["rows"] == 48 and "test" not in splits
    assert re.search(r">training</td><td[^>]*>[^<]*</td><td class=\"num\">\d+</td>", html)


def test_small_errors_are_shown_in_significant_digits() -> None:
    small = [
        {"name": "a", "attention": 0.5, "permutation": 2.5e-5},
        {"name": "b", "attention": 0.5, "permutation": 0.0},
    ]
    importances = {"metric": "rmse", "rows": 9, "rank_correlation": None, "columns": small}
    assert summarize_importances(importances).endswith("a 2.5e-05.")
    assert "+2.5e-05" in render_columns([], [], importances)
    table = format_table([{"model": "softlook", "rmse": 1.234e-5, "r2": 1e-5}])
    assert table[1].split() == ["softlook", "1.23e-05", "0.0000"]
    with_a_large_one = [{"name": "c", "attention": 0.5, "permutation": 0.25}, *small]
    assert "2.5e-05" not in render_columns([], [], {**importances, "columns": with_a_large_one})
