"""`softlook check` says what data are like, and what training on them would take."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.recipes.small import digits, people, reviews, sentences

Answer = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def softlook(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """A command, its code, its answer as JSON, and what was said beside it."""
    from softlook.cli import main  # noqa: PLC0415  (after pytest has switched on the shape checks)

    monkeypatch.chdir(tmp_path)

    def called(*words: str) -> tuple[int, dict[str, Any], str]:
        with pytest.raises(SystemExit) as ended:
            main(["--json", *words])
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, json.loads(out), err

    return called


def table(folder: Path) -> None:
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
    layout: str, softlook: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("softlook.recipes.profiling.step_benchmark.MAX_STEPS", 4)
    table(tmp_path)
    words, task, data = LAYOUTS[layout]
    code, answer, err = softlook("check", *words)
    assert (code, answer["task"]) == (0, task), err
    found = answer["estimate"]
    assert found["command"] == f"softlook train {task} {data}"
    assert found["steps"] >= 20
    assert 0 < found["seconds"] <= 300  # a run on a CPU is kept to five minutes
    assert found["size"]["weights"] * 4 == pytest.approx(found["memory"]["gradients"], rel=0.01)
    assert all(found["memory"][name] > 0 for name in ("weights", "optimizer", "activations", "data"))
    assert not (tmp_path / "runs").exists()


def test_check_and_dry_run_agree(softlook: Answer, tmp_path: Path) -> None:
    table(tmp_path)
    checked = softlook("check", "digits.tsv")[1]["estimate"]
    rehearsed = softlook("train", "translate", "digits.tsv", "--dry-run")[1]
    settings = rehearsed["settings"]
    assert checked["size"].items() >= {name: settings[f"size.{name}"] for name in ("dim", "depth", "heads")}.items()
    assert checked["batch"] == settings["batch.tokens"]
    for name in ("weights", "gradients", "optimizer", "activations"):
        assert checked["memory"][name] == rehearsed["memory"][name]
    assert checked["memory"]["data"] == pytest.approx(rehearsed["memory"]["data"], rel=0.1)


PEOPLE = ("people.csv", "--target", "buys", "--ignore", "id", "spent")


def test_check_and_dry_run_of_a_table_agree(softlook: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.recipes.profiling.step_benchmark.MAX_STEPS", 4)
    people(tmp_path / "people.csv")
    code, checked, err = softlook("check", *PEOPLE)
    assert (code, checked["task"], checked["rows"]) == (0, "table", 240), err
    found = checked["estimate"]
    assert found["command"] == "softlook train table --data people.csv --target buys --ignore id spent"
    rehearsed = softlook("train", "table", *PEOPLE, "--dry-run")[1]
    for name in ("columns", "rows", "held_out", "size", "batch", "steps"):
        assert found[name] == rehearsed[name]
    for name in ("weights", "gradients", "optimizer", "activations", "data"):
        assert found["memory"][name] == rehearsed["memory"][name] > 0
    assert 0 < rehearsed["seconds_per_step"] < rehearsed["seconds"]
    settings = rehearsed["settings"]
    assert found["size"].items() >= {name: settings[f"size.{name}"] for name in ("dim", "depth", "heads")}.items()
    assert not (tmp_path / "runs").exists()


def test_people_read_of_a_table_in_lines(softlook: Answer, tmp_path: Path, capsys: Any) -> None:
    from softlook.cli import main  # noqa: PLC0415

    people(tmp_path / "people.csv")
    with pytest.raises(SystemExit):
        main(["check", *PEOPLE])
    out = capsys.readouterr().out
    for words in ("240 rows, 0 without a target", "  city: category, 3 values", "  time    about", "  memory  about"):
        assert words in out
    assert out.endswith("  type    softlook train table --data people.csv --target buys --ignore id spent\n")
    assert softlook("check", *PEOPLE, "--no-estimate")[1]["estimate"] is None


def test_what_is_told_of_a_table_is_for_tables_alone(softlook: Answer, tmp_path: Path) -> None:
    people(tmp_path / "people.csv")
    code, answer, _ = softlook("check", *PEOPLE, "--task", "lm")
    assert code == 65 and "--target is for tables, not for --task lm" in answer["error"]["message"]
    code, answer, _ = softlook("check", "people.csv", "--task", "table")
    assert code == 65 and "--target names it. There are id, age, city" in answer["error"]["message"]
    assert "--target COLUMN looks at it as a table" in softlook("check", "people.csv", "--no-estimate")[2]


def test_of_large_data_a_sample_is_tried(softlook: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits(tmp_path / "more.tsv", 2000)
    whole = softlook("check", "more.tsv")[1]["estimate"]
    monkeypatch.setattr("softlook.cli.commands.check.SAMPLE_CHARS", 6000)
    some = softlook("check", "more.tsv")[1]["estimate"]
    assert some["size"] == whole["size"]
    assert whole["memory"]["data"] / 2 < some["memory"]["data"] < 2 * whole["memory"]["data"]


def test_people_read_it_in_lines_and_may_leave_it_out(softlook: Answer, tmp_path: Path, capsys: Any) -> None:
    from softlook.cli import main  # noqa: PLC0415

    table(tmp_path)
    with pytest.raises(SystemExit):
        main(["check", "words.txt"])
    out = capsys.readouterr().out
    for words in ("  size    2 blocks, 64 wide", "  time    about", "  memory  about", "activations of a batch"):
        assert words in out
    assert out.endswith("  type    softlook train lm --data words.txt\n")
    assert softlook("check", "words.txt", "--no-estimate")[1]["estimate"] is None


def test_rows_that_were_left_out_are_left_out_by_the_command_too(softlook: Answer, tmp_path: Path) -> None:
    table(tmp_path)
    with (tmp_path / "reviews.csv").open("a", encoding="utf-8") as file:
        file.write("one,two,three,four\n")
    _, answer, err = softlook("check", "reviews.csv")
    assert answer["bad"] == 1, err
    assert answer["estimate"]["command"].endswith("--data reviews.csv --max-bad-rows 1")


def test_data_that_cannot_be_trained_on_are_counted_all_the_same(softlook: Answer, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("text,label\n" + "".join(f"film {n},good\n" for n in range(50)), encoding="utf-8")
    code, answer, err = softlook("check", "one.csv", "--task", "classify")
    assert (code, answer["examples"], answer["estimate"]) == (0, 50, None)
    assert "The cost of training cannot be estimated: all examples are of one class" in err


MALFORMED: dict[str, tuple[str, bytes, str]] = {
    "a row too wide": ("a.csv", b"text,label\ngood,1\nbad,0,2,3\n", "a.csv:3"),
    "no text": ("a.txt", b"\n\n", "there is nothing to learn from"),
    "broken JSON": ("a.jsonl", b'{"text": "a", "label": "1"}\n{"text": \n', "a.jsonl:2"),
    "bytes that are no text": ("a.txt", b"good\n\xff\xfe\xfa\n\x00\x01", "a.txt"),
}


@pytest.mark.parametrize("fault", MALFORMED)
def test_malformed_data_give_an_error_with_its_place(fault: str, softlook: Answer, tmp_path: Path) -> None:
    name, content, place = MALFORMED[fault]
    (tmp_path / name).write_bytes(content)
    code, answer, err = softlook("check", name, "--max-bad-rows", "0")
    assert code == 65, (answer, err)
    assert place in answer["error"]["message"]
    assert "Traceback" not in err


def test_torch_is_loaded_only_for_the_estimate(tmp_path: Path) -> None:
    table(tmp_path)
    code = "\n".join(
        (
            "import sys",
            "from softlook.cli import main",
            "try: main(['check', 'words.txt', '--no-estimate'])",
            "except SystemExit as end: print(end.code, 'torch' in sys.modules)",
        )
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert done.stdout.splitlines()[-1] == "0 False"
