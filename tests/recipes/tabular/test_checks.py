"""What is found in a table before anything learns from it."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from softlook.base.errors import ConfigError, DataError
from softlook.recipes.config.tabular_schema import TabularConfig
from softlook.recipes.tabular.checks import counts as tables_counts
from softlook.recipes.tabular.checks.check import TableReport, check_table
from softlook.tabular.io.files import read_table

ROWS = 200


def columns(**more: list[Any]) -> dict[str, list[Any]]:
    """A sound table: nothing is to be said about it. `more` are columns beside, or in the place of, its own."""
    dice = random.Random(0)
    age = [dice.randint(18, 80) for _ in range(ROWS)]
    income = [round(dice.gauss(2000, 500), 2) for _ in range(ROWS)]
    city = [dice.choice(("Oslo", "Rome", "Bern")) for _ in range(ROWS)]
    buys = ["yes" if (years > 50) != (dice.random() < 0.1) else "no" for years in age]
    return {"age": age, "income": income, "city": city, "buys": buys} | more


def write(path: Path, table: dict[str, list[Any]]) -> Path:
    rows = zip(*table.values(), strict=True)
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
    path.write_text("\n".join([",".join(table), *lines]) + "\n", encoding="utf-8")
    return path


def checked(folder: Path, table: dict[str, list[Any]], target: str = "buys", **more: Any) -> TableReport:
    return check_table(TabularConfig(data=(write(folder / "people.csv", table),), target=(target,), **more))[0]


def test_of_a_sound_table_nothing_is_found(tmp_path: Path) -> None:
    facts = checked(tmp_path, columns())
    assert not facts.findings
    assert (facts.rows, facts.unlabelled, facts.duplicates, facts.disputed) == (ROWS, 0, 0, 0)
    assert {column["name"]: column["kind"] for column in facts.columns} == {
        "age": "number",
        "income": "number",
        "city": "category",
    }
    assert facts.labels == {label: columns()["buys"].count(label) for label in ("yes", "no")}


EVERY = range(ROWS)
SOUND = columns()
FOUND: dict[str, tuple[dict[str, list[Any]], str]] = {
    "one value": ({"country": ["NO"] * ROWS}, "note: cells are all alike, or all missing: 'country'. Leave it out"),
    "one number": ({"year": [2024] * ROWS}, "note: cells are all alike, or all missing: 'year'"),
    "no value": ({"note": [None] * ROWS}, "note: cells are all alike, or all missing: 'note'"),
    "hardly a value": ({"fax": [n if n < 5 else None for n in EVERY]}, "note: 90 % of the cells are missing, or more"),
    "numbers of rows": ({"id": list(EVERY)}, "warning: every row has a value of its own, as in an id: 'id'"),
    "names of rows": (
        {"key": [f"k{n}x" for n in EVERY]},
        "warning: every row has a value of its own, as in an id: 'key'",
    ),
    "the target by another name": (
        {"bought": [{"yes": "y", "no": "n"}[label] for label in SOUND["buys"]]},
        "warning: one column alone tells buys without fail: 'bought'. Ask whether that is known before buys is",
    ),
    "what only stands for a missing cell": (
        {"city": ["none" if n == 6 else city for n, city in enumerate(SOUND["city"])]},
        "note: 1 of 200 cells of 'city' hold a missing value in words (first in row 7). Leave such cells empty",
    ),
    "marks of a web page": (
        {"city": ["Oslo<br>" if n % 3 else "Rome" for n in EVERY]},
        "warning: 133 of 200 cells of 'city' hold HTML (first in row 2)",
    ),
    "rows without a target": (
        {"buys": [None if n < 3 else label for n, label in enumerate(SOUND["buys"])]},
        "note: 3 of 200 rows have no buys and are left out",
    ),
    "a rare class": (
        {"buys": ["yes" if n < 4 else "no" for n in EVERY]},
        "warning: 196 of 200 rows are 'no', and 4 'yes'",
    ),
    "classes that are spelled in two ways": (
        {"buys": [f"{label} " if n % 9 == 0 and label == "yes" else label for n, label in enumerate(SOUND["buys"])]},
        "warning: classes that differ in nothing but capitals and blanks: 'yes', 'yes '",
    ),
    "numbers, but for one": (
        {"buys": ["unknown" if n == 9 else n % 50 for n in EVERY]},
        "error: buys has 51 different values, nearly all of them numbers, and 'unknown' is none (first in ",
    ),
    "one class": ({"buys": ["yes"] * ROWS}, "error: every row has the same buys, 'yes': there is nothing to learn"),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_is_likely_to_do_harm_is_found(name: str, tmp_path: Path) -> None:
    more, words = FOUND[name]
    findings = [str(finding) for finding in checked(tmp_path, columns(**more)).findings]
    assert any(finding.startswith(words) for finding in findings), findings
    assert len(findings) == 1


def test_the_place_of_a_finding_counts_rows_that_are_left_out_too(tmp_path: Path) -> None:
    city = ["Oslo<br>" if n == 9 else "Rome" for n in EVERY]
    buys = [None if n < 3 else label for n, label in enumerate(SOUND["buys"])]
    findings = checked(tmp_path, columns(city=city, buys=buys)).findings
    assert "row 10" in [finding.location for finding in findings]


@pytest.mark.parametrize("target", ["buys", "income"])
def test_rows_that_come_again_are_counted(target: str, tmp_path: Path) -> None:
    twice = {name: [*cells, *cells[:20]] for name, cells in columns().items()}
    facts = checked(tmp_path, twice, target)
    assert facts.duplicates == 20
    assert str(facts.findings[0]).startswith("warning: 20 of 220 rows are there twice or more often (first in row 201)")


def test_rows_that_differ_in_their_target_alone_are_counted(tmp_path: Path) -> None:
    other = {"yes": "no", "no": "yes"}
    table = {name: [*cells, *cells[:20]] for name, cells in columns().items()}
    table["buys"][ROWS:] = [other[label] for label in table["buys"][:20]]
    facts = checked(tmp_path, table)
    assert facts.duplicates == 0 and facts.disputed == 20
    assert "rows that differ from another in nothing but 'buys': 20 (first in row 201)" in str(facts.findings[0])


def test_rows_of_other_sets_that_are_also_learned_from_are_counted(tmp_path: Path) -> None:
    some = {name: cells[:7] for name, cells in columns().items()}
    turned = dict(reversed(some.items()))
    valid = write(tmp_path / "valid.csv", turned)
    test = write(tmp_path / "test.csv", {**some, "age": list(range(90, 97))})
    facts = checked(tmp_path, columns(), valid=(valid,), test=(test,))
    assert facts.leaks == {"valid": 7, "test": 0}
    assert [finding.location for finding in facts.findings] == ["row 1"]


def test_what_is_left_out_is_not_looked_at(tmp_path: Path) -> None:
    assert not checked(tmp_path, columns(id=list(EVERY)), ignore=("id",)).findings
    told = checked(tmp_path, columns(zip=[n % 4 for n in EVERY]), column_types=("zip=category",))
    assert {column["kind"] for column in told.columns if column["name"] == "zip"} == {"category"}


def test_pieces_of_a_table_are_counted_as_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = columns(id=list(EVERY), bought=SOUND["buys"], city=["Oslo<br>" if n == 150 else "Rome" for n in EVERY])
    whole = checked(tmp_path, table)
    pq.write_table(pa.concat_tables(read_table(tmp_path / "people.csv")), tmp_path / "people.parquet")
    monkeypatch.setattr("softlook.tabular.io.files.ROWS", 16)
    pieces, _ = check_table(TabularConfig(data=(tmp_path / "people.parquet",), target=("buys",)))
    assert [str(finding) for finding in pieces.findings] == [str(finding) for finding in whole.findings]
    assert pieces.columns == whole.columns and len(whole.findings) == 3


def test_a_column_of_very_many_values_is_forgotten_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables_counts, "VALUES", 10)
    assert "as in an id: 'id'" in str(checked(tmp_path, columns(id=list(EVERY))).findings[0])
    counts = tables_counts.ColumnStats("x")
    for start in range(0, 90, 30):
        cells = pa.chunked_array([list(range(start, start + 30))])
        counts.add(cells, cells, cells.to_numpy())
    assert counts.predict_rows is None and counts.known is not None and len(counts.known) <= 30


def test_a_table_that_cannot_be_learned_from_is_counted_all_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "people.csv", columns(buys=["yes"] * ROWS))
    facts, data = check_table(TabularConfig(data=(path,), target=("buys",)))
    assert data is None and facts.rows == ROWS and len(facts.columns) == 3


def test_what_cannot_be_read_is_said_with_its_place(tmp_path: Path) -> None:
    path = write(tmp_path / "people.csv", columns())
    with pytest.raises(ConfigError, match="There are age, income, city, buys"):
        check_table(TabularConfig(data=(path,)))
    with path.open("a", encoding="utf-8") as file:
        file.write("1,2,3,4,5\n")
    with pytest.raises(DataError, match=r"people\.csv:202"):
        check_table(TabularConfig(data=(path,), target=("buys",)))


def test_pieces_of_few_rows_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [pa.table({"n": [number]}) for number in range(25)]
    monkeypatch.setattr(tables_counts, "ENOUGH", 10)
    parts = list(tables_counts.in_larger_parts(rows))
    assert [part.num_rows for part in parts] == [10, 10, 5]
    assert pa.concat_tables(parts).equals(pa.concat_tables(rows))
    monkeypatch.setattr(tables_counts, "MOST_BYTES", 1)
    assert len(list(tables_counts.in_larger_parts(rows))) == 25
    assert not list(tables_counts.in_larger_parts([]))
