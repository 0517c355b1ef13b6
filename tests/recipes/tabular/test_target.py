"""The target of a run: classification or regression, in any spelling of its cells."""

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
from softlook.recipes.text.run import evaluate
from softlook.tabular.io.files import read_table
from softlook.tabular.preprocessing.target import Problem
from tests.recipes.small import people, tabular_config

TARGETS: dict[str, tuple[list[str], Problem]] = {
    "strings": (["a", "b"] * 10, "classification"),
    "two integers": (["0", "1"] * 10, "classification"),
    "few distinct integers": (["1", "2", "3"] * 10, "classification"),
    "integers that rarely repeat": ([str(number) for number in range(18)], "regression"),
    "many distinct integers": ([str(number % 30) for number in range(900)], "regression"),
    "fractions": (["0.5", "1.5"] * 10, "regression"),
}


def column_stats(cells: list[str]) -> TargetColumnStats:
    """Statistics of a column that was read in two chunks."""
    stats = TargetColumnStats("y")
    stats.update(pa.chunked_array([cells[:5]]))
    stats.update(pa.chunked_array([cells[5:]]))
    return stats


@pytest.mark.parametrize("name", TARGETS)
def test_the_problem_is_inferred_from_the_target(name: str) -> None:
    cells, problem = TARGETS[name]
    target = infer_target([column_stats(cells)], None)
    assert target.problem == problem and target.description.startswith("Target: y, ")
    values = target.values(pa.table({"y": cells}))
    assert values.dtype.kind == ("f" if problem == "regression" else "U" if cells[0] == "a" else "i")


@pytest.mark.parametrize(
    ("spelling", "help"),
    [
        ("2020-01-{:02}", "dates cannot be predicted: convert them to numbers"),
        ("{:02}/01/2020", "dates cannot be predicted: convert them to numbers"),
        ("${:,}", "write numbers with digits and a point only"),
        ("Ann {}", "choose another column with --target"),
    ],
)
def test_a_target_of_neither_classes_nor_numbers_is_rejected_with_help(spelling: str, help: str) -> None:
    stats = TargetColumnStats("when")
    stats.update(pa.chunked_array([[spelling.format(number) for number in range(1, 29)]]))
    with pytest.raises(DataError, match="28 rows, too many for classes, and .* is not a number") as raised:
        infer_target([stats], None)
    assert help in str(raised.value)


def test_one_odd_cell_does_not_turn_many_numbers_into_classes(tmp_path: Path) -> None:
    cells = ["unknown" if number == 9 else str(number % 50) for number in range(500)]
    with pytest.raises(DataError, match="51 distinct values, nearly all of them numbers; 'unknown' is not"):
        infer_target([column_stats(cells)], None)
    assert infer_target([column_stats(cells)], "classification").problem == "classification"
    several_strings = [*cells, "a", "b", "c"]  # not one mistake
    assert infer_target([column_stats(several_strings)], None).problem == "classification"
    path = tmp_path / "years.csv"
    path.write_text("a,y\n" + "".join(f"{number},{cell}\n" for number, cell in enumerate(cells)))
    for problem in (None, "regression"):
        with pytest.raises(DataError, match=r"years\.csv:11: y.*'unknown'") as raised:
            load_table(TabularConfig(data=(path,), target=("y",), problem=problem))
        assert "rows without y are dropped" in str(raised.value)


def test_many_classes_that_look_like_numbers_are_pointed_out() -> None:
    many = infer_target([column_stats([f"{number % 30} %" for number in range(300)])], None)
    assert many.problem == "classification" and "'0 %' is not a number: write numbers with digits" in many.description
    few = infer_target([column_stats([f"{number % 5} %" for number in range(300)])], None)
    assert "is not a number" not in few.description


def test_the_description_of_integers_names_the_flag_that_overrides_the_problem() -> None:
    few, many = ["1", "2"] * 9, [str(number) for number in range(50)]
    assert infer_target([column_stats(few)], None).description.endswith("Use --problem regression to override.")
    assert infer_target([column_stats(many)], None).description.endswith("Use --problem classification to override.")
    assert infer_target([column_stats(many)], "classification").labels == tuple(range(50))


def test_boolean_targets_are_equal_in_every_file_format(tmp_path: Path) -> None:
    path = people(tmp_path / "booleans.csv")
    path.write_text(path.read_text().replace(",yes,", ",True,").replace(",no,", ",False,"))
    rows = pa.concat_tables(read_table(path))
    for name in ("booleans.parquet", "booleans.jsonl"):
        if name.endswith("parquet"):
            pq.write_table(rows, tmp_path / name)
        else:
            (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
    result = train_table(tabular_config(tmp_path, data=(path,), test=(tmp_path / "booleans.parquet",)))
    for name in ("booleans.parquet", "booleans.jsonl"):
        assert evaluate(result.run_dir, (tmp_path / name,)) == evaluate(result.run_dir, (path,))
    from_json = train_table(tabular_config(tmp_path, data=(tmp_path / "booleans.jsonl",), run_dir=tmp_path / "json"))
    assert load_predictor(from_json.run_dir).classes == ["false", "true"]
