"""The accuracy tables compare like with like: nobody sees a test row, and everyone is judged by the same ones."""

import argparse
import json
import subprocess
import sys
import xml.dom.minidom
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pandas
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("narwhals")

from benchmarks import tables, tables_data, tables_few_labels, tables_importance, tables_noise, tables_results
from benchmarks.tables_data import Table, TableTensors
from benchmarks.tables_figure import Panel, figure
from benchmarks.tables_peers import PEERS, Terms, as_categories
from benchmarks.tables_rtdl import rtdl
from benchmarks.tables_running import left, settled

ROWS = 400


def frame(rows: int = ROWS, seed: int = 0) -> pandas.DataFrame:
    """A number that decides, a category that helps, one that does not, and some holes."""
    dice = np.random.default_rng(seed)
    found = pandas.DataFrame(
        {
            "size": dice.normal(size=rows),
            "row": np.arange(rows, dtype=float),
            "colour": dice.choice(["red", "blue"], rows).astype(object),
        }
    )
    found.loc[dice.random(rows) < 0.1, "colour"] = None
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tables of the right names with columns of our own."""
    for path, target, rows, seed in [
        ("adult/adult_train", "income", ROWS, 0),
        ("adult/adult_test", "income", 100, 1),
        ("bank_marketing/bank_marketing", "y", ROWS, 2),
        ("california_housing/california_housing", "MedHouseVal", ROWS, 3),
    ]:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        table = frame(rows, seed)
        yes = np.where(table["size"] > 0.5, "yes", "no")
        wanted = table["size"] if target == "MedHouseVal" else yes
        table.assign(**{target: wanted}).to_csv(tmp_path / f"{path}.csv.gz", index=False)
    parts = np.array(["train", "train", "val", "test"] * (ROWS // 4))
    pandas.DataFrame({"split": parts}).to_csv(tmp_path / "california_housing" / "rtdl_split.csv.gz", index=False)
    return tmp_path


def problem(kind: str = "accuracy") -> Table:
    """A table that can be learned."""
    whole = frame()
    is_regression = whole["size"].to_numpy() + (whole["colour"] == "red").to_numpy()
    wanted = is_regression if kind == "RMSE" else (is_regression > 0.5).astype(np.int64)
    every = TableTensors(whole, wanted)
    return Table("problem", kind, *(every.take(part) for part in np.split(np.arange(ROWS), [240, 320])))  # pyright: ignore[reportArgumentType]


def line(**told: object) -> tables_results.Line:
    spent = {"fit seconds": 1.0, "predict seconds": 0.1, "machine": "here"}
    return {"table": "adult", "who": "ours", "seed": 0, "measure": "accuracy", "score": 0.9, **spent, **told}


# --- tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["income", "bank"])
def test_a_split_by_chance_has_every_row_once_and_65_15_20_of_them(folder, name):
    table = tables_data.load(folder, name, 0)
    seen = [part.frame["row"].tolist() for part in table.parts]
    assert [len(part) for part in seen] == [260, 60, 80]
    assert sorted(sum(seen, [])) == list(range(ROWS))


def test_a_split_by_chance_is_its_seeds(folder):
    tests = [tables_data.load(folder, "bank", seed).test.frame["row"].tolist() for seed in (0, 0, 1)]
    assert tests[0] == tests[1] != tests[2]


def test_rows_that_are_listed_are_taken_as_listed(folder):
    table = tables_data.load(folder, "california", 3)
    assert [len(part) for part in table.parts] == [200, 100, 100]
    assert table.test.frame["row"].tolist() == list(range(3, ROWS, 4))
    assert np.allclose(table.test.wanted, table.test.frame["size"])


def test_adults_test_rows_are_those_of_its_own_file_whatever_the_seed(folder):
    table = tables_data.load(folder, "adult", 4)
    assert [len(part) for part in table.parts] == [320, 80, 100]
    assert np.allclose(table.test.frame["size"], frame(100, 1)["size"])


def test_a_table_that_is_not_there_is_named(folder):
    with pytest.raises(FileNotFoundError, match=r"covertype\.csv"):
        tables_data.load(folder, "covertype", 0)


def test_scores_are_perfect_for_perfect_answers_alone():
    table = problem()
    sure = np.eye(2)[table.test.wanted]
    found = tables_data.score(table, sure)
    assert found["accuracy"] == found["AUC"] == 1 and found["log loss"] < 1e-6
    assert tables_data.score(table, 1 - sure)["AUC"] == 0
    numbers = problem("RMSE")
    assert tables_data.score(numbers, numbers.test.wanted + 2.0)["RMSE"] == pytest.approx(2)


# --- who learns ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [*PEERS, pytest.param("rtdl", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["accuracy", "RMSE"])
def test_everyone_learns_what_can_be_learned(who, kind):
    library = {"catboost-long": "catboost", "histgb": "sklearn", "linear": "sklearn", "rtdl": "rtdl_revisiting_models"}
    pytest.importorskip(library.get(who) or who)
    table = problem(kind)
    fitted = {**PEERS, "rtdl": rtdl}[who](table, Terms(seconds=20.0))
    found = tables_data.score(table, fitted.predict(table.test.frame))
    assert found["RMSE"] < 0.6 * table.test.wanted.std() if kind == "RMSE" else found["AUC"] > 0.9


def test_categories_are_those_of_the_training_rows():
    table = problem()
    seen = as_categories(table)(table.test.frame.assign(colour="green"))["colour"]
    assert list(seen.cat.categories) == ["blue", "red"] and seen.isna().to_numpy().all()


# --- results ---------------------------------------------------------------------------------------------------------


def test_what_was_cut_off_loses_its_last_line_and_no_more(tmp_path):
    path = tmp_path / "results.jsonl"
    tables_results.append(path, line(seed=0))
    with path.open("a") as file:
        file.write('{"table": "ad')
    tables_results.append(path, line(seed=1))
    assert [found["seed"] for found in tables_results.read(path)] == [0, 1]


def test_what_is_there_is_not_run_again(tmp_path):
    path, wanted = tmp_path / "results.jsonl", [tables.Task("adult", "ours", seed) for seed in range(3)]
    path.write_text(json.dumps(line(seed=1) | {"facts": {"epochs": 3}}) + "\n")
    assert [task.seed for task in left(wanted, path)] == [0, 2]


def test_what_is_found_is_kept_and_what_goes_wrong_is_said(tmp_path):
    task, path = tables.Task("adult", "xgboost", 2), tmp_path / "results.jsonl"
    missing, wrong, good = Future(), Future(), Future()
    missing.set_exception(ModuleNotFoundError("No module named 'xgboost'", name="xgboost"))
    wrong.set_exception(ValueError("no such thing"))
    assert settled(task, missing, path) == "adult, xgboost, seed 2: left out, xgboost is not there"
    assert settled(task, wrong, path) == "adult, xgboost, seed 2: failed with ValueError: no such thing"
    assert not path.exists()
    good.set_result([{"score": 0.875}])
    assert settled(task, good, path) == "adult, xgboost, seed 2: 0.8750"
    assert tables_results.read(path) == [{"table": "adult", "who": "xgboost", "seed": 2, "score": 0.875}]


@pytest.mark.slow
def test_a_script_runs_from_a_folder_to_a_table(folder, tmp_path):
    out, words = tmp_path / "out.jsonl", ["--only", "bank", "--who", "linear", "--seeds", "2", "--jobs", "2"]
    script = [sys.executable, "-m", "benchmarks.tables"]
    run = subprocess.run([*script, str(folder), *words, "--out", str(out)], capture_output=True, text=True, check=True)
    assert run.stdout.count("bank, linear") == 2 and len(tables_results.read(out)) == 2
    said = subprocess.run([*script, "--table", str(out)], capture_output=True, text=True, check=True).stdout
    assert "### bank" in said and "| linear |" in said


def test_whoever_rolls_no_dice_runs_once_on_a_split_that_stays():
    asked = argparse.Namespace(only=["adult", "bank"], who=["ours", "lightgbm"], seeds=3)
    found = tables.tasks(asked)
    counts = [
        sum((task.table, task.who) == pair for task in found) for pair in [("adult", "lightgbm"), ("bank", "lightgbm")]
    ]
    assert counts == [1, 3] and len(found) == 3 + 1 + 3 + 3
    assert found[0].table == "adult" and found[0].who == "ours"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"score": 0.8741}, "≥ 0.874: reached"),
        ({"score": 0.8739}, "≥ 0.874: missed"),
        ({"table": "california", "measure": "RMSE", "score": 0.4249}, "≤ 0.425: reached"),
        ({"table": "california", "measure": "RMSE", "score": 0.4251}, "≤ 0.425: missed"),
    ],
)
def test_a_goal_is_reached_or_missed_by_the_mean(told, said):
    assert said in "\n".join(tables.table_of([line(**told)]))


def test_the_best_stands_first_whichever_way_is_better():
    lines = [line(score=0.8), line(who="catboost", score=0.9)]
    assert "\n".join(tables.table_of(lines)).index("catboost") < "\n".join(tables.table_of(lines)).index("ours")
    lower = [found | {"table": "california", "measure": "RMSE"} for found in lines]
    assert "\n".join(tables.table_of(lower)).index("ours") < "\n".join(tables.table_of(lower)).index("catboost")


# --- noise -----------------------------------------------------------------------------------------------------------


def test_missing_cells_are_so_many_and_the_fewer_are_among_the_more():
    whole = frame(2000).drop(columns="colour")
    some, more = (tables_noise.harmed(whole, "missing", share, 0).isna().to_numpy() for share in (0.3, 0.6))
    assert some.mean() == pytest.approx(0.3, abs=0.03) and more.mean() == pytest.approx(0.6, abs=0.03)
    assert more[some].all()


def test_noisy_cells_have_values_of_their_own_column():
    whole = frame()
    noisy = tables_noise.harmed(whole, "noisy", 0.5, 0)
    assert set(noisy["row"]) <= set(whole["row"]) and set(noisy["colour"].dropna()) == {"red", "blue"}
    assert (noisy["row"] != whole["row"]).to_numpy().mean() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("harm", tables_noise.HARMS)
def test_no_share_is_no_harm(harm):
    pandas.testing.assert_frame_equal(tables_noise.harmed(frame(), harm, 0.0, 0), frame())


def test_test_rows_stay_whole_where_training_rows_are_harmed():
    table = problem()
    after = tables_noise.with_harm(table, "missing", 0.9, 0)
    assert after.test is table.test and after.train.frame.isna().to_numpy().mean() > 0.8


def test_the_clean_share_begins_both_curves():
    told = {"table": "bank", "who": "ours", "seed": 0, "measure": "AUC", "score": 0.9, "harm": "noisy"}
    lines = [told | {"taught": "clean", "share": share} for share in (0.0, 0.1)]
    lines.append(told | {"taught": "noisy", "taught_share": 0.1, "share": 0.1, "score": 0.8})
    at_test, in_training = tables_noise.panels(lines)
    assert at_test.curves == {"ours": [(0.0, 0.9), (0.1, 0.9)]}
    assert in_training.curves == {"ours": [(0.0, 0.9), (0.1, 0.8)]}
    assert sum("in training too" in table for table in tables_noise.table_of(lines)) == 1


def test_a_figure_is_one_well_formed_drawing_with_every_curve():
    curves = {"ours": [(0.0, 0.9), (0.7, 0.7)], "<boosting>": [(0.0, 0.95), (0.7, 0.6)]}
    drawn = figure([Panel("a & b", curves), Panel("c", curves)], title="Noise", across="share")
    root = xml.dom.minidom.parseString(drawn).documentElement
    assert root is not None and len(root.getElementsByTagName("circle")) == 8


# --- few labels, and importances -------------------------------------------------------------------------------------


def test_so_many_labels_are_known_and_no_more():
    few = tables_few_labels.few_of(problem(), 50, 0)
    alone = tables_few_labels.by_itself(few, 0)
    assert [len(part) for part in few.parts] == [50, 80, 80]
    assert [len(part) for part in alone.parts] == [40, 10, 80]
    rows = [set(part.frame["row"]) for part in alone.parts]
    assert rows[0] | rows[1] == set(few.train.frame["row"]) and not rows[0] & rows[1]
    assert set(few.train.wanted) == {0, 1}


def test_what_pretraining_brings_is_counted_on_the_same_labels():
    told = {"table": "bank", "stopped_by": "validation", "seed": 0, "labels": 50}
    lines = [told | {"who": "ours", "score": 0.7}, told | {"who": "ours-rtd", "score": 0.8}]
    lines.append(told | {"who": "ours", "score": 0.1, "seed": 1})
    said = "\n".join(tables_few_labels.table_of(lines))
    assert "ours-rtd +0.100 against ours, better in 1 of 1" in said


def test_one_column_of_the_probe_decides_and_the_others_do_not():
    table = tables_importance.fit_linear_probe(0)
    whole = pandas.concat([part.frame for part in table.parts])
    wanted = np.concatenate([part.wanted for part in table.parts])
    assert ((whole["a"] > 0).to_numpy() == wanted).mean() > 0.95
    assert abs(((whole["b"] > 0).to_numpy() == wanted).mean() - 0.5) < 0.05
    assert abs(wanted[(whole["c"] == "red").to_numpy()].mean() - wanted.mean()) < 0.05
