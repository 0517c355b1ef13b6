"""`python -m benchmarks.tables_importance DATA_DIR`: does attention importance agree with permutation importance?

On California, as in the FT-Transformer paper (section 5.3): Spearman's rank correlation between attention and
permutation importance on the training rows (0.81 ± 0.05 in the paper). And a synthetic dataset with one informative
column of four, which both must rank first.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas

from benchmarks.tables_data import Dataset, Split
from benchmarks.tables_models import make_estimator
from benchmarks.tables_results import Result, group_by, markdown_table, mean_std, read_results
from benchmarks.tables_runner import RunConfig, make_parser, parse_args, run_tasks

GOAL = 0.81
INFORMATIVE = "a"
REPEATS = 5
METHODS = ("attention", "permutation")


@dataclass(frozen=True)
class Task:
    dataset: str
    model: str
    seed: int


def make_synthetic(seed: int, rows: int = 2000) -> Dataset:
    """Two numbers and two categories; the first number determines the class, with 1 in 30 labels flipped.

    Numbers become tokens before categories do, so a wrong mapping of tokens to columns names the wrong column.
    """
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame(
        {
            "c": rng.choice(["red", "green", "blue"], rows),
            INFORMATIVE: rng.normal(size=rows),
            "d": rng.choice(["yes", "no"], rows),
            "b": rng.normal(size=rows),
        }
    )
    targets = (frame[INFORMATIVE].to_numpy() > 0) ^ (rng.random(rows) < 1 / 30)
    whole = Split(frame, targets.astype(np.int64))
    indices = np.split(np.arange(rows), [rows * 6 // 10, rows * 8 // 10])
    return Dataset("synthetic", "accuracy", *(whole.take(some) for some in indices))


def run(task: Task, config: RunConfig) -> list[Result]:
    """Fit, and compare both importances."""
    if task.dataset == "synthetic":
        dataset = make_synthetic(task.seed).head(config.max_rows)
    else:
        dataset = config.load(task.dataset, task.seed)
    train, validation, test = dataset.splits
    model = make_estimator(task.model, dataset, config.fit_params(task.seed))
    model.fit(train.frame, train.targets, eval_set=(validation.frame, validation.targets))
    found = model.importances(train.frame, train.targets, repeats=REPEATS, random_state=task.seed)
    return [
        {
            "score": found.correlation,
            "test_score": float(model.score(test.frame, test.targets)),
            "first_by_attention": found.names[int(found.attention.argmax())],
            "first_by_permutation": found.names[int(found.permutation.argmax())],
            "attention": dict(zip(found.names, found.attention.tolist(), strict=True)),
            "permutation": dict(zip(found.names, found.permutation.tolist(), strict=True)),
        }
    ]


def report(results: list[Result]) -> Iterator[str]:
    """Markdown tables: rank correlations, the synthetic dataset, and the importance of each column."""
    rows = []
    real = [result for result in results if result["dataset"] != "synthetic"]
    for (dataset, model), group in group_by(real, "dataset", "model").items():
        mean = float(np.mean([result["score"] for result in group]))
        goal = f"≥ {GOAL}: {'reached' if mean >= GOAL else 'missed'}"
        rows.append([dataset, model, mean_std([result["score"] for result in group], 2), goal, str(len(group))])
    yield markdown_table(["dataset", "model", "Spearman, attention and permutation", "goal", "runs"], rows) + "\n"
    rows = []
    synthetic = [result for result in results if result["dataset"] == "synthetic"]
    for (model,), group in group_by(synthetic, "model").items():
        correct = [sum(result[f"first_by_{method}"] == INFORMATIVE for result in group) for method in METHODS]
        fraction = mean_std([result["attention"][INFORMATIVE] for result in group], 2)
        rows.append([model, *(f"{count} of {len(group)}" for count in correct), fraction])
    header = ["synthetic", "informative column first by attention", "by permutation", "its fraction of the attention"]
    yield markdown_table(header, rows) + "\n"
    for (dataset, model), group in group_by(results, "dataset", "model").items():
        yield _columns(dataset, model, group)


def _columns(dataset: str, model: str, group: list[Result]) -> str:
    means = {
        method: {name: float(np.mean([result[method][name] for result in group])) for name in group[0][method]}
        for method in METHODS
    }
    order = sorted(means["permutation"], key=lambda name: means["permutation"][name], reverse=True)
    rows = [[name, *(f"{means[method][name]:.4f}" for method in METHODS)] for name in order]
    return markdown_table([f"{dataset}, {model}", *METHODS], rows) + "\n"


def main() -> None:
    datasets, models = ("california", "synthetic"), ("table-transformer", "ft-transformer")
    args = parse_args(make_parser("tables_importance", __doc__, datasets=datasets, models=models))
    if not args.report:
        tasks = [
            Task(dataset, model, seed)
            for dataset in args.datasets
            for model in args.models
            for seed in range(args.seeds)
        ]
        run_tasks(run, tasks, args)
    print("\n".join(report(read_results(args.report or args.output))))


if __name__ == "__main__":
    main()
