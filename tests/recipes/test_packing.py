"""Large data lie on disk, and teach exactly what they would teach from memory."""

import shutil
import signal
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from softlook.base.errors import DataError
from softlook.data import sentences as lines
from softlook.recipes import classify, translate
from softlook.recipes.classification import Classification
from softlook.recipes.corpus import read_corpus
from softlook.recipes.filling import Filling
from softlook.recipes.language import Language
from softlook.recipes.packing import Shelf
from softlook.recipes.settings import PairBatch, Tokens
from softlook.recipes.told import settle, told
from softlook.recipes.translation import Translation
from softlook.recipes.word_vectors import Nearness
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.train.batches import Place
from softlook.train.events import Event, Trained
from softlook.weights.folders import DiskError
from tests.recipes.small import classifying, digits, filling, language, near, translating
from tests.train.tiny import assert_same

CPU = torch.device("cpu")
TASKS: dict[str, tuple[Any, Callable[..., Any], dict[str, Any]]] = {
    "translate": (Translation(), translating, {}),
    "classify": (Classification(), classifying, {}),
    "fill": (Filling(), filling, {}),
    "fill in pairs": (Filling(), filling, {"pairs": True}),
    "vectors": (Nearness(), near, {}),
    "lm": (Language(), language, {}),
}


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Says from how many characters on a text is large."""
    return lambda characters: monkeypatch.setattr("softlook.recipes.packing.LARGE", characters)


def planned(task: str, folder: Path) -> Any:
    """All that a task makes from its data."""
    job, make, more = TASKS[task]
    asked = told(make(folder, **more))
    corpus = job.read(asked)
    values = {"tokens.kind": "words", "tokens.vocab": 200, "batch.tokens": 256, "batch.longest": 32}
    settings = settle(asked, values).settings
    torch.manual_seed(0)
    return job.plan(corpus, settings, job.tokenizer(corpus, settings), CPU)


def some(plan: Any) -> list[Any]:
    return [(place, vars(batch)) for place, batch in islice(plan.batches.start(Place()), 40)]


@pytest.mark.parametrize("task", TASKS)
def test_batches_from_disk_are_those_from_memory(task: str, tmp_path: Path, large: Callable[[int], None]) -> None:
    memory = planned(task, tmp_path)
    large(10)
    for _ in range(2):  # written, and found again
        disk = planned(task, tmp_path)
        for (place, batch), (other, again) in zip(some(memory), some(disk), strict=True):
            assert place == other
            assert all(torch.equal(batch[name], again[name]) for name in batch)
        assert disk.tokens == memory.tokens
        assert len(list((tmp_path / ".tokens").iterdir())) == 1


def test_a_run_from_disk_goes_on_exactly(tmp_path: Path, large: Callable[[int], None]) -> None:
    asked = {"steps": 8, "batch": PairBatch(tokens=400)}
    whole = translate(translating(tmp_path, run=tmp_path / "whole", **asked))
    large(10)

    def stop(event: Event) -> None:
        if isinstance(event, Trained) and event.step == 5:
            signal.raise_signal(signal.SIGINT)

    broken = translate(translating(tmp_path, **asked), [stop])
    assert broken.progress.step < 8
    again = translate(translating(tmp_path, **asked))
    assert again.progress.step == 8
    assert_same(again.model, whole.model)


@pytest.mark.parametrize("name", ["ids.bin", "edges.bin", "store.json"])
def test_a_damaged_store_is_made_anew_and_that_is_said(
    name: str, tmp_path: Path, large: Callable[[int], None], caplog: pytest.LogCaptureFixture
) -> None:
    large(10)
    first = some(planned("translate", tmp_path))
    (path,) = (tmp_path / ".tokens").glob(f"*/{name}")
    content = path.read_bytes()
    path.write_bytes(content[:9] + bytes([content[9] ^ 4]) + content[10:])
    again = some(planned("translate", tmp_path))
    assert f"{name} is not" in caplog.text and "It is made anew." in caplog.text
    assert path.read_bytes() == content
    assert all(torch.equal(one[1]["wanted"], other[1]["wanted"]) for one, other in zip(first, again, strict=True))


def test_a_store_that_another_run_has_written_meanwhile_is_taken(
    tmp_path: Path, large: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    large(10)
    planned("translate", tmp_path)
    (kept,) = (tmp_path / ".tokens").iterdir()
    shutil.move(kept, tmp_path / "theirs")

    def late(*_: Any, **__: Any) -> None:
        shutil.move(tmp_path / "theirs", kept)
        raise DiskError(f"{kept} exists already")

    monkeypatch.setattr("softlook.recipes.packing.write_store", late)
    assert some(planned("translate", tmp_path))


def test_other_columns_of_the_same_file_are_other_ids(tmp_path: Path, large: Callable[[int], None]) -> None:
    table = tmp_path / "a.jsonl"
    rows = (f'{{"one": "a{n} b", "two": "c{n} d"}}\n' for n in range(100, 200))
    table.write_text("".join(rows), encoding="utf-8")
    tokenizer = TextTokenizer(train_tokenizer([], kind="bytes"))
    large(10)
    found = []
    for column in ("one", "two"):
        corpus = read_corpus(lambda files, column=column: lines(files, text=column), (table,), ())
        ids = ((tokenizer.encode([example.text])[0],) for example in corpus.train)
        store = Shelf(corpus, tokenizer, tmp_path / "run").store(ids, "lines")
        found.append(tokenizer.decode(store[0][0])[0])
    assert found == ["a", "c"]


def test_words_cut_anew_each_time_are_refused_where_there_are_too_many(
    tmp_path: Path, large: Callable[[int], None]
) -> None:
    large(10)
    with pytest.raises(
        DataError, match=r"tokens\.dropout keeps every word in memory, and goes up to [\d,]+ characters"
    ):
        translate(translating(tmp_path, tokens=Tokens(kind="bpe", vocab=300, dropout=0.1)))


LONG = 50_000_000


@pytest.fixture(scope="module")
def long_line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = digits(tmp_path_factory.mktemp("long") / "digits.tsv")
    with path.open("a", encoding="utf-8") as file:
        file.write("1 " * (LONG // 2) + "\t1 1\n" + "1 2 3 4\t4 3 2 1\n")
    return path


def test_a_line_of_fifty_megabytes_is_an_error_with_its_place(long_line: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"digits\.tsv:401:1000001: this line has more than 1,000,000 characters"):
        translate(translating(tmp_path, data=(long_line,)))


def test_it_is_left_out_where_bad_rows_may_be(long_line: Path, tmp_path: Path) -> None:
    trained = translate(translating(tmp_path, 2, data=(long_line,), max_bad_rows=1))
    assert trained.progress.step == 2


def test_where_lines_may_be_so_long_the_pair_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train_tokenizer([], kind="bytes").save(str(tmp_path / "tokenizer.json"))
    asked = translating(tmp_path, 2, tokens=Tokens(file=tmp_path / "tokenizer.json"), longest_line=4_000_000)
    with asked.data[0].open("a", encoding="utf-8") as file:
        file.write("1 " * 1_500_000 + "\t1 1\n")
    with caplog.at_level("INFO", "softlook"):
        translate(asked)
    assert "1 pairs are longer than" in caplog.text


def test_what_is_no_column_of_classes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.recipes.classification.MOST_CLASSES", 1)
    with pytest.raises(DataError, match="there are more than 1 classes, the last of them '"):
        classify(classifying(tmp_path))
