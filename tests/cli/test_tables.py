"""Tables by the command line: `softlook train table` and `softlook predict`, as a person types them."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from softlook.recipes.tabular.run import train_table
from softlook.tabular import load
from softlook.weights.manifest import BEST_FILE
from tests.cli.test_train import softlook
from tests.recipes.small import people, tabular_config
from tests.recipes.trained_runs import train_runs

QUICK = (
    "--size.dim",
    "16",
    "--size.depth",
    "1",
    "--size.heads",
    "2",
    "--size.members",
    "2",
    "--optim.batch-size",
    "32",
)
SHORT = (*QUICK, "--training.epochs", "6", "--training.device", "cpu")
TRAIN = ("train", "table", "--data", "people.csv", "--target", "buys", "--ignore", "id", "spent")
RUN = str(Path("runs") / "table-people")


class ColumnOverrides(NamedTuple):
    code: int
    out: str
    err: str


Ask = Callable[..., ColumnOverrides]


@pytest.fixture
def ask(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """A command, with what comes through its pipe."""
    from softlook.cli import main  # noqa: PLC0415  (after pytest has switched on the shape checks)

    monkeypatch.chdir(tmp_path)
    people(tmp_path / "people.csv")

    def asked(*words: str | Path, stdin: str | bytes = "") -> ColumnOverrides:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(given))))  # pyright: ignore[reportArgumentType]
        with pytest.raises(SystemExit) as ended:
            main([*map(str, words)])
        assert isinstance(ended.value.code, int)
        return ColumnOverrides(ended.value.code, *capsys.readouterr())

    return asked


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned from a table."""
    return train_table(tabular_config(tmp_path_factory.mktemp("tables"))).run_dir


def test_training_says_what_it_sees_and_what_to_do_next(ask: Ask) -> None:
    code, out, err = ask("--json", *TRAIN, *SHORT)
    assert code == 0, err
    answer = json.loads(out)
    assert answer["path"] == RUN and answer["steps"] == 36
    assert {"accuracy", "auc", "log_loss", "compared"} <= answer["scores"].keys()
    for words in (
        "To be predicted: buys, 2 classes (",
        "240 rows of 3 columns.",
        "recipe ours",
        "age: number, ",
        "city: category, 3 values",
        "192 rows are learned from, 48 are held out",
        "parameters, on cpu in float32",
        "On the 48 held-out rows",
        "LightGBM",
        "logistic regression",
        f"softlook predict {RUN} --data FILE",
    ):
        assert words in err
    again = ask(*TRAIN, *SHORT)
    assert again.code == 0 and f"Resuming {RUN}" in again.err
    assert "36: all epochs are done" in again.err and "Others learn" not in again.err
    changed = ask(*TRAIN, *SHORT, "--optim.lr", "0.7")
    assert changed.code == 1 and "optim.lr: 0.001 then, 0.7 now" in changed.err
    fresh = ask(*TRAIN, *SHORT, "--no-baseline", "--fresh")
    assert fresh.code == 0 and fresh.out.strip() == f"{RUN}-2"
    assert "LightGBM" not in fresh.err


def test_a_dry_run_prints_every_setting_and_does_not_train(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTLOOK_OPTIM__LR", "0.5")
    (tmp_path / "run.toml").write_text('target = "buys"\ndata = "people.csv"\n[size]\ndim = 24\n')
    done = ask("--json", "train", "table", "--config", "run.toml", "--dry-run")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["settings"]["size.dim"], found["settings"]["optim.lr"]) == (24, 0.5)
    assert found["origins"]["optim.lr"] == "environment SOFTLOOK_OPTIM__LR"
    assert found["origins"]["size.heads"] == "recipe ours"
    assert not (tmp_path / "runs").exists()


