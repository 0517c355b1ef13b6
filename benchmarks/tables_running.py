"""Many runs, several at a time, each kept as soon as it is through: what the scripts of the tables share.

A task is a frozen dataclass whose fields tell it from others. What a file of results has of it is not run again.
"""

import argparse
import multiprocessing
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks import tables_data
from benchmarks.tables_data import Table
from benchmarks.tables_peers import Terms
from benchmarks.tables_results import Line, append, read
from benchmarks.tables_who import NEURAL


@dataclass(frozen=True)
class TrainingContext:
    """What holds for all runs of a script."""

    folder: Path
    limit_threads: int = 1
    seconds: float | None = None
    rows: int | None = None

    def load(self, name: str, seed: int) -> Table:
        return tables_data.load(self.folder, name, seed).first(self.rows)

    def terms(self, seed: int) -> Terms:
        torch.set_num_threads(self.limit_threads)
        return Terms(seed, self.limit_threads, self.seconds)

    def machine(self, who: str) -> str:
        """Where it learns."""
        if who in NEURAL and torch.cuda.is_available():
            return torch.cuda.get_device_name()
        return f"{self.limit_threads} of {os.cpu_count()} cores, {platform.machine()}"


def left(tasks: Iterable[Any], out: Path) -> list[Any]:
    """Those that are not in the file yet."""
    there = read(out)
    return [task for task in tasks if not any(asdict(task).items() <= _flat(line).items() for line in there)]


def _flat(line: Line) -> Line:
    return {name: value for name, value in line.items() if not isinstance(value, dict | list)}


def run_all(run: Callable[[Any, TrainingContext], list[Line]], tasks: Sequence[Any], words: argparse.Namespace) -> None:
    """Every task that is left, in the order given; a library that is not there is said and left out."""
    os.environ["OMP_NUM_THREADS"] = str(words.limit_threads)
    setting = TrainingContext(words.folder, words.limit_threads, words.max_minutes and 60 * words.max_minutes, words.rows)
    with ProcessPoolExecutor(words.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        begun = {pool.submit(run, task, setting): task for task in left(tasks, words.out)}
        for done in as_completed(begun):
            print(resolve_hyperparameters(begun[done], done, words.out), flush=True)


def resolve_hyperparameters(task: Any, done: "Future[list[Line]]", out: Path) -> str:
    """Keep what a task has found, and say it in a line; or why there is nothing to keep."""
    name = ", ".join(f"{value}" if isinstance(value, str) else f"{key} {value}" for key, value in asdict(task).items())
    try:
        lines = done.result()
    except ImportError as missing:
        return f"{name}: left out, {missing.name or missing} is not there"
    except Exception as wrong:  # one run's trouble is not the others'
        return f"{name}: failed with {type(wrong).__name__}: {wrong}"
    for line in lines:
        append(out, asdict(task) | line)
    scores = ", ".join(f"{line['score']:.4f}" for line in lines)
    return f"{name}: {scores}"


def reader(script: str, about: str | None, *, only: Sequence[str], who: Sequence[str]) -> argparse.ArgumentParser:
    """The words that all scripts of the tables understand."""
    words = argparse.ArgumentParser(prog=f"python -m benchmarks.{script}", description=about)
    words.add_argument("folder", type=Path, nargs="?", help="where the tables are")
    words.add_argument("--only", nargs="+", choices=only, default=list(only), help="these tables alone")
    words.add_argument("--who", nargs="+", choices=who, default=list(who), help="these alone")
    words.add_argument("--seeds", type=int, default=5)
    words.add_argument("--minutes", type=float, help="longest time for one to learn")
    words.add_argument("--rows", type=int, help="at most so many rows in each part, for trying out")
    words.add_argument("--threads", type=int, default=2, help="cores for each run")
    words.add_argument("--jobs", type=int, default=1, help="runs at a time")
    words.add_argument("--out", type=Path, default=Path(f"{script}.jsonl"), help="where results are added")
    words.add_argument("--table", type=Path, metavar="RESULTS", help="print what this file has, and run nothing")
    return words


def parsed(words: argparse.ArgumentParser) -> argparse.Namespace:
    told = words.parse_args()
    if not (told.folder or told.table):
        words.error("a folder of tables is wanted, or --table with results")
    return told
