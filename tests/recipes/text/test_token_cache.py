"""Training from the token cache on disk equals training from memory."""

import shutil
import signal
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from softlook.base.errors import DataError
from softlook.data import read_sentences
from softlook.recipes import train_classification, train_translation
from softlook.recipes.config.resolve import explicit_overrides, resolve_config
from softlook.recipes.config.schema import TokenizerConfig, TranslationBatchConfig
from softlook.recipes.text.causal_lm import CausalLMTask
from softlook.recipes.text.classification import ClassificationTask
from softlook.recipes.text.corpus import TokenCache, read_corpus
from softlook.recipes.text.masked_lm import MaskedLMTask
from softlook.recipes.text.translation import TranslationTask
from softlook.recipes.text.word2vec import Word2VecTask
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.train.batching.batches import DataCursor
from softlook.train.events import Event, StepLogged
from softlook.weights.atomic_folder import DiskError
from tests.recipes.small import (
    causal_lm_config,
    classification_config,
    digits,
    masked_lm_config,
    translation_config,
    word2vec_config,
)
from tests.train.tiny import assert_same

CPU = torch.device("cpu")
TASKS: dict[str, tuple[Any, Callable[..., Any], dict[str, Any]]] = {
    "translate": (TranslationTask(), translation_config, {}),
    "classify": (ClassificationTask(), classification_config, {}),
    "mlm": (MaskedLMTask(), masked_lm_config, {}),
    "next sentence": (MaskedLMTask(), masked_lm_config, {"next_sentence": True}),
    "word2vec": (Word2VecTask(), word2vec_config, {}),
    "lm": (CausalLMTask(), causal_lm_config, {}),
}


