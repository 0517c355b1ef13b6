"""A malformed file raises an error with its location and reason, or is read to the expected examples."""

from pathlib import Path
from typing import Any

import pytest

from softlook import data
from softlook.base.errors import DataError
from tests.data.malformed_files import FILES, MalformedFile
from tests.data.malformed_tables import TABLES

CASES = [*FILES, *TABLES]
INVALID = [case for case in CASES if case.result is None]
VALID = [case for case in CASES if case.result is not None]
TASKS = {
    "sentences": data.read_sentences,
    "documents": data.read_documents,
    "pairs": data.read_pairs,
    "labeled": data.read_labeled,
}


def read(case: MalformedFile, folder: Path, bad_rows: int = 0) -> list[Any]:
    """The texts of the examples in a file."""
    path = folder / case.name
    path.write_bytes(case.content)
    examples = TASKS[case.task](path, max_bad_rows=bad_rows)
    return [_plain(example) for example in examples]


def _plain(example: data.TextPair | data.TextExample | data.LabeledText) -> Any:
    if isinstance(example, data.TextExample):
        return example.text
    label = (example.label,) if isinstance(example, data.LabeledText) else ()
    return (*example.texts.values(), *label)


def test_there_are_150_different_malformed_files() -> None:
    assert len({(case.name, case.content, case.task) for case in CASES}) == len(CASES) >= 150


@pytest.mark.parametrize("case", INVALID, ids=str)
def test_a_malformed_file_raises_with_its_location(case: MalformedFile, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read(case, tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / case.name}{case.location}"), message
    assert case.message in message
    assert all(line.isprintable() for line in message.split("\n")), "no character of the file may act on the terminal"
    assert max(map(len, message.split("\n"))) < 1000


@pytest.mark.parametrize("case", VALID, ids=str)
def test_an_unusual_file_gives_the_expected_examples(case: MalformedFile, tmp_path: Path) -> None:
    assert read(case, tmp_path) == case.result


@pytest.mark.parametrize("case", INVALID, ids=str)
def test_skipping_bad_rows_keeps_the_good_ones(case: MalformedFile, tmp_path: Path) -> None:
    if case.kept is None:
        with pytest.raises(DataError):
            read(case, tmp_path, bad_rows=10_000)
    else:
        assert len(read(case, tmp_path, bad_rows=10_000)) == case.kept
