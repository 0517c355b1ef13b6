"""`softlook search` prints the most similar texts of files and saved indexes."""

from pathlib import Path

import pytest

from tests.cli.conftest import RunCommand
from tests.recipes.trained_runs import train_runs

TEXTS = ["the cat eats bread", "the dog sees fish", "my king eats the moon"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return train_runs(tmp_path_factory.mktemp("search"), "mlm", "word2vec", "classify")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "corpus.txt").write_text("\n".join([*TEXTS, ""]) + "\n")
    return tmp_path / "corpus.txt"


def test_hits_are_lines_of_similarity_number_and_text(command: RunCommand, runs: dict[str, Path], corpus: Path) -> None:
    completed = command("search", runs["mlm"], "--index", corpus, TEXTS[1], "--top-k", "2")
    rows = [line.split("\t") for line in completed.lines]
    assert completed.code == 0 and rows[0] == ["1.0000", "2", TEXTS[1]] and len(rows) == 2


def test_queries_are_separated_by_an_empty_line(command: RunCommand, runs: dict[str, Path], corpus: Path) -> None:
    arguments = ("search", runs["mlm"], "--index", corpus, "--top-k", "1")
    together = command(*arguments, stdin=f"{TEXTS[0]}\n{TEXTS[2]}\n")
    assert [line.split("\t")[-1] for line in together.lines] == [TEXTS[0], "", TEXTS[2]]
    assert command(*arguments, TEXTS[0], TEXTS[2]) == together


def test_a_saved_index_is_reused(command: RunCommand, runs: dict[str, Path], corpus: Path) -> None:
    direct = command("search", runs["mlm"], "--index", corpus, "the cat")
    saved = command("search", runs["mlm"], "--index", corpus, "--save", "i.safetensors")
    assert saved.lines == ["i.safetensors"]
    corpus.unlink()
    assert command("search", runs["mlm"], "--index", "i.safetensors", "the cat") == direct
    other = command("search", runs["classify"], "--index", "i.safetensors", "the cat")
    assert other.code == 65 and "did not make this index" in other.err


def test_json_has_one_object_per_query(command: RunCommand, runs: dict[str, Path], corpus: Path) -> None:
    contents = command("--json", "search", runs["mlm"], "--index", corpus, *TEXTS[:2]).objects
    assert [content["query"] for content in contents] == TEXTS[:2]
    assert contents[1]["hits"][0] == {"score": pytest.approx(1, abs=1e-4), "number": 2, "text": TEXTS[1]}


def test_a_column_of_a_table_is_searched(command: RunCommand, runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "faq.csv").write_text("id,question\n" + "".join(f"{n},{text}\n" for n, text in enumerate(TEXTS)))
    completed = command("search", runs["mlm"], "--index", "faq.csv", "--text", "question", TEXTS[2], "--top-k", "1")
    assert completed.lines[0].endswith(TEXTS[2])


def test_a_word_is_not_its_own_neighbor(command: RunCommand, runs: dict[str, Path]) -> None:
    words = [line.split("\t")[2] for line in command("search", runs["word2vec"], "King", "--top-k", "3").lines]
    assert len(words) == 3 and "king" not in words


def test_an_encoder_without_texts_to_search_is_an_error(
    command: RunCommand, runs: dict[str, Path], tmp_path: Path
) -> None:
    assert "--index FILE" in command("search", runs["mlm"], "the cat").err
    (tmp_path / "empty.txt").write_text("\n\n")
    empty = command("search", runs["mlm"], "the cat", "--index", "empty.txt")
    assert empty.code == 65 and "there are no texts in empty.txt" in empty.err
