"""Batch jobs on a real Ray on this machine give the files of a job in one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from softlook.recipes.batch import BatchParams, predict_folder

pytest.importorskip("ray")
DATES = ["jeudi 3 mars 2022", "le 1er mai 1998", "Jan 5th, 2021", "5 April 2003", "3 mars 1999", None]


def parquet_files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.parquet")}


def test_two_actors_write_the_files_of_one_process_which_continues_their_job(tmp_path: Path) -> None:
    source, params = tmp_path / "in", BatchParams(keep=("id",))
    for number in range(3):
        path = source / f"{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": range(6), "text": DATES[number:] + DATES[:number]}), path)
    predict_folder("dates", source, tmp_path / "one", params, device="cpu")

    command = [sys.executable, "-m", "softlook", "--json", "batch", "dates", source, tmp_path / "ray"]
    command += ["--keep", "id", "--workers", "2", "--device", "cpu"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}  # a process of its own: Ray starts threads that outlive a test
    completed = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300, check=False)
    assert completed.returncode == 0, completed.stderr
    result = json.loads(completed.stdout)
    assert (result["rows"], result["errors"], result["parts"], result["computed_parts"]) == (18, 3, 3, 3)
    files = parquet_files(tmp_path / "ray")
    assert len(files) == 3
    assert files == parquet_files(tmp_path / "one")

    (tmp_path / "ray" / "1-00000.parquet").unlink()
    assert predict_folder("dates", source, tmp_path / "ray", params, device="cpu").computed_parts == 1
    assert parquet_files(tmp_path / "ray") == files
