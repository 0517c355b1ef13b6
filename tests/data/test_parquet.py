"""Parquet files that decompress to far more than their size raise before memory is allocated."""

import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from softlook.base.errors import DataError
from softlook.data import arrow
from softlook.data.arrow import parquet_batches, parquet_rows
from softlook.tabular.io.files import read_table


def repeated(path: Path, text: str, rows: int) -> Path:
    """Write one text in every row, which takes almost no space on disk."""
    indices, labels = pa.array([0] * rows, pa.int32()), pa.array(["x"] * rows)
    table = pa.table({"text": pa.DictionaryArray.from_arrays(indices, pa.array([text])), "label": labels})
    pq.write_table(table, path, compression="zstd", store_schema=False)
    return path


def test_a_repeated_text_raises_before_it_is_decoded(tmp_path: Path) -> None:
    path = repeated(tmp_path / "bomb.parquet", "a" * 100_000, 70_000)
    assert path.stat().st_size < 10_000
    before = pa.total_allocated_bytes()
    for read in (lambda: list(parquet_rows(path, ("text", "label"))), lambda: list(read_table(path))):
        tracemalloc.start()
        with pytest.raises(DataError, match="decompress to"):
            read()
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
        tracemalloc.stop()
    assert pa.default_memory_pool().max_memory() - before < 512 << 20


def test_pages_with_huge_declared_size_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BATCH_BYTES", 1 << 20)
    path = tmp_path / "plain.parquet"
    pq.write_table(pa.table({"text": ["b" * 4_000_000]}), path, compression="zstd", use_dictionary=False)
    with pytest.raises(DataError, match=r"column 'text' declares 4,000,.* bytes"):
        list(parquet_batches(path, 512))


def test_large_rows_are_read_in_bounded_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BATCH_BYTES", 1 << 20)
    path = repeated(tmp_path / "large.parquet", "ab" * 50_000, 100)
    batches = list(parquet_batches(path, 512, safe_bytes=1 << 30))
    assert sum(batch.num_rows for batch in batches) == 100
    assert max(batch.num_rows for batch in batches) == 10
    assert {value for batch in batches for value in batch.column("text").to_pylist()} == {"ab" * 50_000}


def test_parquet_batches_match_the_file(tmp_path: Path) -> None:
    rows = {"text": ["a", None, "b", "a"] * 300, "number": [1.5, 2.0, None, 4.0] * 300, "flag": [True, False] * 600}
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(rows), path)
    table = pa.Table.from_batches(parquet_batches(path, 512))
    assert table.to_pydict() == rows and table.schema.field("text").type == pa.string()
