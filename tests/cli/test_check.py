"""`softlook check` reports on data and estimates the cost of training on them."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.recipes.small import digits, people, reviews, sentences

RunCommand = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def softlook(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    """Run a command: its exit code, its result as JSON, and stderr."""
    from softlook.cli import main  # noqa: PLC0415  (after pytest has installed the shape checks)

    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> tuple[int, dict[str, Any], str]:
        with pytest.raises(SystemExit) as exited:
            main(["--json", *args])
        out, err = capsys.readouterr()
        assert isinstance(exited.value.code, int)
        return exited.value.code, json.loads(out), err

    return run


def write_data(folder: Path) -> None:
    digits(folder / "digits.tsv", 100)
    sentences(folder / "words.txt", 20)
    reviews(folder / "reviews.csv", 100)
    (folder / "a.en").write_text("".join(f"number {n}\n" for n in range(80)), encoding="utf-8")
    (folder / "a.de").write_text("".join(f"Zahl {n}\n" for n in range(80)), encoding="utf-8")
    rows = [json.dumps({"text": f"film {n}", "label": "good" if n % 2 else "bad"}) for n in range(80)]
    (folder / "films.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (folder / "books").mkdir()
    for name in ("one", "two"):
        sentences(folder / "books" / f"{name}.txt", 10)


LAYOUTS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "a table of pairs": (("digits.tsv",), "translate", "--data digits.tsv"),
    "two files of pairs": (("a.en", "a.de"), "translate", "--data a.en a.de"),
    "text": (("words.txt",), "lm", "--data words.txt"),
    "a folder of text": (("books",), "lm", "--data books"),
    "a table of labels": (("reviews.csv",), "classify", "--data reviews.csv"),
    "rows of JSON": (("films.jsonl",), "classify", "--data films.jsonl"),
    "text for a masked LM": (("words.txt", "--task", "mlm"), "mlm", "--data words.txt"),
    "text for word vectors": (("words.txt", "--task", "word2vec"), "word2vec", "--data words.txt"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_estimate_is_given_for_each_layout_of_data(
    layout: str, softlook: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("softlook.recipes.profiling.step_benchmark.MAX_STEPS", 4)
    write_data(tmp_path)
    args, task, data = LAYOUTS[layout]
    code, result, err = softlook("check", *args)
    assert (code, result["task"]) == (0, task), err
    estimate = result["estimate"]
    assert estimate["command"] == f"softlook train {task} {data}"
    assert estimate["steps"] >= 20
    assert 0 < estimate["seconds"] <= 300  # by default, a run on a CPU takes at most five minutes
    assert estimate["model"]["parameters"] * 4 == pytest.approx(estimate["memory"]["gradients"], rel=0.01)
    assert all(estimate["memory"][name] > 0 for name in ("weights", "optimizer", "activations", "data"))
    assert not (tmp_path / "runs").exists()


def test_check_and_dry_run_agree(softlook: RunCommand, tmp_path: Path) -> None:
    write_data(tmp_path)
    estimate = softlook("check", "digits.tsv")[1]["estimate"]
    dry_run = softlook("train", "translate", "digits.tsv", "--dry-run")[1]
    settings = dry_run["settings"]
    assert estimate["model"].items() >= {name: settings[f"model.{name}"] for name in ("dim", "depth", "heads")}.items()
    assert estimate["batch_tokens"] == settings["batch.max_tokens"]
    for name in ("weights", "gradients", "optimizer", "activations"):
        assert estimate["memory"][name] == dry_run["memory"][name]
    assert estimate["memory"]["data"] == pytest.approx(dry_run["memory"]["data"], rel=0.1)


PEOPLE = ("people.csv", "--target", "buys", "--ignore", "id", "spent")


def test_check_and_dry_run_of_a_table_agree(
    softlook: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("softlook.recipes.profiling.step_benchmark.MAX_STEPS", 4)
    people(tmp_path / "people.csv")
    code, result, err = softlook("check", *PEOPLE)
    assert (code, result["task"], result["rows"]) == (0, "table", 240), err
    estimate = result["estimate"]
    assert estimate["command"] == "softlook train table --data people.csv --target buys --ignore id spent"
    dry_run = softlook("train", "table", *PEOPLE, "--dry-run")[1]
    for name in ("columns", "rows", "validation_rows", "size", "batch_size", "steps"):
        assert estimate[name] == dry_run[name]
    for name in ("weights", "gradients", "optimizer", "activations", "data"):
        assert estimate["memory"][name] == dry_run["memory"][name] > 0
    assert 0 < dry_run["seconds_per_step"] < dry_run["seconds"]
    settings = dry_run["settings"]
    assert estimate["size"].items() >= {name: settings[f"model.{name}"] for name in ("dim", "depth", "heads")}.items()
    assert not (tmp_path / "runs").exists()


def test_the_report_of_a_table_is_text_without_json(softlook: RunCommand, tmp_path: Path, capsys: Any) -> None:
    from softlook.cli import main  # noqa: PLC0415

    people(tmp_path / "people.csv")
    with pytest.raises(SystemExit):
        main(["check", *PEOPLE])
    out = capsys.readouterr().out
    for line in (
        "240 rows, 0 without a target",
        "  city: category, 3 values",
        "  time     at most",
        "  memory   about",
    ):
        assert line in out
    assert out.endswith("  command  softlook train table --data people.csv --target buys --ignore id spent\n")
    assert softlook("check", *PEOPLE, "--no-estimate")[1]["estimate"] is None


def test_table_options_are_rejected_for_texts(softlook: RunCommand, tmp_path: Path) -> None:
    people(tmp_path / "people.csv")
    code, result, _ = softlook("check", *PEOPLE, "--task", "lm")
    assert code == 65 and "--target is for tables, not for --task lm" in result["error"]["message"]
    code, result, _ = softlook("check", "people.csv", "--task", "table")
    assert code == 65 and "Set --target to one of id, age, city" in result["error"]["message"]
    assert "--target COLUMN checks it as a table" in softlook("check", "people.csv", "--no-estimate")[2]


def test_the_estimate_for_large_data_uses_a_sample(
    softlook: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digits(tmp_path / "more.tsv", 2000)
    whole = softlook("check", "more.tsv")[1]["estimate"]
    monkeypatch.setattr("softlook.cli.commands.check.SAMPLE_CHARS", 6000)
    sampled = softlook("check", "more.tsv")[1]["estimate"]
    assert sampled["model"] == whole["model"]
    assert whole["memory"]["data"] / 2 < sampled["memory"]["data"] < 2 * whole["memory"]["data"]


def test_the_report_is_text_without_json_and_the_estimate_can_be_skipped(
    softlook: RunCommand, tmp_path: Path, capsys: Any
) -> None:
    from softlook.cli import main  # noqa: PLC0415

    write_data(tmp_path)
    with pytest.raises(SystemExit):
        main(["check", "words.txt"])
    out = capsys.readouterr().out
    for line in ("  size     2 blocks, 64 dimensions", "  time     about", "  memory   about", "activations "):
        assert line in out
    assert out.endswith("  command  softlook train lm --data words.txt\n")
    assert softlook("check", "words.txt", "--no-estimate")[1]["estimate"] is None


def test_the_suggested_command_skips_the_same_bad_rows(softlook: RunCommand, tmp_path: Path) -> None:
    write_data(tmp_path)
    with (tmp_path / "reviews.csv").open("a", encoding="utf-8") as file:
        file.write("one,two,three,four\n")
    _, result, err = softlook("check", "reviews.csv")
    assert result["bad_rows"] == 1, err
    assert result["estimate"]["command"].endswith("--data reviews.csv --max-bad-rows 1")


def test_data_that_cannot_be_trained_on_still_have_a_report(softlook: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("text,label\n" + "".join(f"film {n},good\n" for n in range(50)), encoding="utf-8")
    code, result, err = softlook("check", "one.csv", "--task", "classify")
    assert (code, result["examples"], result["estimate"]) == (0, 50, None)
    assert "The cost of training cannot be estimated: all examples have the label 'good'" in err


MALFORMED: dict[str, tuple[str, bytes, str]] = {
    "a row too wide": ("a.csv", b"text,label\ngood,1\nbad,0,2,3\n", "a.csv:3"),
    "no text": ("a.txt", b"\n\n", "a.txt: there are no examples in this file"),
    "broken JSON": ("a.jsonl", b'{"text": "a", "label": "1"}\n{"text": \n', "a.jsonl:2"),
    "bytes that are not text": ("a.txt", b"good\n\xff\xfe\xfa\n\x00\x01", "a.txt"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_data_give_an_error_with_its_location(name: str, softlook: RunCommand, tmp_path: Path) -> None:
    file, content, message = MALFORMED[name]
    (tmp_path / file).write_bytes(content)
    code, result, err = softlook("check", file, "--max-bad-rows", "0")
    assert code == 65, (result, err)
    assert message in result["error"]["message"]
    assert "Traceback" not in err


def test_torch_is_imported_only_for_the_estimate(tmp_path: Path) -> None:
    write_data(tmp_path)
    code = "\n".join(
        (
            "import sys",
            "from softlook.cli import main",
            "try: main(['check', 'words.txt', '--no-estimate'])",
            "except SystemExit as exit: print(exit.code, 'torch' in sys.modules)",
        )
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert done.stdout.splitlines()[-1] == "0 False"
