"""Parquet files are read row by row, and a damaged one is an error that says so."""

import gzip
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from softlook import data
from softlook.base.errors import DataError
from softlook.data import arrow
from softlook.data.layouts import layout_of
from softlook.data.records import read

ROWS = {"text": [f"text number {n}" for n in range(40)], "label": [n % 3 for n in range(40)]}


def write(path: Path, columns: dict[str, Any], **more: Any) -> Path:
    pq.write_table(pa.table(columns), path, **more)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.parquet"


def labels(path: Path, **more: Any) -> list[tuple[str, str]]:
    return [(example.text, example.label) for example in data.labelled(path, **more)]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
def test_rows_come_back_whatever_they_are_packed_with(compression: str, path: Path) -> None:
    write(path, ROWS, compression=compression, row_group_size=7)
    assert labels(path) == [(text, str(label)) for text, label in zip(ROWS["text"], ROWS["label"], strict=True)]


def test_a_row_points_at_its_number(path: Path) -> None:
    write(path, ROWS)
    assert [str(example.origin) for example in data.labelled(path)][:2] == [f"{path}:1", f"{path}:2"]


def test_only_the_columns_that_are_wanted_are_read(path: Path) -> None:
    write(path, ROWS)
    layout = layout_of(path)
    assert [record.values for record in read(path, layout, ["label"])][0] == {"label": 0}


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        (pa.array([1, None, 3]), ["1", "3"]),
        (pa.array([1.0, float("nan"), 2.5]), ["1", "2.5"]),
        (pa.array([True, False, None]), ["true", "false"]),
        (pa.array(["x", "", "y"]), ["x", "y"]),
        (pa.array(["x", "y", "x"]).dictionary_encode(), ["x", "y", "x"]),
        (pa.array(["x", "y", "x"], pa.large_string()), ["x", "y", "x"]),
        (pa.array([1, 2, 3], pa.uint8()), ["1", "2", "3"]),
    ],
)
def test_labels_of_any_plain_type_become_text_and_what_is_missing_is_dropped(
    label: pa.Array, expected: list[str], path: Path
) -> None:
    write(path, {"text": ["a", "b", "c"], "label": label})
    assert [found for _, found in labels(path)] == expected


def test_the_parts_of_a_struct_are_columns(path: Path) -> None:
    write(path, {"id": [1, 2], "translation": [{"en": "yes", "de": "ja"}, None]})
    examples = data.pairs(path)
    assert [(pair.source, pair.target) for pair in examples] == [("yes", "ja")]
    assert examples.said == ("source is 'translation.en' and target is 'translation.de', by name; left out: 'id'",)


def test_columns_of_other_types_are_passed_over_and_named_when_asked_for(path: Path) -> None:
    write(path, {"image": [b"\x89"], "tags": [["a"]], "text": ["good"], "label": ["x"]})
    assert labels(path) == [("good", "x")]
    with pytest.raises(DataError, match=r"image \(binary\), tags \(list<"):
        data.labelled(path, text="tags")


def test_an_empty_table_is_nothing_to_learn_from(path: Path) -> None:
    write(path, {"text": pa.array([], pa.string()), "label": pa.array([], pa.string())})
    with pytest.raises(DataError, match="nothing to learn from"):
        labels(path)


@pytest.mark.parametrize(
    ("value", "words"),
    [("a\0b", "row 2: 'text' holds a NUL character"), ("x" * 60, "row 2: 'text' has 60 characters; at most 50")],
)
def test_a_text_that_is_unfit_costs_one_row(value: str, words: str, path: Path) -> None:
    write(path, {"text": ["good", value, "fine"], "label": ["x", "y", "x"]})
    with pytest.raises(DataError, match=words) as caught:
        labels(path, longest=50)
    assert caught.value.place == f"{path}:2"
    assert len(labels(path, longest=50, bad_rows=1)) == 2


def test_bytes_that_are_no_text_cost_one_row(path: Path) -> None:
    spoiled = pa.Array.from_buffers(pa.string(), 3, pa.array([b"good", b"\xff", b"fine"]).buffers())
    write(path, {"text": spoiled, "label": ["x", "y", "x"]})
    with pytest.raises(DataError, match="row 2 holds bytes that are no UTF-8") as caught:
        labels(path)
    assert caught.value.place == f"{path}:2"
    assert labels(path, bad_rows=1) == [("good", "x"), ("fine", "x")]


CUTS: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda whole: b"",
    "the head only": lambda whole: whole[:4],
    "without the last byte": lambda whole: whole[:-1],
    "without the footer": lambda whole: whole[: len(whole) // 2],
    "without the first bytes": lambda whole: whole[4:],
    "a footer too long": lambda whole: whole[:-8] + b"\xff\xff\xff\x7fPAR1",
    "a footer of no length": lambda whole: whole[:-8] + bytes(4) + b"PAR1",
    "a footer of zeros": lambda whole: whole[:-200] + bytes(192) + whole[-8:],
    "text": lambda whole: b"text,label\ngood,1\n",
    "gzip": lambda whole: gzip.compress(whole),
    "marks only": lambda whole: b"PAR1" * 3,
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_damaged_file_is_an_error_with_its_name(cut: str, path: Path) -> None:
    path.write_bytes(CUTS[cut](write(path, ROWS).read_bytes()))
    with pytest.raises(DataError, match="damaged, or none") as caught:
        labels(path, bad_rows=1000)
    assert caught.value.place == str(path)
    assert all(row.isprintable() for row in str(caught.value).split("\n"))


def test_pages_spoiled_inside_are_refused_where_the_file_has_checksums(path: Path) -> None:
    whole = bytearray(write(path, ROWS, compression="none", write_page_checksum=True).read_bytes())
    whole[whole.index(b"text number 7")] ^= 1
    path.write_bytes(whole)
    with pytest.raises(DataError, match="damaged"):
        labels(path)


def test_any_flipped_bit_gives_rows_or_an_error_of_ours(path: Path) -> None:
    whole, dice = write(path, ROWS).read_bytes(), random.Random(0)
    for _ in range(150):
        spoiled = bytearray(whole)
        spoiled[dice.randrange(len(spoiled))] ^= 1 << dice.randrange(8)
        path.write_bytes(spoiled)
        try:
            labels(path, bad_rows=100)
        except DataError as fault:
            assert str(path) in str(fault)


def test_a_packed_parquet_file_is_to_be_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet.gz"
    path.write_bytes(gzip.compress(b"PAR1"))
    with pytest.raises(DataError, match="unpack it"):
        data.labelled(path)


def test_parquet_without_its_name_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", ROWS)
    with pytest.raises(DataError, match=r"add \.parquet"):
        data.labelled(path)


def test_a_file_that_is_gone_is_missing(path: Path) -> None:
    layout = layout_of(write(path, ROWS))
    path.unlink()
    with pytest.raises(DataError, match="no such file"):
        list(read(path, layout))


def test_few_rows_are_in_memory_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "ROWS", 5)
    sizes: list[int] = []
    real = arrow._rows
    monkeypatch.setattr(arrow, "_rows", lambda table: sizes.append(table.num_rows) or real(table))
    write(path, ROWS)
    assert len(list(arrow.parquet_rows(path, ("text",)))) == 40
    assert max(sizes) == 5
