"""Parquet files are read in small batches of rows, and a damaged file raises an error that names it."""

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
from softlook.data.records import read_records
from softlook.data.sniffing import sniff_layout

ROWS = {"text": [f"text number {n}" for n in range(40)], "label": [n % 3 for n in range(40)]}


def write(path: Path, columns: dict[str, Any], **more: Any) -> Path:
    pq.write_table(pa.table(columns), path, **more)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.parquet"


def labels(path: Path, **more: Any) -> list[tuple[str, str]]:
    return [(example.text, example.label) for example in data.read_labeled(path, **more)]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
def test_rows_are_read_with_any_compression(compression: str, path: Path) -> None:
    write(path, ROWS, compression=compression, row_group_size=7)
    assert labels(path) == [(text, str(label)) for text, label in zip(ROWS["text"], ROWS["label"], strict=True)]


def test_the_origin_of_a_row_is_its_number(path: Path) -> None:
    write(path, ROWS)
    assert [str(example.origin) for example in data.read_labeled(path)][:2] == [f"{path}:1", f"{path}:2"]


def test_only_requested_columns_are_read(path: Path) -> None:
    write(path, ROWS)
    layout = sniff_layout(path)
    assert [record.values for record in read_records(path, layout, ["label"])][0] == {"label": 0}


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
def test_labels_become_text_and_missing_ones_are_skipped(label: pa.Array, expected: list[str], path: Path) -> None:
    write(path, {"text": ["a", "b", "c"], "label": label})
    assert [found for _, found in labels(path)] == expected


def test_struct_fields_are_columns(path: Path) -> None:
    write(path, {"id": [1, 2], "translation": [{"en": "yes", "de": "ja"}, None]})
    examples = data.read_pairs(path)
    assert [(pair.source, pair.target) for pair in examples] == [("yes", "ja")]
    assert examples.notes == ("source is 'translation.en' and target is 'translation.de', by name; unused: 'id'",)


def test_unsupported_columns_are_skipped_and_named(path: Path) -> None:
    write(path, {"image": [b"\x89"], "tags": [["a"]], "text": ["good"], "label": ["x"]})
    assert labels(path) == [("good", "x")]
    with pytest.raises(DataError, match=r"image \(binary\), tags \(list<"):
        data.read_labeled(path, text="tags")


def test_an_empty_table_raises(path: Path) -> None:
    write(path, {"text": pa.array([], pa.string()), "label": pa.array([], pa.string())})
    with pytest.raises(DataError, match="there are no examples"):
        labels(path)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("a\0b", ":2: 'text' has a NUL character"),
        ("x" * 60, ":2: expected at most 50 characters in 'text', got 60"),
    ],
)
def test_an_invalid_text_costs_one_row(value: str, message: str, path: Path) -> None:
    write(path, {"text": ["good", value, "fine"], "label": ["x", "y", "x"]})
    with pytest.raises(DataError, match=message) as caught:
        labels(path, max_line_chars=50)
    assert caught.value.location == f"{path}:2"
    assert len(labels(path, max_line_chars=50, max_bad_rows=1)) == 2


def test_bytes_that_are_not_utf8_cost_one_row(path: Path) -> None:
    corrupted = pa.Array.from_buffers(pa.string(), 3, pa.array([b"good", b"\xff", b"fine"]).buffers())
    write(path, {"text": corrupted, "label": ["x", "y", "x"]})
    with pytest.raises(DataError, match="row 2 has bytes that are not UTF-8") as caught:
        labels(path)
    assert caught.value.location == f"{path}:2"
    assert labels(path, max_bad_rows=1) == [("good", "x"), ("fine", "x")]


CUTS: dict[str, Callable[[bytes], bytes]] = {
    "no bytes": lambda whole: b"",
    "only the magic bytes": lambda whole: whole[:4],
    "without the last byte": lambda whole: whole[:-1],
    "without the footer": lambda whole: whole[: len(whole) // 2],
    "without the first bytes": lambda whole: whole[4:],
    "a footer too long": lambda whole: whole[:-8] + b"\xff\xff\xff\x7fPAR1",
    "a footer of length zero": lambda whole: whole[:-8] + bytes(4) + b"PAR1",
    "a footer of zeros": lambda whole: whole[:-200] + bytes(192) + whole[-8:],
    "text": lambda whole: b"text,label\ngood,1\n",
    "gzip": lambda whole: gzip.compress(whole),
    "magic bytes only": lambda whole: b"PAR1" * 3,
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_damaged_file_raises_with_its_name(cut: str, path: Path) -> None:
    path.write_bytes(CUTS[cut](write(path, ROWS).read_bytes()))
    with pytest.raises(DataError, match="damaged, or not Parquet") as caught:
        labels(path, max_bad_rows=1000)
    assert caught.value.location == str(path)
    assert all(row.isprintable() for row in str(caught.value).split("\n"))


def test_damaged_pages_raise_if_the_file_has_checksums(path: Path) -> None:
    whole = bytearray(write(path, ROWS, compression="none", write_page_checksum=True).read_bytes())
    whole[whole.index(b"text number 7")] ^= 1
    path.write_bytes(whole)
    with pytest.raises(DataError, match="damaged"):
        labels(path)


def test_flipped_bits_give_rows_or_a_data_error(path: Path) -> None:
    whole, rng = write(path, ROWS).read_bytes(), random.Random(0)
    for _ in range(150):
        corrupted = bytearray(whole)
        corrupted[rng.randrange(len(corrupted))] ^= 1 << rng.randrange(8)
        path.write_bytes(corrupted)
        try:
            labels(path, max_bad_rows=100)
        except DataError as error:
            assert str(path) in str(error)


def test_a_compressed_parquet_file_raises(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet.gz"
    path.write_bytes(gzip.compress(b"PAR1"))
    with pytest.raises(DataError, match="decompress it"):
        data.read_labeled(path)


def test_parquet_is_recognized_by_its_magic_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", ROWS)
    with pytest.raises(DataError, match=r"add \.parquet"):
        data.read_labeled(path)


def test_a_deleted_file_raises(path: Path) -> None:
    layout = sniff_layout(write(path, ROWS))
    path.unlink()
    with pytest.raises(DataError, match="no such file"):
        list(read_records(path, layout))


def test_parquet_rows_are_read_in_small_batches(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BATCH_ROWS", 5)
    sizes: list[int] = []
    real = arrow._iterate_rows
    monkeypatch.setattr(arrow, "_iterate_rows", lambda table: sizes.append(table.num_rows) or real(table))
    write(path, ROWS)
    assert len(list(arrow.parquet_rows(path, ("text",)))) == 40
    assert max(sizes) == 5
