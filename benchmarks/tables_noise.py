"""`python -m benchmarks.tables_noise DATA_DIR`: robustness to noisy and missing cells, compared with gradient boosting.

A fraction of all cells, 0 to 70 %, is replaced by the value of another row in the same column, or removed: in the test
rows only, after training on clean rows, and in all rows. `--report FILE` prints the tables of a results file, and
`--figure noise.svg` plots them.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas

from benchmarks.tables_data import Dataset, Split, evaluate
from benchmarks.tables_figure import Panel, figure
from benchmarks.tables_models import MODELS
from benchmarks.tables_results import Result, group_by, markdown_table, mean_std, read_results
from benchmarks.tables_runner import RunConfig, make_parser, parse_args, run_tasks

FRACTIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
CORRUPTIONS = ("noisy", "missing")
TRAINING = ("clean", *CORRUPTIONS)
DATASETS = ("adult", "bank", "blastchar")
MODEL_ORDER = list(MODELS)
TEST_ONLY, TRAIN_AND_TEST = "in test rows", "in training and test rows"


@dataclass(frozen=True)
class Task:
    dataset: str
    model: str
    seed: int
    training: str
    """Corruption of the training rows, or "clean"."""
    training_fraction: float


def corrupt(frame: pandas.DataFrame, corruption: str, fraction: float, seed: int) -> pandas.DataFrame:
    """A frame with this fraction of noisy or missing cells; those of a smaller fraction are a subset."""
    rng = np.random.default_rng(seed)
    columns = {}
    for name in frame.columns:
        mask, permutation = rng.random(len(frame)) < fraction, rng.permutation(len(frame))
        column = frame[name]
        permuted = column.iloc[permutation].reset_index(drop=True)
        columns[name] = column.mask(mask, permuted) if corruption == "noisy" else column.mask(mask)
    return pandas.DataFrame(columns)


def corrupt_training(dataset: Dataset, corruption: str, fraction: float, seed: int) -> Dataset:
    """The dataset with corrupted training and validation rows; the test rows do not change."""
    train, validation = (
        Split(corrupt(split.frame, corruption, fraction, 2 * seed + index), split.targets)
        for index, split in enumerate((dataset.train, dataset.validation))
    )
    return replace(dataset, train=train, validation=validation)


def run(task: Task, config: RunConfig) -> list[Result]:
    """Fit once; score with every corruption of the test rows, or with that of the training rows."""
    dataset = config.load(task.dataset, task.seed)
    if task.training == "clean":
        training = dataset
        tests = [(corruption, fraction) for corruption in CORRUPTIONS for fraction in FRACTIONS]
    else:
        training = corrupt_training(dataset, task.training, task.training_fraction, task.seed)
        tests = [(task.training, task.training_fraction)]
    fitted = MODELS[task.model](training, config.fit_params(task.seed))
    results = []
    for corruption, fraction in tests:
        frame = corrupt(dataset.test.frame, corruption, fraction, 1000 + task.seed)
        score = evaluate(dataset, fitted.predict(frame))[dataset.metric]
        results.append({"corruption": corruption, "fraction": fraction, "metric": dataset.metric, "score": score})
    return results


def report(results: list[Result]) -> Iterator[str]:
    """A Markdown table for each dataset and corruption, with one row per fraction."""
    for (dataset, corruption, where), own in group_by(to_curves(results), "dataset", "corruption", "where").items():
        models = list(dict.fromkeys(result["model"] for result in own))
        cells = {
            key: mean_std([result["score"] for result in group])
            for key, group in group_by(own, "fraction", "model").items()
        }
        rows = [[f"{fraction:.0%}", *(cells.get((fraction, model), "") for model in models)] for fraction in FRACTIONS]
        title = f"### {dataset}: {corruption} cells {where} ({own[0]['metric']})"
        yield f"{title}\n\n{markdown_table(['fraction', *models], rows)}\n"


def panels(results: list[Result]) -> list[Panel]:
    """The same as curves."""
    found = []
    for (dataset, corruption, where), own in group_by(to_curves(results), "dataset", "corruption", "where").items():
        curves = {}
        for (model,), group in group_by(own, "model").items():
            points = group_by(group, "fraction")
            curves[model] = [
                (fraction, float(np.mean([result["score"] for result in points[fraction,]])))
                for (fraction,) in sorted(points)
            ]
        found.append(Panel(f"{dataset}, {own[0]['metric']}: {corruption} {where}", curves))
    return found


def to_curves(results: list[Result]) -> list[Result]:
    """Results with the curve they belong to, in the order of the models; without corruption, they start both curves."""
    clean = [result | {"where": TEST_ONLY} for result in results if result["training"] == "clean"]
    corrupted = [result | {"where": TRAIN_AND_TEST} for result in results if result["training"] != "clean"]
    pairs = {(result["dataset"], result["corruption"]) for result in corrupted}
    starts = [
        result | {"where": TRAIN_AND_TEST}
        for result in clean
        if not result["fraction"] and (result["dataset"], result["corruption"]) in pairs
    ]
    return sorted(
        clean + corrupted + starts,
        key=lambda result: (result["dataset"], result["where"] != TEST_ONLY, MODEL_ORDER.index(result["model"])),
    )


def make_tasks(args: argparse.Namespace) -> Iterator[Task]:
    """All tasks; training on clean rows first, which gives half of the curves."""
    training = [("clean", 0.0), *((corruption, fraction) for corruption in CORRUPTIONS for fraction in FRACTIONS[1:])]
    for seed in range(args.seeds):
        for corruption, fraction in (one for one in training if one[0] in args.training):
            yield from (
                Task(dataset, model, seed, corruption, fraction) for dataset in args.datasets for model in args.models
            )


def main() -> None:
    parser = make_parser("tables_noise", __doc__, datasets=DATASETS, models=MODEL_ORDER)
    parser.set_defaults(models=["table-transformer", "lightgbm", "histgb"], seeds=3)
    parser.add_argument("--figure", type=Path, help="plot the results as SVG")
    parser.add_argument(
        "--training", nargs="+", choices=TRAINING, default=list(TRAINING), help="corruptions of the training rows"
    )
    args = parse_args(parser)
    if not args.report:
        run_tasks(run, list(make_tasks(args)), args)
    results = read_results(args.report or args.output)
    print("\n".join(report(results)))
    if args.figure:
        svg = figure(panels(results), title="Noisy and missing cells", x_label="fraction of cells")
        args.figure.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
