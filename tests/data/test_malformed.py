"""However a file is broken, softlook says where and why in words, or makes something sensible of it."""

from pathlib import Path
from typing import Any

import pytest

from softlook import data
from softlook.base.errors import DataError
from tests.data.odd_files import FILES, Odd
from tests.data.odd_tables import TABLES

ODD = [*FILES, *TABLES]
BROKEN = [odd for odd in ODD if odd.result is None]
SENSIBLE = [odd for odd in ODD if odd.result is not None]
TASKS = {"sentences": data.sentences, "documents": data.documents, "pairs": data.pairs, "labelled": data.labelled}


def read(odd: Odd, folder: Path, bad_rows: int = 0) -> list[Any]:
    """The texts of the examples in a file."""
    path = folder / odd.name
    path.write_bytes(odd.content)
    examples = TASKS[odd.task](path, bad_rows=bad_rows)
    return [_plain(example) for example in examples]


def _plain(example: data.Pair | data.Text | data.Labelled) -> Any:
    if isinstance(example, data.Text):
        return example.text
    label = (example.label,) if isinstance(example, data.Labelled) else ()
    return (*example.texts.values(), *label)


def test_there_are_150_odd_files_and_no_two_are_alike() -> None:
    assert len({(odd.name, odd.content, odd.task) for odd in ODD}) == len(ODD) >= 150


@pytest.mark.parametrize("odd", BROKEN, ids=str)
def test_a_broken_file_is_an_error_with_its_place(odd: Odd, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read(odd, tmp_path)
    said = str(caught.value)
    assert said.startswith(f"{tmp_path / odd.name}{odd.place}"), said
    assert odd.words in said
    assert all(line.isprintable() for line in said.split("\n")), "no character of the file may act on the terminal"
    assert max(map(len, said.split("\n"))) < 1000


@pytest.mark.parametrize("odd", SENSIBLE, ids=str)
def test_an_odd_file_gives_what_a_person_would_read(odd: Odd, tmp_path: Path) -> None:
    assert read(odd, tmp_path) == odd.result


@pytest.mark.parametrize("odd", BROKEN, ids=str)
def test_where_bad_rows_may_be_left_out_the_good_ones_remain(odd: Odd, tmp_path: Path) -> None:
    if odd.kept is None:
        with pytest.raises(DataError):
            read(odd, tmp_path, bad_rows=10_000)
    else:
        assert len(read(odd, tmp_path, bad_rows=10_000)) == odd.kept
