"""Checks of a table before training."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from softlook.base.errors import ConfigError, DataError
from softlook.recipes.config.tabular_schema import TabularConfig
from softlook.recipes.tabular import table_stats
from softlook.recipes.tabular.checks import TableReport, check_table
from softlook.tabular.io.files import read_table

ROWS = 200


def columns(**more: list[Any]) -> dict[str, list[Any]]:
    """A table without problems; `more` adds columns or replaces them."""
    rng = random.Random(0)
    age = [rng.randint(18, 80) for _ in range(ROWS)]
    income = [round(rng.gauss(2000, 500), 2) for _ in range(ROWS)]
    city = [rng.choice(("Oslo", "Rome", "Bern")) for _ in range(ROWS)]
    buys = ["yes" if (years > 50) != (rng.random() < 0.1) else "no" for years in age]
    return {"age": age, "income": income, "city": city, "buys": buys} | more


def write(path: Path, table: dict[str, list[Any]]) -> Path:
    rows = zip(*table.values(), strict=True)
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
    path.write_text("\n".join([",".join(table), *lines]) + "\n", encoding="utf-8")
    return path


def check(folder: Path, table: dict[str, list[Any]], target: str = "buys", **more: Any) -> TableReport:
    return check_table(TabularConfig(data=(write(folder / "people.csv", table),), target=(target,), **more))[0]


def test_a_table_without_problems_has_no_findings(tmp_path: Path) -> None:
    report = check(tmp_path, columns())
    assert not report.findings
    assert (report.rows, report.unlabelled, report.duplicates, report.conflicts) == (ROWS, 0, 0, 0)
    assert {column["name"]: column["type"] for column in report.columns} == {
        "age": "number",
        "income": "number",
        "city": "category",
    }
    assert report.labels == {label: columns()["buys"].count(label) for label in ("yes", "no")}


INDICES = range(ROWS)
CLEAN = columns()
FINDINGS: dict[str, tuple[dict[str, list[Any]], str]] = {
    "one string": (
        {"country": ["NO"] * ROWS},
        "note: all cells are equal, or all are missing: 'country'. Leave it out",
    ),
    "one number": ({"year": [2024] * ROWS}, "note: all cells are equal, or all are missing: 'year'"),
    "an empty column": ({"note": [None] * ROWS}, "note: all cells are equal, or all are missing: 'note'"),
    "mostly missing": ({"fax": [n if n < 5 else None for n in INDICES]}, "note: 90 % of the cells or more are missing"),
    "row numbers": ({"id": list(INDICES)}, "warning: every row has a unique value, as in an id: 'id'"),
    "row keys": (
        {"key": [f"k{n}x" for n in INDICES]},
        "warning: every row has a unique value, as in an id: 'key'",
    ),
    "the target in another spelling": (
        {"bought": [{"yes": "y", "no": "n"}[label] for label in CLEAN["buys"]]},
        "warning: one column alone determines buys: 'bought'. Check that it is known before buys is",
    ),
    "a missing value in words": (
        {"city": ["none" if n == 6 else city for n, city in enumerate(CLEAN["city"])]},
        "note: 1 of 200 cells of 'city' hold a missing value in words (first in row 7). Leave such cells empty",
    ),
    "HTML tags": (
        {"city": ["Oslo<br>" if n % 3 else "Rome" for n in INDICES]},
        "warning: 133 of 200 cells of 'city' hold HTML (first in row 2)",
    ),
    "rows without a target": (
        {"buys": [None if n < 3 else label for n, label in enumerate(CLEAN["buys"])]},
        "note: 3 of 200 rows have no buys and are dropped",
    ),
    "a rare class": (
        {"buys": ["yes" if n < 4 else "no" for n in INDICES]},
        "warning: 196 of 200 rows are 'no', and 4 'yes'",
    ),
    "a class with two spellings": (
        {"buys": [f"{label} " if n % 9 == 0 and label == "yes" else label for n, label in enumerate(CLEAN["buys"])]},
        "warning: classes that differ in capitalization and whitespace only: 'yes', 'yes '",
    ),
    "numbers except for one string": (
        {"buys": ["unknown" if n == 9 else n % 50 for n in INDICES]},
        "error: buys has 51 distinct values, nearly all of them numbers; 'unknown' is not (first in ",
    ),
    "one class": ({"buys": ["yes"] * ROWS}, "error: every row has the same buys, 'yes': there is nothing to learn"),
}


@pytest.mark.parametrize("name", FINDINGS)
def test_a_likely_problem_is_found(name: str, tmp_path: Path) -> None:
    more, message = FINDINGS[name]
    findings = [str(finding) for finding in check(tmp_path, columns(**more)).findings]
    assert any(finding.startswith(message) for finding in findings), findings
    assert len(findings) == 1


def test_the_row_number_of_a_finding_also_counts_dropped_rows(tmp_path: Path) -> None:
    city = ["Oslo<br>" if n == 9 else "Rome" for n in INDICES]
    buys = [None if n < 3 else label for n, label in enumerate(CLEAN["buys"])]
    findings = check(tmp_path, columns(city=city, buys=buys)).findings
    assert "row 10" in [finding.location for finding in findings]


@pytest.mark.parametrize("target", ["buys", "income"])
def test_duplicate_rows_are_counted(target: str, tmp_path: Path) -> None:
    doubled = {name: [*cells, *cells[:20]] for name, cells in columns().items()}
    report = check(tmp_path, doubled, target)
    assert report.duplicates == 20
    assert str(report.findings[0]).startswith("warning: 20 of 220 rows are duplicates (first in row 201)")


def test_rows_that_differ_in_the_target_only_are_counted(tmp_path: Path) -> None:
    other = {"yes": "no", "no": "yes"}
    table = {name: [*cells, *cells[:20]] for name, cells in columns().items()}
    table["buys"][ROWS:] = [other[label] for label in table["buys"][:20]]
    report = check(tmp_path, table)
    assert report.duplicates == 0 and report.conflicts == 20
    assert "rows that differ from another in 'buys' only: 20 (first in row 201)" in str(report.findings[0])


def test_validation_and_test_rows_that_are_also_training_rows_are_counted(tmp_path: Path) -> None:
    leaked = {name: cells[:7] for name, cells in columns().items()}
    valid = write(tmp_path / "valid.csv", dict(reversed(leaked.items())))
    test = write(tmp_path / "test.csv", {**leaked, "age": list(range(90, 97))})
    report = check(tmp_path, columns(), valid=(valid,), test=(test,))
    assert report.leaks == {"valid": 7, "test": 0}
    assert [finding.location for finding in report.findings] == ["row 1"]


def test_ignored_columns_are_not_checked_and_given_types_are_used(tmp_path: Path) -> None:
    assert not check(tmp_path, columns(id=list(INDICES)), ignore=("id",)).findings
    report = check(tmp_path, columns(zip=[n % 4 for n in INDICES]), column_types=("zip=category",))
    assert {column["type"] for column in report.columns if column["name"] == "zip"} == {"category"}


def test_findings_do_not_depend_on_the_chunk_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = columns(id=list(INDICES), bought=CLEAN["buys"], city=["Oslo<br>" if n == 150 else "Rome" for n in INDICES])
    whole = check(tmp_path, table)
    pq.write_table(pa.concat_tables(read_table(tmp_path / "people.csv")), tmp_path / "people.parquet")
    monkeypatch.setattr("softlook.tabular.io.files.PARQUET_ROWS", 16)
    chunked, _ = check_table(TabularConfig(data=(tmp_path / "people.parquet",), target=("buys",)))
    assert [str(finding) for finding in chunked.findings] == [str(finding) for finding in whole.findings]
    assert chunked.columns == whole.columns and len(whole.findings) == 3


def test_a_column_of_very_many_values_takes_limited_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_stats, "MAX_VALUES", 10)
    assert "as in an id: 'id'" in str(check(tmp_path, columns(id=list(INDICES))).findings[0])
    stats = table_stats.ColumnStats("x")
    for start in range(0, 90, 30):
        cells = pa.chunked_array([list(range(start, start + 30))])
        stats.update(cells, cells, cells.to_numpy())
    assert stats.value_targets is None and stats.unique_values is not None and len(stats.unique_values) <= 30


def test_a_table_without_a_usable_target_still_has_a_report(tmp_path: Path) -> None:
    path = write(tmp_path / "people.csv", columns(buys=["yes"] * ROWS))
    report, data = check_table(TabularConfig(data=(path,), target=("buys",)))
    assert data is None and report.rows == ROWS and len(report.columns) == 3


def test_errors_list_the_columns_and_name_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path / "people.csv", columns())
    with pytest.raises(ConfigError, match="Set --target to one of age, income, city, buys"):
        check_table(TabularConfig(data=(path,)))
    with path.open("a", encoding="utf-8") as file:
        file.write("1,2,3,4,5\n")
    with pytest.raises(DataError, match=r"people\.csv:202"):
        check_table(TabularConfig(data=(path,), target=("buys",)))


def test_small_chunks_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [pa.table({"n": [number]}) for number in range(25)]
    monkeypatch.setattr(table_stats, "MIN_CHUNK_ROWS", 10)
    merged = list(table_stats.merge_small_chunks(rows))
    assert [chunk.num_rows for chunk in merged] == [10, 10, 5]
    assert pa.concat_tables(merged).equals(pa.concat_tables(rows))
    monkeypatch.setattr(table_stats, "MAX_CHUNK_BYTES", 1)
    assert len(list(table_stats.merge_small_chunks(rows))) == 25
    assert not list(table_stats.merge_small_chunks([]))
