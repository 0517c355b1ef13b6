"""`softlook eval`: scores as tables, and files with or without --data."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from softlook.cli.commands.evaluate import format_scores
from softlook.recipes.text.metrics import classification_report


def report(names: list[str], text: str = "a film") -> dict[str, Any]:
    """Two examples of each class, the first of which is predicted as the next class."""
    count = len(names)
    labels = [number for number in range(count) for _ in range(2)]
    predicted = [(label + number % 2 + 1) % count if number % 2 == 0 else label for number, label in enumerate(labels)]
    probabilities = torch.full((len(labels), count), 0.3 / (count - 1))
    probabilities[torch.arange(len(labels)), torch.tensor(predicted)] = 0.7
    return classification_report(probabilities, labels, names, [text] * len(labels))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    """Run a command whose scores are those of three classes; returns its exit code, output and the files."""
    from softlook.cli import main  # noqa: PLC0415  (after pytest has installed the shape checks)

    found: list[tuple[Path, ...]] = []

    def evaluate(run: Path, data: tuple[Path, ...], *, device: str) -> dict[str, Any]:
        found.append(data)
        return report(["bad", "good", "so-so"])

    monkeypatch.setattr("softlook.recipes.text.run.evaluate", evaluate)

    def call(*args: str) -> tuple[Any, str, str, list[tuple[Path, ...]]]:
        with pytest.raises(SystemExit) as exited:
            main(args)
        captured = capsys.readouterr()
        return exited.value.code or 0, captured.out, captured.err, found

    return call


def test_files_may_be_named_with_or_without_the_option(run: Any) -> None:
    for args in (("a.csv", "b.csv"), ("--data", "a.csv", "b.csv"), ("a.csv", "--data", "b.csv")):
        code, _, _, files = run("eval", "runs/one", *args)
        assert code == 0 and files[-1] == (Path("a.csv"), Path("b.csv"))


def test_no_data_is_an_error_that_shows_the_command(run: Any) -> None:
    code, _, err, _ = run("eval", "runs/one")
    assert code == 65 and "no data given. Name a file: softlook eval runs/one test.csv" in err


def test_a_classifier_is_shown_as_tables_and_completely_as_json(run: Any) -> None:
    _, out, _, _ = run("eval", "runs/one", "a.csv")
    lines = out.splitlines()
    assert lines[1] == f"{'accuracy':22} 0.5000"
    assert lines[lines.index("Classes") + 1 :][:2] == [
        "  class  precision  recall     F1  support",
        "  bad        0.500   0.500  0.500        2",
    ]
    matrix = lines.index("Confusion matrix (rows: labels, columns: predictions)")
    assert lines[matrix + 1 : matrix + 3] == ["         bad  good  so-so", "  bad      1     1      0"]
    assert "Calibration" in lines and "Most confidently wrong" in lines
    assert "{" not in out
    assert json.loads(run("--json", "eval", "runs/one", "a.csv")[1])["scores"] == report(["bad", "good", "so-so"])


def test_many_classes_are_cut_and_their_confusions_listed() -> None:
    text = format_scores(report([f"a long class name {number}" for number in range(35)]))
    assert "Confusion matrix" not in text and "Most frequent confusions" in text
    assert "5 smaller classes are listed with --json." in text
    assert "a long clas…" in text and "a long class" not in text


def test_control_characters_and_line_breaks_are_not_printed() -> None:
    text = format_scores(report(["a\x1b[31m", "b"], "two\nlines\x1b[0m"))
    assert "\x1b" not in text and "two lines\\x1b[0m" in text


def test_scores_without_tables_are_lines() -> None:
    assert format_scores({"loss": 2.5, "tokens": 10}) == f"{'loss':22} 2.5000\n{'tokens':22} 10"


def test_lines_fit_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    text = format_scores(report(["bad", "good"], "word " * 50))
    assert max(map(len, text.splitlines())) == 60 and "…" in text
