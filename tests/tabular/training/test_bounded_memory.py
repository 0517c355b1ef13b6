"""A table that is larger than what it may take up is learned from in bounded memory."""

from pathlib import Path

import pytest

from benchmarks.tables_memory import LIMIT, alone_in_a_child, make


@pytest.mark.slow
def test_memory_does_not_grow_with_the_table(tmp_path: Path) -> None:
    more, sizes = [], []
    for rows in (500_000, 2_000_000):
        path = tmp_path / f"{rows}.parquet"
        make(path, rows)
        found = alone_in_a_child("path, on disk", path)
        more.append(found["peak"] - found["before"])
        sizes.append(path.stat().st_size)
    assert sizes[0] > LIMIT / 4 and sizes[1] > 2 * LIMIT, "else it would all be in memory"
    assert more[1] - more[0] < 0.25 * (sizes[1] - sizes[0])
    assert more[1] < 4 * LIMIT
