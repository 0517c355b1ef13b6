"""`python -m benchmarks.tables_few_labels DATA_DIR`: 50, 200 and 500 labels, and many unlabelled rows.

The protocol of the TabTransformer paper (Huang et al. 2020): five splits of 65 / 15 / 20, a few labels of the training
split, and the whole split without labels for models that can be pretrained: softlook's, by predicting masked cells
("mlm") or detecting replaced ones ("rtd"). No model sees other labels: softlook's get no validation rows, and gradient
boosting, which requires some for early stopping, uses a fifth of the few labels. With `--validation` all models stop
early on the validation split, as in the paper; but few users with 50 labels have 2,000 more for validation.
"""

import copy
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from benchmarks.tables_baselines import BASELINES, FitParams, FittedModel
from benchmarks.tables_data import RANDOM_SPLITS, Dataset, evaluate, stratified_split
from benchmarks.tables_models import make_estimator, prediction_function
from benchmarks.tables_results import Result, group_by, markdown_table, mean_std, read_results
from benchmarks.tables_runner import RunConfig, make_parser, parse_args, run_tasks

LABEL_COUNTS = (50, 200, 500)
SOFTLOOK = {
    f"{model}{f'-{pretext}' if pretext else ''}": (model, pretext)
    for model in ("table-transformer", "tab-transformer")
    for pretext in (None, "mlm", "rtd")
}
"""Model and pretext task."""
MODELS = (*SOFTLOOK, "lightgbm", "catboost", "histgb", "linear")
PUBLISHED = {
    "income": {"RTD": (0.840, 0.866, 0.874), "MLM": (0.862, 0.875, 0.880), "GBDT (PL)": (0.685, 0.822, 0.839)},
    "bank": {"RTD": (0.771, 0.854, 0.879), "MLM": (0.735, 0.838, 0.866), "GBDT (PL)": (0.688, 0.802, 0.838)},
    "blastchar": {"RTD": (0.806, 0.831, 0.840), "MLM": (0.822, 0.841, 0.839), "GBDT (PL)": (0.729, 0.783, 0.795)},
}
"""The paper's AUC by number of labels: TabTransformer with both pretext tasks, and boosting with pseudo-labels."""


@dataclass(frozen=True)
class Task:
    dataset: str
    model: str
    seed: int
    validation: Literal["labels", "split"]
    """Rows for early stopping: some of the few labels, or the validation split."""


def keep_labels(dataset: Dataset, labels: int, seed: int) -> Dataset:
    """The dataset with so many training rows, stratified by class."""
    return replace(dataset, train=dataset.train.take(stratified_split(dataset.train.targets, labels, seed)[1]))


def validate_on_train(dataset: Dataset, seed: int) -> Dataset:
    """The dataset with a fifth of its training rows as the validation split."""
    rest, held_out = stratified_split(dataset.train.targets, 0.2, seed)
    return replace(dataset, train=dataset.train.take(rest), validation=dataset.train.take(held_out))


def run(task: Task, config: RunConfig) -> list[Result]:
    """Pretrain once on all rows, if the model can; then fit and score with each number of labels."""
    dataset, params = config.load(task.dataset, task.seed), config.fit_params(task.seed)
    pretrained = pretrain(task.model, dataset, params) if task.model in SOFTLOOK else None
    base_model = SOFTLOOK[task.model][0] if task.model in SOFTLOOK else task.model
    results = []
    for labels in LABEL_COUNTS:
        few = keep_labels(dataset, labels, task.seed)
        if pretrained is not None:
            fitted = _fit(pretrained, few, task.validation)
        else:
            few = few if task.validation == "split" else validate_on_train(few, task.seed)
            fitted = BASELINES[task.model](few, params)
        score = evaluate(dataset, fitted.predict(dataset.test.frame))["AUC"]
        results.append({"labels": labels, "score": score, "hardware": config.hardware(base_model), "info": fitted.info})
    return results


def pretrain(name: str, dataset: Dataset, params: FitParams) -> Any:
    """An estimator pretrained on all training rows without labels, if the name includes a pretext task."""
    model, pretext = SOFTLOOK[name]
    estimator = make_estimator(model, dataset, params)
    return estimator.pretrain(dataset.train.frame, task=pretext) if pretext else estimator


def _fit(pretrained: Any, few: Dataset, validation: str) -> FittedModel:
    model = copy.deepcopy(pretrained)
    eval_set = (few.validation.frame, few.validation.targets) if validation == "split" else None
    model.fit(few.train.frame, few.train.targets, eval_set=eval_set)
    return FittedModel(prediction_function(model, few), {"epochs": model.n_iter_})


def report(results: list[Result]) -> Iterator[str]:
    """A Markdown table for each dataset, with the paper's figures below."""
    for (dataset, validation), own in group_by(results, "dataset", "validation").items():
        rows = []
        for (model,), group in group_by(own, "model").items():
            scores = {
                labels: [result["score"] for result in some] for (labels,), some in group_by(group, "labels").items()
            }
            cells = [mean_std(scores[labels], 3) if labels in scores else "" for labels in LABEL_COUNTS]
            rows.append([model, *cells, str(max(map(len, scores.values())))])
        rows += [[f"paper: {name}", *(f"{auc:.3f}" for auc in aucs), "5"] for name, aucs in PUBLISHED[dataset].items()]
        title = f"{dataset}, AUC, early stopping on the {'validation split' if validation == 'split' else 'labels'}"
        yield markdown_table([title, *(f"{labels} labels" for labels in LABEL_COUNTS), "runs"], rows) + "\n"
        yield _gains(own) + "\n"


def _gains(results: list[Result]) -> str:
    """The mean gain of pretraining on the same labels."""
    gains = []
    scores = {key: group[0]["score"] for key, group in group_by(results, "model", "seed", "labels").items()}
    for name, (model, pretext) in SOFTLOOK.items():
        pairs = [
            (scores[key], scores[model, *key[1:]]) for key in scores if key[0] == name and (model, *key[1:]) in scores
        ]
        if pretext and pairs:
            better = sum(one > other for one, other in pairs)
            mean = statistics.mean(one - other for one, other in pairs)
            gains.append(f"{name} {mean:+.3f} over {model}, better in {better} of {len(pairs)}")
    return "; ".join(gains)


def main() -> None:
    parser = make_parser("tables_few_labels", __doc__, datasets=list(RANDOM_SPLITS), models=MODELS)
    parser.add_argument("--validation", action="store_true", help="stop early on the validation split, as in the paper")
    args = parse_args(parser)
    if not args.report:
        validation = "split" if args.validation else "labels"
        tasks = [
            Task(dataset, model, seed, validation)
            for dataset in args.datasets
            for model in args.models
            for seed in range(args.seeds)
        ]
        run_tasks(run, tasks, args)
    print("\n".join(report(read_results(args.report or args.output))))


if __name__ == "__main__":
    main()
