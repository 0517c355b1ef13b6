"""`python -m benchmarks.tables_memory`: how much memory a table takes that is fitted by its path, and how long.

A Parquet file is made in a temporary folder, and each way runs in a process of its own: by path, with room for the
table or without, and as a frame that pandas reads. The model is as small as may be, and goes through the rows once:
the time is that of the table, not of the model.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.report import FOLDER, Report, megabytes

NUMBERS, WORDS = 16, ("red", "green", "blue", "grey")
TARGET = "class"
PIECE = 250_000
LIMIT = 128 << 20
"""Bytes: what is told where there is to be no room."""
FRAMED = 4_000_000
"""Most rows that are tried as a frame: beyond, a machine may have no room for it."""
SMALL = {"dim": 8, "depth": 1, "heads": 1, "hidden_dropout": 0.0}


def make(path: Path, rows: int) -> None:
    """Sixteen numbers, one category and a class, written a piece at a time."""
    dice = np.random.default_rng(0)
    with pq.ParquetWriter(path, _schema(), compression="none", use_dictionary=False) as file:
        for start in range(0, rows, PIECE):
            count = min(PIECE, rows - start)
            numbers = dice.normal(size=(NUMBERS, count))
            words = pa.array(np.array(WORDS)[dice.integers(len(WORDS), size=count)])
            classes = pa.array(np.where(numbers[0] + numbers[1] * numbers[2] > 0, "yes", "no"))
            file.write_table(pa.table([*map(pa.array, numbers), words, classes], schema=_schema()))


def _schema() -> pa.Schema:
    columns = [(f"n{place}", pa.float64()) for place in range(NUMBERS)]
    return pa.schema([*columns, ("colour", pa.string()), (TARGET, pa.string())])


def alone(way: str, path: Path) -> dict[str, float]:
    """Fit and predict one way in this process; gives bytes and seconds."""
    from softlook.tabular import Hyperparameters, TableTransformerClassifier  # noqa: PLC0415  (who makes the file needs none)
    from tests.memory import peak  # noqa: PLC0415  (the same)

    before, began = peak(), time.perf_counter()
    limit = LIMIT if way == "path, on disk" else None
    preset = Hyperparameters(model="TableTransformer", **SMALL, lr=1e-3, early_stopping_metric="loss")
    model = TableTransformerClassifier(
        preset=preset, batch_size=8192, epochs=1, random_state=0, n_jobs=1, memory_limit=limit, device="cpu"
    )
    if way == "frame":
        import pandas  # noqa: PLC0415  (the other ways do without)

        frame = pandas.read_parquet(path)
        y = frame.pop(TARGET)
        model.fit(frame, y)
        fitted = time.perf_counter()
        rows = len(model.predict(frame))
    else:
        model.fit(path, TARGET)
        fitted = time.perf_counter()
        rows = sum(map(len, model.predict_chunks(path)))
    ended = time.perf_counter()
    return {
        "before": before,
        "peak": peak(),
        "fit": fitted - began,
        "predict": ended - fitted,
        "loss": model.history_[-1]["val_loss"],
        "rows": rows,
    }


def measure(report: Report, sizes: list[int], ways: list[str]) -> None:
    report.section(
        "Tables by path",
        f"A Parquet file of {NUMBERS} numbers, a category and a class, without compression. `before` is what a process "
        "holds once it has imported softlook, `peak` the most it ever held (VmHWM), both in MB; `fit` is seconds for "
        "learning about the columns, writing the rows down and going through them once with a model of width 8, "
        f"`predict` for all rows, one thread. `path, on disk` was told `memory_limit={LIMIT >> 20} << 20`; `path` "
        "nothing, which is 1 GiB; `frame` is `pandas.read_parquet` and fitting what it gives.",
    )
    table = report.table("way", "rows", "file, MB", "before", "peak", "more", "fit, s", "predict, s", "held-out loss")
    with tempfile.TemporaryDirectory() as folder:
        for rows in sizes:
            path = Path(folder) / f"{rows}.parquet"
            make(path, rows)
            for way in ways if rows <= FRAMED else [way for way in ways if way != "frame"]:
                found = alone_in_a_child(way, path)
                assert found["rows"] == rows
                more = found["peak"] - found["before"]
                sizes_told = [megabytes(found[name]) for name in ("before", "peak")]
                seconds = [f"{found[name]:.0f}" for name in ("fit", "predict")]
                told = [megabytes(path.stat().st_size), *sizes_told, megabytes(more), *seconds, f"{found['loss']:.3f}"]
                table.add(way, f"{rows:,}", *told)
            path.unlink()


def alone_in_a_child(way: str, path: Path) -> dict[str, float]:
    """The same in a process of its own, whose memory nothing else has used."""
    words = [sys.executable, "-m", "benchmarks.tables_memory", "--alone", way, str(path)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    reader = argparse.ArgumentParser(prog="python -m benchmarks.tables_memory", description=__doc__)
    reader.add_argument("--rows", nargs="+", type=int, default=[1_000_000, 4_000_000, 8_000_000])
    reader.add_argument("--ways", nargs="+", default=["path, on disk", "path", "frame"])
    reader.add_argument("--folder", type=Path, default=FOLDER, help="where the Markdown goes")
    reader.add_argument("--alone", nargs=2, help=argparse.SUPPRESS)
    words = reader.parse_args()
    if words.alone:
        print(json.dumps(alone(words.alone[0], Path(words.alone[1]))))
        return
    measure(Report("cpu", "python -m benchmarks.tables_memory", words.folder, "tables memory"), words.rows, words.ways)


if __name__ == "__main__":
    main()