def test_answers_keep_the_order_of_the_rows(ask: Ask, run: Path) -> None:
    done = ask("predict", run, "--data", "people.csv", "--keep", "id", "--probabilities")
    assert done.code == 0, done.err
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [row["id"] for row in rows] == [str(number) for number in range(240)]
    model = load(run)
    with Path("people.csv").open() as file:
        wanted = list(csv.DictReader(file))
    ages = [float(row["age"]) if row["age"] else None for row in wanted]
    told = {"age": ages, "city": [row["city"] for row in wanted], "grade": [float(row["grade"]) for row in wanted]}
    likely = model.predict_proba(pa.table(told))
    assert [row["buys"] for row in rows] == model.classes_[likely.argmax(1)].tolist()
    assert [float(row["P(yes)"]) for row in rows] == pytest.approx(likely[:, 1].tolist(), abs=1e-6)
    assert "buys is known for 240 rows: accuracy" in done.err


def test_columns_in_another_order_and_more_of_them_change_nothing(ask: Ask, run: Path, tmp_path: Path) -> None:
    with Path("people.csv").open() as file:
        rows = list(csv.reader(file))
    (tmp_path / "other.csv").write_text("".join(",".join([*row[::-1], "x"]) + "\n" for row in rows))
    assert ask("predict", run, "other.csv").out == ask("predict", run, "people.csv").out


