"""`softlook batch` in a terminal."""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import RunCommand


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    folder = tmp_path / "orders"
    folder.mkdir()
    table = pa.table({"id": [1, 2, 3], "ordered": ["jeudi 3 mars 2022", None, "Jan 5th, 2021"]})
    pq.write_table(table, folder / "orders.parquet")
    return folder


def test_output_folder_is_printed_with_the_number_of_invalid_rows(command: RunCommand, orders: Path) -> None:
    completed = command("batch", "dates", orders, "out", "--keep", "id")
    assert (completed.code, completed.lines) == (0, ["out"])
    assert '1 of 3 rows have no prediction: the column "error" of the output says why.' in completed.err
    rows = pq.ParquetFile("out/orders-00000.parquet").read().to_pylist()
    assert [(row["id"], row["translation"]) for row in rows] == [(1, "2022-03-03"), (2, None), (3, "2021-01-05")]
    again = command("--json", "batch", "dates", orders, "out", "--keep", "id")
    assert again.objects == [{"path": "out", "rows": 3, "errors": 1, "parts": 1, "computed_parts": 0}]


def test_workers_without_ray_say_what_to_install(
    command: RunCommand, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "softlook.recipes.batch.on_ray", raising=False)
    completed = command("batch", "dates", orders, "out", "--workers", "2")
    assert completed.code == 69
    assert "workers of a batch job run on Ray: pip install 'softlook[ray]'" in completed.err


def test_an_option_of_another_task_is_an_error(command: RunCommand, orders: Path) -> None:
    completed = command("batch", "dates", orders, "out", "--normalize")
    assert completed.code == 65
    assert "--normalize has no effect: the task of this model is translate" in completed.err
