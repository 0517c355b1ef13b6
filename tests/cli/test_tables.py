"""`softlook train table`, `softlook predict` and `softlook eval` on tables."""

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

SMALL = ("--model.dim", "16", "--model.depth", "1", "--model.heads", "2", "--model.n-members", "2")
QUICK = (*SMALL, "--optim.batch-size", "32", "--ensemble", "single")
SHORT = (*QUICK, "--training.epochs", "6", "--training.device", "cpu")
TRAIN = ("train", "table", "--data", "people.csv", "--target", "buys", "--ignore", "id", "spent")
RUN = str(Path("runs") / "table-people")


class Completed(NamedTuple):
    """Exit code, stdout and stderr of a command."""

    code: int
    out: str
    err: str


RunCommand = Callable[..., Completed]


@pytest.fixture
def run(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    """Run a command, with the content of its stdin."""
    from softlook.cli import main  # noqa: PLC0415  (after pytest has installed the shape checks)

    monkeypatch.chdir(tmp_path)
    people(tmp_path / "people.csv")

    def call(*args: str | Path, stdin: str | bytes = "") -> Completed:
        content = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))  # pyright: ignore[reportArgumentType]
        with pytest.raises(SystemExit) as exited:
            main([*map(str, args)])
        assert isinstance(exited.value.code, int)
        return Completed(exited.value.code, *capsys.readouterr())

    return call


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of a trained model."""
    return train_table(tabular_config(tmp_path_factory.mktemp("tables"))).run_dir


def test_training_logs_data_settings_and_scores_and_suggests_the_next_command(run: RunCommand) -> None:
    code, out, err = run("--json", *TRAIN, *SHORT)
    assert code == 0, err
    result = json.loads(out)
    assert result["path"] == RUN and result["steps"] == 36
    assert {"accuracy", "auc", "log_loss", "compared"} <= result["scores"].keys()
    for message in (
        "Target: buys, 2 classes (",
        "240 rows, 3 columns.",
        "preset default",
        "age: number, ",
        "city: category, 3 values",
        "192 training rows, 48 validation rows.",
        "parameters, on cpu in float32",
        "Scores on 48 validation rows",
        "LightGBM",
        "logistic regression",
        f"softlook predict {RUN} --data FILE",
    ):
        assert message in err
    again = run(*TRAIN, *SHORT)
    assert again.code == 0 and f"Resuming {RUN}" in again.err
    assert "36: all epochs are done" in again.err and "Training baselines" not in again.err
    changed = run(*TRAIN, *SHORT, "--optim.lr", "0.7")
    assert changed.code == 1 and "optim.lr: was 0.001, now 0.7" in changed.err
    fresh = run(*TRAIN, *SHORT, "--no-baseline", "--fresh")
    assert fresh.code == 0 and fresh.out.strip() == f"{RUN}-2"
    assert "LightGBM" not in fresh.err


def test_a_dry_run_prints_every_setting_and_does_not_train(
    run: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTLOOK_OPTIM__LR", "0.5")
    (tmp_path / "run.toml").write_text('target = "buys"\ndata = "people.csv"\n[model]\ndim = 24\n')
    completed = run("--json", "train", "table", "--config", "run.toml", "--dry-run")
    assert completed.code == 0, completed.err
    result = json.loads(completed.out)
    assert (result["settings"]["model.dim"], result["settings"]["optim.lr"]) == (24, 0.5)
    assert result["origins"]["optim.lr"] == "environment SOFTLOOK_OPTIM__LR"
    assert result["origins"]["model.heads"] == "preset default"
    assert not (tmp_path / "runs").exists()


def test_predictions_keep_the_order_of_the_rows(run: RunCommand, trained: Path) -> None:
    completed = run("predict", trained, "--data", "people.csv", "--keep", "id", "--probabilities")
    assert completed.code == 0, completed.err
    rows = list(csv.DictReader(io.StringIO(completed.out)))
    assert [row["id"] for row in rows] == [str(number) for number in range(240)]
    model = load(trained)
    with Path("people.csv").open() as file:
        inputs = list(csv.DictReader(file))
    ages = [float(row["age"]) if row["age"] else None for row in inputs]
    columns = {"age": ages, "city": [row["city"] for row in inputs], "grade": [float(row["grade"]) for row in inputs]}
    probabilities = model.predict_proba(pa.table(columns))
    assert [row["buys"] for row in rows] == model.classes_[probabilities.argmax(1)].tolist()
    assert [float(row["P(yes)"]) for row in rows] == pytest.approx(probabilities[:, 1].tolist(), abs=1e-6)
    assert "buys is known for 240 rows: accuracy" in completed.err


def test_additional_columns_and_another_order_change_nothing(run: RunCommand, trained: Path, tmp_path: Path) -> None:
    with Path("people.csv").open() as file:
        rows = list(csv.reader(file))
    (tmp_path / "other.csv").write_text("".join(",".join([*row[::-1], "x"]) + "\n" for row in rows))
    assert run("predict", trained, "other.csv").out == run("predict", trained, "people.csv").out


def test_with_json_predictions_are_objects(run: RunCommand, trained: Path) -> None:
    completed = run("--json", "predict", trained, "people.csv", "--probabilities", "--explain")
    first = json.loads(completed.out.splitlines()[0])
    assert first["buys"] in ("yes", "no") and sum(first["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert first["attention"].keys() == {"age", "city", "grade"}


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_predictions_are_written_to_a_new_file(suffix: str, run: RunCommand, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / f"predictions.{suffix}"
    completed = run("predict", trained, "people.csv", "--out", out)
    assert completed.code == 0 and completed.out.strip() == str(out)
    count = pq.read_table(out).num_rows if suffix == "parquet" else len(out.read_text().splitlines())
    assert count == 240 + (suffix in ("csv", "tsv"))
    again = run("predict", trained, "people.csv", "--out", out)
    assert again.code == 74 and "already exists" in again.err
    assert run("predict", trained, "people.csv", "--out", "predictions.doc").code == 65


@pytest.mark.parametrize("args", [("-",), ("--data", "-"), ()], ids=["a hyphen", "data", "nothing"])
def test_a_table_can_be_read_from_stdin(args: tuple[str, ...], run: RunCommand, trained: Path) -> None:
    lines = Path("people.csv").read_text().splitlines(keepends=True)
    completed = run("predict", trained, *args, stdin="".join(lines[:9]))
    assert completed.code == 0, completed.err
    assert completed.out.splitlines()[0] == "buys" and len(completed.out.splitlines()) == 9
    objects = run("predict", trained, *args, stdin='{"age": 30, "city": "Oslo", "grade": 1}\n')
    assert objects.code == 0 and len(objects.out.splitlines()) == 2, objects.err


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_compressed_table_can_be_read_from_stdin(codec: str, run: RunCommand, trained: Path) -> None:
    lines = Path("people.csv").read_text().splitlines(keepends=True)[:9]
    uncompressed = run("predict", trained, stdin="".join(lines))
    for text in ("".join(lines), '{"age": 30, "city": "Oslo", "grade": 1}\n'):
        compressed = pa.compress(text.encode(), codec=codec, asbytes=True)
        assert isinstance(compressed, bytes)
        completed = run("predict", trained, stdin=compressed)
        assert completed.code == 0, completed.err
        assert completed.out == uncompressed.out or (text[0] == "{" and len(completed.out.splitlines()) == 2)
    assert run("predict", trained, stdin=compressed[:-4]).err.startswith("error: stdin: ")


def test_kept_columns_keep_their_spelling(run: RunCommand, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "german.csv").write_text("id;age;city;grade\n007;30,5;Oslo;1\n8;;Rome;1\n", encoding="utf-8-sig")
    (tmp_path / "english.csv").write_text("id,age,city,grade\n007,30.5,Oslo,1\n8,,Rome,1\n")
    german, english = (run("predict", trained, name, "--keep", "id", "age") for name in ("german.csv", "english.csv"))
    german_rows, english_rows = (list(csv.reader(io.StringIO(completed.out))) for completed in (german, english))
    assert [row[:2] for row in german_rows] == [["id", "age"], ["007", "30,5"], ["8", ""]]
    assert [row[:2] for row in english_rows] == [["id", "age"], ["007", "30.5"], ["8", ""]]
    assert [row[2:] for row in german_rows] == [row[2:] for row in english_rows]  # the numbers are equal


def test_kept_columns_of_a_file_of_many_chunks_stay_with_their_predictions(
    run: RunCommand, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("softlook.tabular.io.files.CHUNK_BYTES", 400)
    rows = [f"{number};{20 + number % 60},5;{('Oslo', 'Rome')[number % 2]};1" for number in range(200)]
    (tmp_path / "many.csv").write_text("\n".join(["id;age;city;grade", *rows]) + "\n")
    with_ids, without = (run("predict", trained, "many.csv", *args) for args in (("--keep", "id", "city"), ()))
    kept = list(csv.reader(io.StringIO(with_ids.out)))[1:]
    assert [row[:2] for row in kept] == [[str(number), ("Oslo", "Rome")[number % 2]] for number in range(200)]
    assert [row[2] for row in kept] == without.out.splitlines()[1:]


def test_a_run_is_evaluated_on_other_data(run: RunCommand, trained: Path) -> None:
    completed = run("--json", "eval", trained, "--data", "people.csv")
    assert completed.code == 0, completed.err
    assert json.loads(completed.out)["scores"]["rows"] == 240
    scores = run("eval", trained, "--data", "people.csv").out
    assert "AUC  " in scores and "log loss  " in scores
    listed = run("runs", trained.parent)
    assert "table  36  " in listed.out and "all epochs are done" in listed.out


def test_errors_name_the_columns_files_and_commands(run: RunCommand, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("age,town\n3,Oslo\n")
    bad = run("predict", trained, "bad.csv")
    assert bad.code == 65 and "2 of them are missing: 'city', 'grade'\n" in bad.err
    assert bad.err.count("city") == 1 and "found instead: 'town'" in bad.err
    (tmp_path / "less.csv").write_text("age,grade\n3,1\n")
    less = run("predict", trained, "less.csv").err
    assert "1 of them is missing: 'city'\nhelp: columns match by name. Unknown cells may be empty\n" in less
    (tmp_path / "near.csv").write_text("age,City,grade\n3,Oslo,1\n")
    assert "found instead: 'City'. Did you mean 'City'?" in run("predict", trained, "near.csv").err
    (tmp_path / "head.csv").write_text("age,city,grade\n")
    for args in (("predict", trained, "head.csv"), ("train", "table", "head.csv", "--target", "age")):
        assert run(*args).err == "error: head.csv: the table has no rows\n"
    (tmp_path / "maybe.csv").write_text("age,city,grade,buys\n3,Oslo,1,maybe\n")
    unknown = run("eval", trained, "--data", "maybe.csv")
    assert "no row has a known class in buys: expected 'no', 'yes'" in unknown.err
    close = run("train", "table", "people.csv", "--target", "bought")
    assert close.code == 65 and "there is no column 'bought'" in close.err
    swapped = run("predict", "people.csv")
    assert swapped.code == 65 and "must be a run: softlook predict RUN --data people.csv" in swapped.err
    absent = run("predict", "runs/no", "people.csv")
    assert absent.code == 65 and "`softlook runs` lists" in absent.err
    other = run("translate", trained, "words")
    assert other.code == 65 and f"Try: softlook predict {trained} --data FILE" in other.err
    kept = run("predict", trained, "people.csv", "--keep", "ids")
    assert kept.code == 65 and "Did you mean 'id'?" in kept.err


def test_an_unreadable_cell_is_located(run: RunCommand, trained: Path, tmp_path: Path) -> None:
    text = 'age,city,grade,note\n30,Rome,1,"two\nlines"\nold,Rome,1,\n'
    (tmp_path / "bad.csv").write_text(text)
    message = "column 'age': expected numbers, got 'old'\nhelp: correct or empty the cell; "
    for args in (("predict", trained, "bad.csv"), ("eval", trained, "--data", "bad.csv")):
        bad = run(*args)
        assert bad.code == 65 and bad.err.startswith(f"error: bad.csv:4: {message}"), bad.err
        assert "--column-types age=category" in bad.err and bad.out == ""
    piped = run("predict", trained, stdin=text)
    assert piped.code == 65 and piped.err.startswith(f"error: stdin:4: {message}")
    checked = run("check", "bad.csv", "--target", "city", "--column-types", "age=number")
    assert checked.code == 65 and checked.err.startswith(f"error: bad.csv:4: {message}")


def test_max_bad_rows_is_rejected_for_tables(run: RunCommand) -> None:
    checked = run("check", "people.csv", "--target", "buys", "--max-bad-rows", "3")
    assert checked.code == 65 and "--max-bad-rows is for texts" in checked.err
    trained = run(*TRAIN, "--max-bad-rows", "3")
    assert trained.code == 2 and "--max-bad-rows" in trained.err


def test_checking_a_table_as_texts_suggests_the_command_for_tables(run: RunCommand) -> None:
    Path("my people.csv").write_text(Path("people.csv").read_text())
    completed = run("check", "my people.csv", "--no-estimate")
    hint = "softlook check 'my people.csv' --target COLUMN"
    assert completed.code == 0 and completed.out.rstrip().endswith(hint), completed.err
    assert hint not in run("check", "my people.csv", "--no-estimate", "--task", "classify").out
    rows = (f"{'ab'[n % 2]},these are quite some words of number {n}\n" for n in range(40))
    Path("notes.csv").write_text("city,note\n" + "".join(rows))
    assert "--target" not in run("check", "notes.csv", "--no-estimate").out


def test_predict_on_a_text_run_names_the_right_command(run: RunCommand, tmp_path: Path) -> None:
    text_run = train_runs(tmp_path, "classify")["classify"]
    completed = run("predict", text_run, "people.csv")
    assert completed.code == 65 and f"Try: softlook classify {text_run}" in completed.err


def test_regression_predicts_numbers_and_no_probabilities(run: RunCommand) -> None:
    args = ("--target", "spent", "--ignore", "id", "buys", *SHORT, "--no-baseline")
    completed = run("train", "table", "people.csv", *args)
    assert completed.code == 0 and "Target: spent, numbers from " in completed.err
    predicted = run("predict", RUN, "people.csv")
    assert float(predicted.out.splitlines()[1]) > 0 and "RMSE" in predicted.err
    rejected = run("predict", RUN, "people.csv", "--probabilities")
    assert rejected.code == 65 and "is a regression model, which has no probabilities" in rejected.err


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["TERM", "KILL"])
def test_a_resumed_run_is_bit_identical(number: signal.Signals, tmp_path: Path) -> None:
    people(tmp_path / "people.csv", 600)
    options = (*QUICK, "--training.epochs", "60", "--training.patience", "999", "--training.save-every", "0.2")
    args = (*TRAIN, *options, "--training.device", "cpu", "--no-baseline", "--loggers", "none")
    process = subprocess.Popen(
        [sys.executable, "-m", "softlook", *args],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not (tmp_path / RUN / BEST_FILE).exists():
        time.sleep(0.02)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (143 if number == signal.SIGTERM else -number), err
    if number == signal.SIGTERM:
        assert "is saved. The same command resumes from there." in err
    resumed = softlook(tmp_path, *args)
    assert resumed.returncode == 0 and "Resuming after step " in resumed.stderr, resumed.stderr
    whole = softlook(tmp_path, *args, "--run-dir", "whole")
    assert whole.returncode == 0, whole.stderr
    one, other = (load(tmp_path / name).model_.state_dict() for name in (RUN, "whole"))
    assert all(one[name].equal(other[name]) for name in other)
