"""Incomplete and mistaken command lines get a short answer that says what to type."""

from pathlib import Path
from typing import Any

import pytest

from softlook.cli.main import main
from tests.recipes.small import reviews, sentences

ANSWERS: dict[str, tuple[tuple[str, ...], int, str]] = {
    "nothing": ((), 0, "softlook --help lists all commands"),
    "help": (("help",), 0, "Usage: softlook COMMAND"),
    "help of a task": (("help", "train", "lm"), 0, "Usage: softlook train lm"),
    "no task": (("train",), 0, "softlook train needs a task"),
    "a table and no task": (("train", "reviews.csv"), 2, "softlook train classify --data reviews.csv"),
    "a table as an option and no task": (("train", "--data", "reviews.csv"), 2, "--data reviews.csv --target COLUMN"),
    "a text and no task": (("train", "words.txt"), 2, "softlook train lm --data words.txt"),
    "an unknown file and no task": (("train", "word.txt"), 2, "word.txt does not exist, and the task is missing"),
    "a file and no command": (("words.txt",), 2, "`softlook check words.txt`"),
    "another word for a command": (("evaluate", "runs/a"), 2, 'Did you mean "eval"?'),
    "another word for a task": (("train", "tabular"), 2, 'Did you mean "table"?'),
    "a misspelled task": (("train", "clasify"), 2, 'Did you mean "classify"?'),
    "a misspelled common option": (("--jsn", "train"), 2, "Did you mean --json?"),
    "a model as an option": (("generate", "--model", "runs/a", "Once"), 2, "softlook generate MODEL ..."),
    "no model": (("generate",), 2, "softlook generate expects MODEL. `softlook runs` lists your runs."),
    "no value": (("train", "lm", "--lr"), 2, "--lr expects a value"),
    "too many arguments": (("runs", "a", "b"), 2, "unexpected argument: b"),
    "a group of fields": (("train", "lm", "words.txt", "--optim", "3"), 2, "Name a field: --optim.NAME"),
}
OPTIONS = {
    "train lm words.txt": {
        "--learning-rate": "--lr?",
        "--learning_rate": "--lr?",
        "--output-dir": "--run-dir?",
        "--output": "--run-dir?",
        "--model": "--init-from?",
        "--train-file": "--data?",
        "--gpu": "--device cuda?",
        "--cuda": "--device cuda?",
        "--max-tokens": "--batch-tokens 4096",
        "--batch-size": "Batches are counted in tokens, padding included: --batch-tokens 4096",
        "--temperature": "an option of `softlook generate`",
        "--resume": "The same command resumes",
        "--patience": "--training.patience?",
        "--num-layers": "--model.depth?",
    },
    "train table reviews.csv": {"--label": "--target?", "--num-epochs": "--epochs?"},
    "train classify reviews.csv": {"--target": "--label?"},
    "generate runs/a": {"--max-tokens": "--max-new-tokens?", "--gpu": "--device cuda?", "--input": "--file?"},
    "translate runs/a": {"--beam-size": "--num-beams?"},
    "embed runs/a": {"--output": "--to?"},
    "predict runs/a": {"--input": "--data?", "--model": "The model is the first argument"},
}
OPTION_CASES = [(command, option) for command, options in OPTIONS.items() for option in options]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.chdir(tmp_path)
    sentences(tmp_path / "words.txt", 12)
    reviews(tmp_path / "reviews.csv", 60)
    return tmp_path


@pytest.mark.parametrize("name", ANSWERS)
def test_an_incomplete_command_gets_a_short_answer(name: str, folder: Path, capsys: Any) -> None:
    args, code, message = ANSWERS[name]
    with pytest.raises(SystemExit) as exited:
        main(args)
    captured = capsys.readouterr()
    assert exited.value.code == code
    assert message in (captured.err if code else captured.out)
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(("command", "option"), OPTION_CASES, ids=" ".join)
def test_an_option_of_another_program_gets_the_one_it_means(
    command: str, option: str, folder: Path, capsys: Any
) -> None:
    with pytest.raises(SystemExit) as exited:
        main([*command.split(), option, "1"])
    err = capsys.readouterr().err
    assert exited.value.code == 2
    assert err.startswith(f"error: unknown option {option}. ")
    assert OPTIONS[command][option] in err
