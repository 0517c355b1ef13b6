"""`softlook tag` prints the entities of texts, as lines or as JSON."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import RunCommand
from tests.recipes.trained_runs import train_runs

TEXTS = "Mira Kalu lives in Velu.", "On 3 May 2021, it rained in Velu."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_runs(tmp_path_factory.mktemp("tag"), "tag")["tag"]


@pytest.fixture
def run(command: RunCommand) -> Callable[..., str]:
    """Run a command that succeeds, and return its stdout."""

    def call(*args: str | Path, stdin: str = "") -> str:
        completed = command(*args, stdin=stdin)
        assert completed.code == 0
        return completed.out

    return call


def test_entities_are_lines_of_text_label_probability_and_offsets(run: Callable[..., str], model: Path) -> None:
    objects = [json.loads(line) for line in run("--json", "tag", model, *TEXTS).splitlines()]
    assert [one["text"] for one in objects] == list(TEXTS)
    first, second = run("tag", model, TEXTS[0]), run("tag", model, TEXTS[1])
    assert run("tag", model, *TEXTS) == f"{first}\n{second}", "a blank line separates texts"
    cells = [line.split("\t") for line in (first + second).splitlines()]
    entities = [(one["text"], entity) for one in objects for entity in one["entities"]]
    assert [row[:2] for row in cells] == [[entity["text"], entity["label"]] for _, entity in entities]
    for (text, entity), (*_, start, end) in zip(entities, cells, strict=True):
        assert text[int(start) : int(end)] == entity["text"] == text[entity["start"] : entity["end"]]


def test_each_line_of_stdin_or_a_file_is_tagged(run: Callable[..., str], model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text(f"{TEXTS[0]}\n\n{TEXTS[1]}\n")
    piped = run("--json", "tag", model, stdin=(tmp_path / "texts.txt").read_text())
    objects = [json.loads(line) for line in piped.splitlines()]
    assert len(objects) == 3 and objects[1] == {"text": "", "entities": []}
    assert run("--json", "tag", model, "--file", "texts.txt") == piped


def test_a_column_of_a_table_is_tagged(run: Callable[..., str], model: Path, tmp_path: Path) -> None:
    (tmp_path / "news.json").write_text(json.dumps([{"id": n, "body": text} for n, text in enumerate(TEXTS)]))
    assert run("tag", model, "--file", "news.json", "--text", "body") == run("tag", model, *TEXTS)
