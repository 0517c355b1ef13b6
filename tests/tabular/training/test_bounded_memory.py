"""Training on a table that exceeds its memory limit uses bounded memory."""

from pathlib import Path

import pytest

from benchmarks.tables_memory import MEMORY_LIMIT, ON_DISK, measure_in_subprocess, write_parquet


@pytest.mark.slow
def test_memory_does_not_grow_with_the_table(tmp_path: Path) -> None:
    increases, sizes = [], []
    for rows in (500_000, 2_000_000):
        path = tmp_path / f"{rows}.parquet"
        write_parquet(path, rows)
        measured = measure_in_subprocess(ON_DISK, path)
        increases.append(measured["peak"] - measured["before"])
        sizes.append(path.stat().st_size)
    assert sizes[0] > MEMORY_LIMIT / 4 and sizes[1] > 2 * MEMORY_LIMIT, "else the whole table would be in memory"
    assert increases[1] - increases[0] < 0.25 * (sizes[1] - sizes[0])
    assert increases[1] < 4 * MEMORY_LIMIT
