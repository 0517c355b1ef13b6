"""`python -m benchmarks.tables DATA_DIR`: accuracy on the papers' datasets, compared with gradient boosting and rtdl.

DATA_DIR contains the datasets as CSV files. Results of every run (dataset, model, seed) are appended to --output as
soon as they are known, and are not computed again. `--report results.jsonl` prints the tables of such a file. Models
are scored on the test split; all of them, softlook's through `fit(..., eval_set=...)`, stop early on the validation
split.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.tables_baselines import DETERMINISTIC
from benchmarks.tables_data import FIXED_SPLITS, NAMES, evaluate
from benchmarks.tables_models import MODELS, NEURAL
from benchmarks.tables_results import Result, group_by, markdown_table, mean_std, read_results
from benchmarks.tables_runner import RunConfig, make_parser, parse_args, run_tasks

GOALS: dict[tuple[str, str], tuple[float, float]] = {
    ("california", "table-transformer"): (0.425, 0.0),
    ("california", "ft-transformer"): (0.4688, 0.004),
    ("adult", "table-transformer"): (0.874, 0.0),
    ("adult", "ft-transformer"): (0.8574, 0.001),
    ("covertype", "table-transformer"): (0.973, 0.0),
    ("covertype", "ft-transformer"): (0.966, 0.0),
    ("covertype", "ft-transformer-compiled"): (0.966, 0.0),
    ("bank", "table-transformer"): (0.934, 0.0),
    ("blastchar", "table-transformer"): (0.847, 0.0),
    ("income", "table-transformer"): (0.929, 0.0),
}
"""Target RMSE (or less), accuracy or AUC (or more), and its tolerance."""
BY_SIZE = ("blastchar", "california", "bank", "income", "adult", "covertype")


@dataclass(frozen=True)
class Task:
    """One run."""

    dataset: str
    model: str
    seed: int

    @property
    def cost(self) -> tuple[int, int, int]:
        """A rough sort key: the longest tasks start first, so that none is waited for at the end."""
        speed = 2 if self.model in NEURAL else 1 if self.model.startswith("catboost") else 0
        return BY_SIZE.index(self.dataset) + 2 * speed, speed, -self.seed

    @property
    def is_redundant(self) -> bool:
        """Whether the result is that of seed 0: a deterministic model on a fixed split."""
        return bool(self.seed) and self.dataset in FIXED_SPLITS and self.model in DETERMINISTIC


def run(task: Task, config: RunConfig) -> list[Result]:
    """Fit on the training split and score on the test split."""
    dataset, start = config.load(task.dataset, task.seed), time.perf_counter()
    fitted = MODELS[task.model](dataset, config.fit_params(task.seed))
    fit_end = time.perf_counter()
    metrics = evaluate(dataset, fitted.predict(dataset.test.frame))
    result = {
        "metric": dataset.metric,
        "score": metrics[dataset.metric],
        "fit_seconds": fit_end - start,
        "predict_seconds": time.perf_counter() - fit_end,
        "hardware": config.hardware(task.model),
        "time_limit": config.time_limit,
        "metrics": metrics,
        "rows": [len(split) for split in dataset.splits],
        "info": fitted.info,
    }
    return [result]


def make_tasks(args: argparse.Namespace) -> list[Task]:
    """All tasks, the longest first."""
    tasks = [
        Task(dataset, model, seed) for dataset in args.datasets for model in args.models for seed in range(args.seeds)
    ]
    return sorted((task for task in tasks if not task.is_redundant), key=lambda task: task.cost, reverse=True)


def report(results: list[Result]) -> Iterator[str]:
    """A Markdown table for each dataset, the best model first."""
    for (dataset, metric), own in group_by(results, "dataset", "metric").items():
        groups = {model: group for (model,), group in group_by(own, "model").items()}
        best_first = sorted(groups, key=lambda model: _mean(groups[model], "score"), reverse=metric != "RMSE")
        header = ["model", metric, "goal", "fit, s", "predict, s", "runs", "hardware"]
        yield f"### {dataset}\n\n{markdown_table(header, [_row(dataset, name, groups[name]) for name in best_first])}\n"


def _row(dataset: str, model: str, results: list[Result]) -> list[str]:
    score = mean_std([result["score"] for result in results])
    seconds = [f"{_mean(results, 'fit_seconds'):.0f}", f"{_mean(results, 'predict_seconds'):.2f}"]
    hardware = ", ".join(sorted({result["hardware"] for result in results}))
    return [model, score, goal(dataset, model, results), *seconds, str(len(results)), hardware]


def goal(dataset: str, model: str, results: list[Result]) -> str:
    """The goal, and whether the mean score reaches it; empty if there is none."""
    if (dataset, model) not in GOALS:
        return ""
    lower_is_better, (target, tolerance) = results[0]["metric"] == "RMSE", GOALS[dataset, model]
    margin = (_mean(results, "score") - target) * (-1 if lower_is_better else 1)
    bound = f"{'≤' if lower_is_better else '≥'} {target}{f' ± {tolerance}' if tolerance else ''}"
    return f"{bound}: {'reached' if margin >= -tolerance else 'missed'}"


def _mean(results: list[Result], key: str) -> float:
    return statistics.mean(result[key] for result in results)


def main() -> None:
    args = parse_args(make_parser("tables", __doc__, datasets=NAMES, models=list(MODELS)))
    if args.report:
        print("\n".join(report(read_results(args.report))))
    else:
        run_tasks(run, make_tasks(args), args)


if __name__ == "__main__":
    main()
