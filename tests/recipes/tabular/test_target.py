"""What is to be predicted: classes or numbers, however they are spelled."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from softlook.base.errors import DataError
from softlook.recipes.config.tabular_schema import TabularConfig
from softlook.recipes.tabular.data import load_table
from softlook.recipes.tabular.predict import load_predictor
from softlook.recipes.tabular.run import train_table
from softlook.recipes.tabular.target import TargetColumnStats, infer_target
from softlook.recipes.text.evaluate import evaluate
from softlook.tabular.io.files import read_table
from tests.recipes.small import people, tabular_config

TARGETS: dict[str, tuple[list[str], str]] = {
    "words": (["a", "b"] * 10, "classes"),
    "two numbers": (["0", "1"] * 10, "classes"),
    "few whole numbers": (["1", "2", "3"] * 10, "classes"),
    "whole numbers that are seldom the same": ([str(number) for number in range(18)], "numbers"),
    "many whole numbers": ([str(number % 30) for number in range(900)], "numbers"),
    "fractions": (["0.5", "1.5"] * 10, "numbers"),
}


def seen(words: list[str]) -> TargetColumnStats:
    """A column that passed by in two pieces."""
    found = TargetColumnStats("y")
    found.add(pa.chunked_array([words[:5]]))
    found.add(pa.chunked_array([words[5:]]))
    return found


@pytest.mark.parametrize("name", TARGETS)
def test_classes_are_told_from_numbers(name: str) -> None:
    words, predict_rows = TARGETS[name]
    target = infer_target([seen(words)], None)
    assert target.predict_rows == predict_rows and target.said.startswith("To be predicted: y, ")
    values = target.values(pa.table({"y": words}))
    assert values.dtype.kind == ("f" if predict_rows == "numbers" else "U" if words[0] == "a" else "i")


@pytest.mark.parametrize(
    ("spelled", "instead"),
    [
        ("2020-01-{:02}", "a date is not predicted: make a number of it"),
        ("{:02}/01/2020", "a date is not predicted: make a number of it"),
        ("${:,}", "spell numbers with digits and a point alone"),
        ("Ann {}", "name another column with --target"),
    ],
)
def test_of_what_is_neither_classes_nor_numbers_it_is_said_what_to_do(normalize_booleans: str, instead: str) -> None:
    seen = TargetColumnStats("when")
    seen.add(pa.chunked_array([[normalize_booleans.format(number) for number in range(1, 29)]]))
    with pytest.raises(DataError, match="28 rows, too many for classes, and .* is no number") as fault:
        infer_target([seen], None)
    assert instead in str(fault.value)


def test_one_odd_cell_makes_no_classes_of_many_numbers(tmp_path: Path) -> None:
    words = ["unknown" if number == 9 else str(number % 50) for number in range(500)]
    with pytest.raises(DataError, match="51 different values, nearly all of them numbers, and 'unknown' is none"):
        infer_target([seen(words)], None)
    assert infer_target([seen(words)], "classes").predict_rows == "classes"
    assert infer_target([seen([*words, "a", "b", "c"])], None).predict_rows == "classes"  # several words are no slip
    path = tmp_path / "years.csv"
    path.write_text("a,y\n" + "".join(f"{number},{word}\n" for number, word in enumerate(words)))
    for predict_rows in (None, "numbers"):
        with pytest.raises(DataError, match=r"years\.csv:11: y .*'unknown'") as told:
            load_table(TabularConfig(data=(path,), target=("y",), predict_rows=predict_rows))
        assert "rows without y are left out" in str(told.value)


def test_many_amounts_that_are_no_numbers_as_they_are_spelled_are_told_so() -> None:
    many = infer_target([seen([f"{number % 30} %" for number in range(300)])], None)
    assert many.predict_rows == "classes" and "'0 %' is no number: spell numbers with digits" in many.said
    few = infer_target([seen([f"{number % 5} %" for number in range(300)])], None)
    assert "is no number" not in few.said


def test_whole_numbers_say_how_to_take_them_otherwise() -> None:
    few, many = ["1", "2"] * 9, [str(number) for number in range(50)]
    assert infer_target([seen(few)], None).said.endswith("--answers numbers says otherwise.")
    assert infer_target([seen(many)], None).said.endswith("--answers classes says otherwise.")
    assert infer_target([seen(many)], "classes").labels == tuple(range(50))


def test_truths_are_the_same_however_a_file_spells_them(tmp_path: Path) -> None:
    path = people(tmp_path / "truths.csv")
    path.write_text(path.read_text().replace(",yes,", ",True,").replace(",no,", ",False,"))
    rows = pa.concat_tables(read_table(path))
    for name in ("truths.parquet", "truths.jsonl"):
        if name.endswith("parquet"):
            pq.write_table(rows, tmp_path / name)
        else:
            (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
    fitted = train_table(tabular_config(tmp_path, data=(path,), test=(tmp_path / "truths.parquet",)))
    assert [evaluate(fitted.folder, (tmp_path / name,)) for name in ("truths.parquet", "truths.jsonl")] == [
        evaluate(fitted.folder, (path,))
    ] * 2
    by_json = train_table(tabular_config(tmp_path, data=(tmp_path / "truths.jsonl",), run=tmp_path / "json"))
    assert load_predictor(by_json.folder).classes == ["false", "true"]