def test_answers_are_objects_of_json_where_that_is_asked_for(ask: Ask, run: Path) -> None:
    done = ask("--json", "predict", run, "people.csv", "--probabilities", "--explain")
    first = json.loads(done.out.splitlines()[0])
    assert first["buys"] in ("yes", "no") and sum(first["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert first["attention"].keys() == {"age", "city", "grade"}


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_answers_go_to_a_file_that_is_new(ending: str, ask: Ask, run: Path, tmp_path: Path) -> None:
    out = tmp_path / f"answers.{ending}"
    done = ask("predict", run, "people.csv", "--out", out)
    assert done.code == 0 and done.out.strip() == str(out)
    whole = pq.read_table(out).num_rows if ending == "parquet" else len(out.read_text().splitlines())
    assert whole == 240 + (ending in ("csv", "tsv"))
    again = ask("predict", run, "people.csv", "--out", out)
    assert again.code == 74 and "exists already" in again.err
    assert ask("predict", run, "people.csv", "--out", "answers.doc").code == 65


@pytest.mark.parametrize("words", [("-",), ("--data", "-"), ()], ids=["a hyphen", "data", "nothing"])
def test_a_pipe_is_a_table_too(words: tuple[str, ...], ask: Ask, run: Path) -> None:
    lines = Path("people.csv").read_text().splitlines(keepends=True)
    done = ask("predict", run, *words, stdin="".join(lines[:9]))
    assert done.code == 0, done.err
    assert done.out.splitlines()[0] == "buys" and len(done.out.splitlines()) == 9
    objects = ask("predict", run, *words, stdin='{"age": 30, "city": "Oslo", "grade": 1}\n')
    assert objects.code == 0 and len(objects.out.splitlines()) == 2, objects.err


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_what_comes_packed_through_a_pipe_is_unpacked(packing: str, ask: Ask, run: Path) -> None:
    lines = Path("people.csv").read_text().splitlines(keepends=True)[:9]
    plain = ask("predict", run, stdin="".join(lines))
    for text in ("".join(lines), '{"age": 30, "city": "Oslo", "grade": 1}\n'):
        packed = pa.compress(text.encode(), codec=packing, asbytes=True)
        assert isinstance(packed, bytes)
        done = ask("predict", run, stdin=packed)
        assert done.code == 0, done.err
        assert done.out == plain.out or (text[0] == "{" and len(done.out.splitlines()) == 2)
    assert ask("predict", run, stdin=packed[:-4]).err.startswith("error: stdin: ")


def test_columns_are_kept_as_they_are_spelled(ask: Ask, run: Path, tmp_path: Path) -> None:
    (tmp_path / "german.csv").write_text("id;age;city;grade\n007;30,5;Oslo;1\n8;;Rome;1\n", encoding="utf-8-sig")
    (tmp_path / "english.csv").write_text("id,age,city,grade\n007,30.5,Oslo,1\n8,,Rome,1\n")
    german, english = (ask("predict", run, name, "--keep", "id", "age") for name in ("german.csv", "english.csv"))
    kept, same = (list(csv.reader(io.StringIO(done.out))) for done in (german, english))
    assert [row[:2] for row in kept] == [["id", "age"], ["007", "30,5"], ["8", ""]]
    assert [row[:2] for row in same] == [["id", "age"], ["007", "30.5"], ["8", ""]]
    assert [row[2:] for row in kept] == [row[2:] for row in same]  # and what is read is the same number


def test_a_file_of_many_pieces_keeps_each_row_beside_its_answer(
    ask: Ask, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("softlook.tabular.io.files.BLOCK", 400)
    rows = [f"{number};{20 + number % 60},5;{('Oslo', 'Rome')[number % 2]};1" for number in range(200)]
    (tmp_path / "many.csv").write_text("\n".join(["id;age;city;grade", *rows]) + "\n")
    with_ids, alone = (ask("predict", run, "many.csv", *words) for words in (("--keep", "id", "city"), ()))
    kept = list(csv.reader(io.StringIO(with_ids.out)))[1:]
    assert [row[:2] for row in kept] == [[str(number), ("Oslo", "Rome")[number % 2]] for number in range(200)]
    assert [row[2] for row in kept] == alone.out.splitlines()[1:]


def test_a_run_is_tested_on_other_data(ask: Ask, run: Path) -> None:
    done = ask("--json", "eval", run, "--data", "people.csv")
    assert done.code == 0, done.err
    assert json.loads(done.out)["scores"]["rows"] == 240
    said = ask("eval", run, "--data", "people.csv").out
    assert "AUC  " in said and "log loss  " in said, "as people write it"
    listed = ask("runs", run.parent)
    assert "table  36  " in listed.out and "all epochs are done" in listed.out


def test_what_is_wrong_is_said_in_a_line(ask: Ask, run: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("age,town\n3,Oslo\n")
    bad = ask("predict", run, "bad.csv")
    assert bad.code == 65 and "2 of them are not there: 'city', 'grade'\n" in bad.err
    assert bad.err.count("city") == 1 and "others are there: 'town'" in bad.err
    (tmp_path / "less.csv").write_text("age,grade\n3,1\n")
    less = ask("predict", run, "less.csv").err
    assert "1 of them is not there: 'city'\nhelp: columns go by name. Cells that nobody knows may be empty\n" in less
    (tmp_path / "near.csv").write_text("age,City,grade\n3,Oslo,1\n")
    assert "others are there: 'City'. Did you mean 'City'?" in ask("predict", run, "near.csv").err
    (tmp_path / "head.csv").write_text("age,city,grade\n")
    for words in (("predict", run, "head.csv"), ("train", "table", "head.csv", "--target", "age")):
        assert ask(*words).err == "error: head.csv: there is not one row in it\n"
    (tmp_path / "maybe.csv").write_text("age,city,grade,buys\n3,Oslo,1,maybe\n")
    assert "not one row holds a buys that is known: 'no', 'yes'" in ask("eval", run, "--data", "maybe.csv").err
    close = ask("train", "table", "people.csv", "--target", "bought")
    assert close.code == 65 and "no such column" in close.err
    turned = ask("predict", "people.csv")
    assert turned.code == 65 and "must be a run: softlook predict RUN --data people.csv" in turned.err
    absent = ask("predict", "runs/no", "people.csv")
    assert absent.code == 65 and "`softlook runs` lists" in absent.err
    other = ask("translate", run, "words")
    assert other.code == 65 and f"Try: softlook predict {run} --data FILE" in other.err
    kept = ask("predict", run, "people.csv", "--keep", "ids")
    assert kept.code == 65 and "Did you mean 'id'?" in kept.err


def test_an_unreadable_cell_is_located(ask: Ask, run: Path, tmp_path: Path) -> None:
    text = 'age,city,grade,note\n30,Rome,1,"two\nlines"\nold,Rome,1,\n'
    (tmp_path / "bad.csv").write_text(text)
    said = "column 'age' is to hold numbers; 'old' came\nhelp: mend the cell or empty it; "
    for words in (("predict", run, "bad.csv"), ("eval", run, "--data", "bad.csv")):
        bad = ask(*words)
        assert bad.code == 65 and bad.err.startswith(f"error: bad.csv:4: {said}"), bad.err
        assert "--column-types age=category" in bad.err and bad.out == ""
    piped = ask("predict", run, stdin=text)
    assert piped.code == 65 and piped.err.startswith(f"error: stdin:4: {said}")
    told = ask("check", "bad.csv", "--target", "city", "--column-types", "age=number")
    assert told.code == 65 and told.err.startswith(f"error: bad.csv:4: {said}")


def test_rows_of_a_table_are_not_left_out_as_unreadable(ask: Ask) -> None:
    checked = ask("check", "people.csv", "--target", "buys", "--max-bad-rows", "3")
    assert checked.code == 65 and "--max-bad-rows is for texts" in checked.err
    trained = ask(*TRAIN, "--max-bad-rows", "3")
    assert trained.code == 2 and "--max-bad-rows" in trained.err


def test_a_table_that_is_looked_at_as_texts_is_told_how_it_is_looked_at_as_a_table(ask: Ask) -> None:
    Path("my people.csv").write_text(Path("people.csv").read_text())
    done = ask("check", "my people.csv", "--no-estimate")
    hint = "softlook check 'my people.csv' --target COLUMN"
    assert done.code == 0 and done.out.rstrip().endswith(hint), done.err
    assert hint not in ask("check", "my people.csv", "--no-estimate", "--task", "classify").out
    told = "city,note\n" + "".join(f"{'ab'[n % 2]},these are quite some words of number {n}\n" for n in range(40))
    Path("notes.csv").write_text(told)
    assert "--target" not in ask("check", "notes.csv", "--no-estimate").out


def test_predict_on_a_text_run_names_the_right_command(ask: Ask, tmp_path: Path) -> None:
    run = train_runs(tmp_path, "classify")["classify"]
    done = ask("predict", run, "people.csv")
    assert done.code == 65 and f"Try: softlook classify {run}" in done.err


def test_numbers_are_predicted_as_numbers(ask: Ask) -> None:
    words = ("--target", "spent", "--ignore", "id", "buys", *SHORT, "--no-baseline")
    done = ask("train", "table", "people.csv", *words)
    assert done.code == 0 and "To be predicted: spent, numbers from " in done.err
    told = ask("predict", RUN, "people.csv")
    assert float(told.out.splitlines()[1]) > 0 and "RMSE" in told.err
    odd = ask("predict", RUN, "people.csv", "--probabilities")
    assert odd.code == 65 and "is a regression model, which has no probabilities" in odd.err


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGKILL], ids=["TERM", "KILL"])
def test_a_resumed_run_is_bit_identical(asked: signal.Signals, tmp_path: Path) -> None:
    people(tmp_path / "people.csv", 600)
    often = (*QUICK, "--training.epochs", "60", "--training.patience", "999", "--training.save-every", "0.2")
    words = (*TRAIN, *often, "--training.device", "cpu", "--no-baseline", "--loggers", "none")
    process = subprocess.Popen(
        [sys.executable, "-m", "softlook", *words],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not (tmp_path / RUN / BEST_FILE).exists():
        time.sleep(0.02)
    process.send_signal(asked)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (143 if asked == signal.SIGTERM else -asked), err
    if asked == signal.SIGTERM:
        assert "is saved. The same command resumes from there." in err
    on = softlook(tmp_path, *words)
    assert on.returncode == 0 and "Resuming after step " in on.stderr, on.stderr
    whole = softlook(tmp_path, *words, "--run-dir", "whole")
    assert whole.returncode == 0, whole.stderr
    one, other = (load(tmp_path / name).model_.state_dict() for name in (RUN, "whole"))
    assert all(one[name].equal(other[name]) for name in other)
