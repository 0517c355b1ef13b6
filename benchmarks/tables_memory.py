"""`python -m benchmarks.tables_memory`: peak memory and time of fitting a table from a path.

A Parquet file is written to a temporary directory, and every source runs in its own process: the path, with a memory
limit that the table fits into or exceeds, and a pandas data frame. The model is tiny and trains for one epoch, so that
the time is that of the data, not of the model.
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

N_NUMERIC, CATEGORIES = 16, ("red", "green", "blue", "grey")
TARGET = "class"
CHUNK_ROWS = 250_000
MEMORY_LIMIT = 128 << 20
"""Bytes, for `ON_DISK`."""
ON_DISK, PATH, FRAME = SOURCES = ("path, on disk", "path", "frame")
MAX_FRAME_ROWS = 4_000_000
"""Larger tables are not tried as a frame, which may not fit into memory."""
TINY_MODEL = {"dim": 8, "depth": 1, "heads": 1, "hidden_dropout": 0.0}


def write_parquet(path: Path, rows: int) -> None:
    """Write 16 numbers, a category and a class, chunk by chunk."""
    rng = np.random.default_rng(0)
    with pq.ParquetWriter(path, _schema(), compression="none", use_dictionary=False) as file:
        for start in range(0, rows, CHUNK_ROWS):
            count = min(CHUNK_ROWS, rows - start)
            numbers = rng.normal(size=(N_NUMERIC, count))
            categories = pa.array(np.array(CATEGORIES)[rng.integers(len(CATEGORIES), size=count)])
            classes = pa.array(np.where(numbers[0] + numbers[1] * numbers[2] > 0, "yes", "no"))
            file.write_table(pa.table([*map(pa.array, numbers), categories, classes], schema=_schema()))


def _schema() -> pa.Schema:
    columns = [(f"n{index}", pa.float64()) for index in range(N_NUMERIC)]
    return pa.schema([*columns, ("color", pa.string()), (TARGET, pa.string())])


def fit_and_predict(source: str, path: Path) -> dict[str, float]:
    """Fit and predict in this process; returns bytes and seconds."""
    from softlook.tabular import Hyperparameters, TableTransformerClassifier  # noqa: PLC0415  (only the child needs it)
    from tests.memory import peak  # noqa: PLC0415  (only the child needs it)

    before, start = peak(), time.perf_counter()
    model = TableTransformerClassifier(
        ensemble="single",
        preset=Hyperparameters(model="TableTransformer", **TINY_MODEL, lr=1e-3, early_stopping_metric="loss"),
        batch_size=8192,
        epochs=1,
        random_state=0,
        n_jobs=1,
        memory_limit=MEMORY_LIMIT if source == ON_DISK else None,
        device="cpu",
    )
    if source == FRAME:
        import pandas  # noqa: PLC0415  (the other sources do not need it)

        frame = pandas.read_parquet(path)
        y = frame.pop(TARGET)
        model.fit(frame, y)
        fit_end = time.perf_counter()
        rows = len(model.predict(frame))
    else:
        model.fit(path, TARGET)
        fit_end = time.perf_counter()
        rows = sum(map(len, model.predict_chunks(path)))
    end = time.perf_counter()
    return {
        "before": before,
        "peak": peak(),
        "fit": fit_end - start,
        "predict": end - fit_end,
        "loss": model.history_[-1]["val_loss"],
        "rows": rows,
    }


def measure_in_subprocess(source: str, path: Path) -> dict[str, float]:
    """`fit_and_predict` in a new process, whose peak memory is its own."""
    command = [sys.executable, "-m", "benchmarks.tables_memory", "--child", source, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(report: Report, sizes: list[int], sources: list[str]) -> None:
    report.section(
        "Tables from a path",
        f"A Parquet file of {N_NUMERIC} numbers, a category and a class, without compression. `before` is the memory "
        "of the process after `import softlook`, `peak` its maximum (VmHWM), both in MB; `fit` is the time in seconds "
        "of preprocessing and one epoch of a model of width 8, `predict` that of predicting all rows, with one thread. "
        f"`{ON_DISK}` has `memory_limit={MEMORY_LIMIT >> 20} << 20`, `{PATH}` the default of 1 GiB; `{FRAME}` is "
        "`pandas.read_parquet` and a fit of the data frame.",
    )
    header = ("source", "rows", "file, MB", "before", "peak", "increase", "fit, s", "predict, s", "validation loss")
    table = report.table(*header)
    with tempfile.TemporaryDirectory() as folder:
        for rows in sizes:
            path = Path(folder) / f"{rows}.parquet"
            write_parquet(path, rows)
            for source in sources if rows <= MAX_FRAME_ROWS else [one for one in sources if one != FRAME]:
                found = measure_in_subprocess(source, path)
                assert found["rows"] == rows
                memory = found["before"], found["peak"], found["peak"] - found["before"]
                seconds = [f"{found[name]:.0f}" for name in ("fit", "predict")]
                sizes_mb = map(megabytes, (path.stat().st_size, *memory))
                table.add(source, f"{rows:,}", *sizes_mb, *seconds, f"{found['loss']:.3f}")
            path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables_memory", description=__doc__)
    parser.add_argument("--rows", nargs="+", type=int, default=[1_000_000, 4_000_000, 8_000_000])
    parser.add_argument("--sources", nargs="+", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--folder", type=Path, default=FOLDER, help="directory of the Markdown file")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(fit_and_predict(args.child[0], Path(args.child[1]))))
        return
    report = Report("cpu", "python -m benchmarks.tables_memory", args.folder, "tables memory")
    measure(report, args.rows, args.sources)


if __name__ == "__main__":
    main()