@pytest.fixture
def disk_threshold(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the number of characters from which text is cached on disk."""
    return lambda characters: monkeypatch.setattr("softlook.recipes.text.corpus.DISK_THRESHOLD", characters)


def build_plan(name: str, folder: Path) -> Any:
    """The training plan of a task."""
    task, make_config, options = TASKS[name]
    overrides = explicit_overrides(make_config(folder, **options))
    corpus = task.load_corpus(overrides)
    values = {"tokenizer.type": "words", "tokenizer.vocab_size": 200, "batch.max_tokens": 256, "batch.max_length": 32}
    config = resolve_config(overrides, values).config
    torch.manual_seed(0)
    return task.build_plan(corpus, config, task.build_tokenizer(corpus, config), CPU)


def first_batches(plan: Any) -> list[Any]:
    return [(cursor, vars(batch)) for cursor, batch in islice(plan.batches.iter_from(DataCursor()), 40)]


@pytest.mark.parametrize("task", TASKS)
def test_batches_from_disk_are_those_from_memory(
    task: str, tmp_path: Path, disk_threshold: Callable[[int], None]
) -> None:
    memory = build_plan(task, tmp_path)
    disk_threshold(10)
    for _ in range(2):  # written, and found again
        disk = build_plan(task, tmp_path)
        for (cursor, batch), (other, resumed) in zip(first_batches(memory), first_batches(disk), strict=True):
            assert cursor == other
            assert all(torch.equal(batch[name], resumed[name]) for name in batch)
        assert disk.epoch_tokens == memory.epoch_tokens
        assert len(list((tmp_path / ".tokens").iterdir())) == 1


def test_a_run_from_disk_resumes_exactly(tmp_path: Path, disk_threshold: Callable[[int], None]) -> None:
    options = {"steps": 8, "batch": TranslationBatchConfig(max_tokens=400)}
    uninterrupted = train_translation(translation_config(tmp_path, run_dir=tmp_path / "uninterrupted", **options))
    disk_threshold(10)

    def stop(event: Event) -> None:
        if isinstance(event, StepLogged) and event.step == 5:
            signal.raise_signal(signal.SIGINT)

    interrupted = train_translation(translation_config(tmp_path, **options), [stop])
    assert interrupted.progress.step < 8
    resumed = train_translation(translation_config(tmp_path, **options))
    assert resumed.progress.step == 8
    assert_same(resumed.model, uninterrupted.model)


@pytest.mark.parametrize("name", ["ids.bin", "offsets.bin", "store.json"])
def test_a_damaged_cache_is_rebuilt_with_a_warning(
    name: str, tmp_path: Path, disk_threshold: Callable[[int], None], caplog: pytest.LogCaptureFixture
) -> None:
    disk_threshold(10)
    first = first_batches(build_plan("translate", tmp_path))
    (path,) = (tmp_path / ".tokens").glob(f"*/{name}")
    content = path.read_bytes()
    path.write_bytes(content[:9] + bytes([content[9] ^ 4]) + content[10:])
    resumed = first_batches(build_plan("translate", tmp_path))
    assert f"{name} is not" in caplog.text and "Tokenizing again." in caplog.text
    assert path.read_bytes() == content
    assert all(torch.equal(one[1]["labels"], other[1]["labels"]) for one, other in zip(first, resumed, strict=True))


def test_a_cache_written_by_another_run_meanwhile_is_used(
    tmp_path: Path, disk_threshold: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_threshold(10)
    build_plan("translate", tmp_path)
    (cached,) = (tmp_path / ".tokens").iterdir()
    shutil.move(cached, tmp_path / "moved")

    def write_meanwhile(*_: Any, **__: Any) -> None:
        shutil.move(tmp_path / "moved", cached)
        raise DiskError(f"{cached} exists already")

    monkeypatch.setattr("softlook.recipes.text.corpus.write_store", write_meanwhile)
    assert first_batches(build_plan("translate", tmp_path))


def test_other_columns_of_the_same_file_have_another_cache_key(
    tmp_path: Path, disk_threshold: Callable[[int], None]
) -> None:
    table = tmp_path / "a.jsonl"
    rows = (f'{{"one": "a{n} b", "two": "c{n} d"}}\n' for n in range(100, 200))
    table.write_text("".join(rows), encoding="utf-8")
    tokenizer = TextTokenizer(train_tokenizer([], model_type="bytes"))
    disk_threshold(10)
    found = []
    for column in ("one", "two"):
        corpus = read_corpus(
            lambda files, column=column: read_sentences(files, text=column), (table,), (), columns=(column,)
        )
        ids = ((tokenizer.encode([example.text])[0],) for example in corpus.train)
        store = TokenCache(corpus, tokenizer, tmp_path / "run").store(ids, "lines")
        found.append(tokenizer.decode(store[0][0])[0])
    assert found == ["a", "c"]


def test_bpe_dropout_on_large_data_is_an_error(tmp_path: Path, disk_threshold: Callable[[int], None]) -> None:
    disk_threshold(10)
    with pytest.raises(
        DataError, match=r"tokenizer\.bpe_dropout keeps all text in memory and supports up to [\d,]+ characters"
    ):
        train_translation(
            translation_config(tmp_path, tokenizer=TokenizerConfig(type="bpe", vocab_size=300, bpe_dropout=0.1))
        )


LONG = 50_000_000


@pytest.fixture(scope="module")
def long_line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = digits(tmp_path_factory.mktemp("long") / "digits.tsv")
    with path.open("a", encoding="utf-8") as file:
        file.write("1 " * (LONG // 2) + "\t1 1\n" + "1 2 3 4\t4 3 2 1\n")
    return path


def test_a_line_of_fifty_megabytes_is_an_error_with_its_position(long_line: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"digits\.tsv:401:1000001: this line has more than 1,000,000 characters"):
        train_translation(translation_config(tmp_path, data=(long_line,)))


def test_a_long_line_is_skipped_as_a_bad_row(long_line: Path, tmp_path: Path) -> None:
    trained = train_translation(translation_config(tmp_path, 2, data=(long_line,), max_bad_rows=1))
    assert trained.progress.step == 2


def test_a_long_line_within_the_limit_is_skipped_as_a_long_pair(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train_tokenizer([], model_type="bytes").save(str(tmp_path / "tokenizer.json"))
    config = translation_config(
        tmp_path, 2, tokenizer=TokenizerConfig(file=tmp_path / "tokenizer.json"), max_line_chars=4_000_000
    )
    with config.data[0].open("a", encoding="utf-8") as file:
        file.write("1 " * 1_500_000 + "\t1 1\n")
    with caplog.at_level("INFO", "softlook"):
        train_translation(config)
    assert "Skipping 1 pairs longer than" in caplog.text


def test_too_many_classes_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.recipes.text.text_problem.MAX_CLASSES", 1)
    with pytest.raises(DataError, match="there are more than 1 classes, the last of them '"):
        train_classification(classification_config(tmp_path))
