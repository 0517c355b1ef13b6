"""Runs the tasks of a tabular benchmark in parallel and stores every result as soon as it is known.

A task is a frozen dataclass. Tasks whose results are in the output file already are not run again.
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

from benchmarks.tables_baselines import FitParams
from benchmarks.tables_data import Dataset, load_dataset
from benchmarks.tables_models import NEURAL
from benchmarks.tables_results import Result, append_result, read_results


@dataclass(frozen=True)
class RunConfig:
    """Settings of all tasks of a benchmark."""

    data_dir: Path
    threads: int = 1
    time_limit: float | None = None
    max_rows: int | None = None
    cpu_time: bool = False
    """Whether seconds are those of the process's CPU time, on a machine that other processes use."""

    def load(self, name: str, seed: int) -> Dataset:
        return load_dataset(self.data_dir, name, seed).head(self.max_rows)

    def fit_params(self, seed: int) -> FitParams:
        torch.set_num_threads(self.threads)
        return FitParams(seed, self.threads, self.time_limit)

    def hardware(self, model: str) -> str:
        """The hardware that a model is trained on."""
        if model in NEURAL and torch.cuda.is_available():
            return torch.cuda.get_device_name()
        return f"{self.threads} of {os.cpu_count()} cores, {platform.machine()}"


RunTask = Callable[[Any, RunConfig], list[Result]]


def pending_tasks(tasks: Iterable[Any], output: Path) -> list[Any]:
    """Tasks without a result in the file."""
    done = read_results(output)
    return [task for task in tasks if not any(asdict(task).items() <= _scalars(result).items() for result in done)]


def _scalars(result: Result) -> Result:
    return {key: value for key, value in result.items() if not isinstance(value, dict | list)}


def run_tasks(run: RunTask, tasks: Sequence[Any], args: argparse.Namespace) -> None:
    """Run pending tasks in the given order; a task whose library is not installed is skipped with a message."""
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    config = RunConfig(
        args.data_dir, args.threads, args.max_minutes and 60 * args.max_minutes, args.max_rows, args.cpu_time
    )
    with ProcessPoolExecutor(args.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(run, task, config): task for task in pending_tasks(tasks, args.output)}
        for future in as_completed(futures):
            print(store_results(futures[future], future, args.output), flush=True)


def store_results(task: Any, future: "Future[list[Result]]", output: Path) -> str:
    """Append the results of a task to the file; returns the scores, or the error, as a message."""
    name = ", ".join(f"{value}" if isinstance(value, str) else f"{key} {value}" for key, value in asdict(task).items())
    try:
        results = future.result()
    except ImportError as error:
        return f"{name}: skipped, {error.name or error} is not installed"
    except Exception as error:  # the other tasks still run
        return f"{name}: failed with {type(error).__name__}: {error}"
    for result in results:
        append_result(output, asdict(task) | result)
    scores = ", ".join(f"{result['score']:.4f}" for result in results)
    return f"{name}: {scores}"


def make_parser(
    script: str, description: str | None, *, datasets: Sequence[str], models: Sequence[str]
) -> argparse.ArgumentParser:
    """The arguments that all tabular benchmarks share."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{script}", description=description)
    parser.add_argument("data_dir", type=Path, nargs="?", help="directory of the datasets")
    parser.add_argument("--datasets", nargs="+", choices=datasets or None, default=list(datasets), help="default: all")
    parser.add_argument("--models", nargs="+", choices=models, default=list(models), help="default: all")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--max-minutes", type=float, help="time limit of a fit")
    parser.add_argument(
        "--cpu-time", action="store_true", help="count seconds of CPU time, on a machine that other processes use"
    )
    parser.add_argument("--max-rows", type=int, help="maximum number of rows of each split, for a trial run")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of each task")
    parser.add_argument("--jobs", type=int, default=1, help="tasks that run in parallel")
    parser.add_argument(
        "--output", type=Path, default=Path(f"{script}.jsonl"), help="results are appended to this file"
    )
    parser.add_argument(
        "--report", type=Path, metavar="RESULTS", help="print the tables of a results file; run nothing"
    )
    return parser


def parse_args(parser: argparse.ArgumentParser) -> argparse.Namespace:
    args = parser.parse_args()
    if not (args.data_dir or args.report):
        parser.error("the directory of the datasets is required, or --report RESULTS")
    return args
