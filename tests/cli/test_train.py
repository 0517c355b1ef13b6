"""`softlook train` and related commands: from a file to a trained model."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.recipes.small import digits, entities, reviews, sentences

SMALL = ("--model.dim", "16", "--model.depth", "1", "--model.heads", "2")
QUICK = (*SMALL, "--training.max-steps", "3", "--training.device", "cpu")


def softlook(folder: Path, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a new process."""
    return subprocess.run(
        [sys.executable, "-m", "softlook", *args],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **environ},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with data for each task."""
    digits(tmp_path / "digits.tsv", 60)
    sentences(tmp_path / "words.txt", 12)
    reviews(tmp_path / "reviews.csv", 60)
    entities(tmp_path / "people.conll", 60)
    return tmp_path


TASKS = {
    "translate": ("digits.tsv",),
    "lm": ("words.txt",),
    "mlm": ("words.txt", "--next-sentence"),
    "classify": ("reviews.csv", "--text", "review", "--label", "verdict"),
    "tag": ("people.conll",),
    "word2vec": ("words.txt",),
}


@pytest.mark.parametrize("task", TASKS)
def test_every_task_needs_only_a_file(task: str, folder: Path) -> None:
    data, *more = TASKS[task]
    completed = softlook(folder, "--json", "train", task, "--data", data, *more, *QUICK)
    assert completed.returncode == 0, completed.stderr
    result = json.loads(completed.stdout)
    assert result["path"] == str(Path("runs") / f"{task}-{Path(data).stem}")
    assert result["steps"] == 3
    for message in (" validation examples.", "parameters, on cpu in float32", "  auto\n", "Next:"):
        assert message in completed.stderr
    assert "Traceback" not in completed.stderr
    if task != "word2vec":
        evaluated = softlook(folder, "--json", "eval", result["path"], "--data", data)
        assert evaluated.returncode == 0, evaluated.stderr
        assert json.loads(evaluated.stdout)["scores"]


def test_training_reports_the_rows_it_skips_and_its_test_scores(folder: Path) -> None:
    with (folder / "reviews.csv").open("a") as file:
        file.write(",good\n")
    args = ("train", "classify", "reviews.csv", "--test", "reviews.csv", *SMALL, "--steps", "3", "--device", "cpu")
    completed = softlook(folder, *args)
    assert completed.returncode == 0, completed.stderr
    assert "Training data: skipped 1 of 61 rows: 1 without a text\n" in completed.stderr
    assert "\nValidation scores: loss " in completed.stderr
    assert "\nTest scores: examples 60, accuracy " in completed.stderr
    listed = softlook(folder, "runs")
    header, row = listed.stdout.splitlines()
    assert header.split() == ["run", "task", "step", "best", "validation", "state"]
    assert header.index("state") == row.index("max_steps reached")
    assert f"softlook classify {Path('runs/classify-reviews')}" in listed.stderr


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (("check", "reviews.csv", "--no-estimate"), "softlook train classify --data reviews.csv"),
        (("check", "reviews.csv", "--target", "verdict", "--no-estimate"), "--data reviews.csv --target verdict"),
        (("tokenizer", "train", "words.txt"), "softlook train lm --data words.txt --tokenizer.file tokenizer.json"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_a_command_says_what_to_do_next(args: tuple[str, ...], hint: str, folder: Path) -> None:
    completed = softlook(folder, *args)
    assert completed.returncode == 0, completed.stderr
    assert hint in completed.stderr.partition("Next:\n")[2]


def test_the_same_command_resumes_and_a_changed_one_is_rejected(folder: Path) -> None:
    args = ("train", "lm", "words.txt", *QUICK)
    assert softlook(folder, *args).returncode == 0
    again = softlook(folder, *args)
    assert again.returncode == 0
    assert "Resuming runs" in again.stderr.replace(os.sep, "/")
    changed = softlook(folder, *args, "--optim.lr", "0.7")
    assert changed.returncode == 1
    assert "optim.lr: was 0.004, now 0.7" in changed.stderr
    assert "another name with --run-dir, starts a new run" in changed.stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_signal_saves_a_checkpoint_to_resume_from(number: signal.Signals, folder: Path) -> None:
    steps = ("--training.max-steps", "100000", "--training.evaluate-every", "100000", "--training.log-every", "1")
    args = ("train", "lm", "words.txt", *SMALL, *steps)
    process = subprocess.Popen(
        [sys.executable, "-m", "softlook", *args],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = folder / "runs/lm-words/metrics.csv"
    while not metrics.exists() and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else 143), err
    assert "is saved. The same command resumes from there." in err
    assert list((folder / "runs/lm-words/checkpoints").glob("step-*"))
    assert "Traceback" not in err


ERRORS: dict[str, tuple[tuple[str, ...], int, str]] = {
    "an unknown file": (("train", "lm", "word.txt"), 65, "did you mean words.txt"),
    "no data": (("train", "lm"), 65, "--data corpus.txt"),
    "an unknown option": (("train", "lm", "words.txt", "--optim.lrr", "1"), 2, "Did you mean --optim.lr?"),
    "an unknown command": (("trian", "lm", "words.txt"), 2, 'Did you mean "train"?'),
    "a value that is not a number": (("train", "lm", "words.txt", "--optim.lr", "x"), 2, "--optim.lr: input should be"),
    "a value that is too small": (("train", "lm", "words.txt", "--optim.lr", "0"), 2, "greater than 0; got '0'"),
    "an unknown architecture": (("train", "lm", "words.txt", "--arch", "gtp"), 2, "'gpt', 'llama'"),
    "an unknown device": (("train", "lm", "words.txt", "--training.device", "moon"), 65, "device 'moon' is not"),
    "an unknown config file": (("train", "lm", "words.txt", "--config", "run.toml"), 65, "run.toml does not exist"),
    "an unknown column": (("train", "classify", "reviews.csv", "--label", "verdikt"), 65, "verdict"),
    "an unknown run": (("eval", "runs/none", "--data", "words.txt"), 65, "is not a run directory"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_have_their_exit_code_and_a_helpful_message(
    name: str, folder: Path, capsys: Any, monkeypatch: Any
) -> None:
    from softlook.cli import main  # noqa: PLC0415  (after pytest has installed the shape checks)

    args, code, message = ERRORS[name]
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as exited:
        main(args)
    err = capsys.readouterr().err
    assert (exited.value.code, "Traceback" in err) == (code, False), err
    assert message in err
    assert not (folder / "runs").exists()


def test_settings_are_read_from_file_environment_and_flags(folder: Path) -> None:
    (folder / "run.toml").write_text('data = "words.txt"\n[optim]\nlr = 0.5\nbeta1 = 0.5\n', encoding="utf-8")
    environ = {"SOFTLOOK_OPTIM__BETA1": "0.6"}
    args = ("--json", "train", "lm", "--config", "run.toml", "--dry-run", "--optim.grad-clip", "3")
    completed = softlook(folder, *args, **environ)
    assert completed.returncode == 0, completed.stderr
    result = json.loads(completed.stdout)
    assert [result["settings"][f"optim.{name}"] for name in ("lr", "beta1", "grad_clip")] == [0.5, 0.6, 3.0]
    assert result["origins"]["optim.lr"] == "file run.toml"
    assert result["origins"]["optim.beta1"] == "environment SOFTLOOK_OPTIM__BETA1"
    assert result["origins"]["optim.grad_clip"] == "flag"
    assert not (folder / "runs").exists()


def test_quiet_prints_the_path_and_nothing_else(folder: Path) -> None:
    completed = softlook(folder, "-q", "train", "lm", "words.txt", "--no-baseline", *QUICK)
    assert (completed.stdout.strip(), completed.stderr) == (str(Path("runs/lm-words")), "")


def test_control_characters_in_data_are_escaped(folder: Path) -> None:
    (folder / "odd.tsv").write_text(
        "".join(f"red \x1b[31m {n}\tback \x1b[0m {n}\n" for n in range(40)), encoding="utf-8"
    )
    completed = softlook(folder, "train", "translate", "odd.tsv", *QUICK)
    assert completed.returncode == 0, completed.stderr
    assert "\x1b" not in completed.stderr
    assert "\\x1b[31m" in completed.stderr


COMMANDS = (
    (),
    ("train",),
    ("train", "translate"),
    ("train", "lm"),
    ("train", "table"),
    ("predict",),
    ("check",),
    ("eval",),
    ("runs",),
    ("tokenizer", "train"),
)


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_help_does_not_import_torch(args: tuple[str, ...]) -> None:
    code = "\n".join(
        (
            "import sys",
            "from softlook.cli import main",
            f"try: main({[*args, '--help']!r})",
            "except SystemExit as exit: print(exit.code or 0, 'torch' in sys.modules)",
        )
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert completed.stdout.splitlines()[-1] == "0 False"
    assert "Usage: softlook" in completed.stdout


def test_check_reports_on_data(folder: Path) -> None:
    completed = softlook(folder, "--json", "check", "reviews.csv")
    assert completed.returncode == 0, completed.stderr
    report = json.loads(completed.stdout)
    assert (report["task"], report["examples"], set(report["labels"])) == ("classify", 60, {"good", "bad"})
    shown = softlook(folder, "check", "digits.tsv", "--task", "translate")
    assert "60 examples" in shown.stdout


def test_a_tokenizer_is_trained_and_its_tokens_are_printed(folder: Path) -> None:
    trained = softlook(folder, "tokenizer", "train", "words.txt", "--to", "mine.json", "--vocab-size", "300")
    assert (trained.returncode, trained.stdout.strip()) == (0, "mine.json"), trained.stderr
    shown = json.loads(softlook(folder, "--json", "tokenizer", "show", "mine.json", "the cat eats").stdout)
    assert shown["decoded"] == "the cat eats"
    assert len(shown["ids"]) == len(shown["tokens"])
    again = softlook(folder, "tokenizer", "train", "words.txt", "--to", "mine.json")
    assert again.returncode == 74
    assert "overwrites nothing" in again.stderr


def test_runs_info_and_doctor_print_their_reports(folder: Path) -> None:
    assert "There are no runs" in softlook(folder, "runs").stderr
    assert "- **torch**: " in softlook(folder, "info", "--markdown").stdout
    assert "ok   training step: a step on cpu" in softlook(folder, "doctor").stdout


def test_distributed_training_from_the_command_line(folder: Path) -> None:
    completed = softlook(folder, "--json", "train", "lm", "words.txt", *QUICK, "--devices", "2", "--run-dir", "two")
    assert completed.returncode == 0, completed.stderr
    assert json.loads(completed.stdout)["steps"] == 3
    assert completed.stderr.count("Starting two") == 1
    assert softlook(folder, "--json", "eval", "two", "--data", "words.txt").returncode == 0
