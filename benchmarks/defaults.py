"""`python -m benchmarks.defaults`: `softlook train` with its defaults on public texts, each with a time limit.

Every run is the command that a user types, in a process of its own. The table shows the wall time of the whole command
beside its limit, and the score on the test data, or else on the validation data, beside the best baseline of the run's
report; for classifiers also scikit-learn's TF-IDF of one- and two-grams with logistic regression on the same files.
`--load N` keeps N cores busy with other processes meanwhile, `--examples N` trains on the first N examples, and
`--init-from FOLDER` fine-tunes pretrained weights.
"""

import argparse
import csv
import gzip
import json
import multiprocessing
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SHARED = Path("../shared/data")
METRICS = {"classify": "accuracy", "lm": "bits_per_byte", "mlm": "loss", "translate": "bleu"}
LOWER_IS_BETTER = ("loss", "bits_per_byte")
HEADER = ("data", "task", "lines", "limit, s", "wall, s", "score", "softlook", "validation", "baseline", "scikit-learn")


@dataclass(frozen=True)
class Case:
    """A training run: the data, and how many examples of it are used."""

    name: str
    task: str
    train: str
    test: str = ""
    examples: int | None = None
    options: tuple[str, ...] = ()


CASES = (
    Case("R8 news", "classify", "text/classify/r8.train.tsv.gz", "text/classify/r8.test.tsv.gz"),
    Case("TREC questions", "classify", "text/classify/trec.train.tsv.gz", "text/classify/trec.test.tsv.gz"),
    Case("WebKB pages", "classify", "text/classify/webkb.train.tsv.gz", "text/classify/webkb.test.tsv.gz"),
    Case("MR sentences", "classify", "text/classify/mr.train.tsv.gz", "text/classify/mr.test.tsv.gz"),
    Case("SST-2", "classify", "text/sst2/train.tsv.gz", "text/sst2/test.tsv.gz"),
    Case(
        "Clothing reviews",
        "classify",
        "tab/womens_clothing/womens_clothing.csv.gz",
        options=("--text", "Review Text", "--label", "Recommended IND"),
    ),
    Case("SST-2, 1,000 sentences", "classify", "text/sst2/train.tsv.gz", "text/sst2/test.tsv.gz", 1000),
    Case("Shakespeare", "lm", "text/tinyshakespeare/input.txt"),
    Case("Shakespeare, 1,000 lines", "lm", "text/tinyshakespeare/input.txt", examples=1000),
    Case("Shakespeare, masked", "mlm", "text/tinyshakespeare/input.txt"),
    Case("Tatoeba en-es", "translate", "text/tatoeba-spa-eng/spa.txt.gz"),
    Case("Tatoeba en-es, 1,000 pairs", "translate", "text/tatoeba-spa-eng/spa.txt.gz", examples=1000),
)


def main() -> None:
    args = _parse_args()
    cases = [case for case in CASES if not args.only or any(name in case.name for name in args.only)]
    init_from = () if args.init_from is None else ("--init-from", str(args.init_from))
    cases = [
        replace(case, examples=args.examples or case.examples, options=(*case.options, *init_from)) for case in cases
    ]
    print(f"{date.today()}, {platform.machine()}, {os.cpu_count()} cores, {args.load} of them busy", flush=True)
    print("| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER), flush=True)
    with busy_cores(args.load):
        for case in cases:
            for seed in args.seeds:
                outcome = measure(case, args.data_dir, args.minutes, seed)
                print("| " + " | ".join(cells(case, outcome, args.minutes)) + " |", flush=True)


@dataclass(frozen=True)
class Outcome:
    """The result of one command."""

    examples: int
    wall_seconds: float
    score: float
    baseline: float | None
    """The best baseline of the run's report, on the validation data."""
    validation: float
    """The score that the baseline is compared with."""
    linear: float | None = None
    """scikit-learn's linear model on the test data."""


def measure(case: Case, data_dir: Path, minutes: float, seed: int) -> Outcome:
    """Run one command."""
    with TemporaryDirectory() as folder:
        train = write_examples(data_dir / case.train, Path(folder), case.task, case.examples)
        test = data_dir / case.test if case.test else None
        command = [sys.executable, "-m", "softlook", "train", case.task, "--data", str(train), "--json"]
        command += ["--training.max-minutes", str(minutes), "--training.seed", str(seed), "--run-dir", f"{folder}/run"]
        command += ["--loggers", "none", *case.options, *(["--test", str(test)] if test else [])]
        began = time.monotonic()
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
        wall = time.monotonic() - began
        if completed.returncode:
            raise SystemExit(f"{' '.join(command)}\n{completed.stderr}")
        scores = json.loads(completed.stdout.splitlines()[-1])["scores"]
        metric, rows = METRICS[case.task], scores.get("compared", [])
        linear = score_linear(train, test) if test and case.task == "classify" else None
        compared = [row[metric] for row in rows[1:] if metric in row]
        best = (min if metric in LOWER_IS_BETTER else max)(compared, default=None)
        validation = rows[0][metric] if rows else own_score(scores, metric)
        return Outcome(count_examples(train), wall, own_score(scores, metric), best, validation, linear)


def cells(case: Case, outcome: Outcome, minutes: float) -> list[str]:
    """The row of an outcome."""
    numbers = (outcome.score, outcome.validation, outcome.baseline, outcome.linear)
    times = (f"{outcome.examples:,}", f"{60 * minutes:.0f}", f"{outcome.wall_seconds:.0f}")
    return [case.name, case.task, *times, METRICS[case.task], *map(format_score, numbers)]


def own_score(scores: dict[str, Any], metric: str) -> float:
    """The score on the test data or, without any, on the validation data."""
    parts = [scores.get("test", {}), scores.get("validation", {}), scores]
    return next(part[metric] for part in parts if metric in part)


def score_linear(train: Path, test: Path) -> float:
    """Test accuracy of scikit-learn's TF-IDF of one- and two-grams with logistic regression."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: PLC0415  (an optional package)
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415

    (texts, labels), (test_texts, test_labels) = read_labeled(train), read_labeled(test)
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    model = make_pipeline(vectorizer, LogisticRegression(C=10, max_iter=1000)).fit(texts, labels)
    return float(model.score(test_texts, test_labels))


def read_labeled(path: Path) -> tuple[list[str], list[str]]:
    """Texts and labels of a TSV file."""
    csv.field_size_limit(1 << 30)
    rows = list(csv.DictReader(read_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE))
    text = "text" if "text" in rows[0] else "sentence"
    return [row[text] for row in rows], [row["label"] for row in rows]


def count_examples(path: Path) -> int:
    """The lines of a file."""
    return sum(1 for _ in read_lines(path))


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a file."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        yield from file


def write_examples(path: Path, folder: Path, task: str, count: int | None) -> Path:
    """A copy of the data, or of its first examples, with the suffix that its contents have."""
    target = folder / path.name.removesuffix(".gz")
    target = target.with_suffix(".tsv") if task == "translate" else target
    target.write_text("".join(islice(read_lines(path), None if count is None else count + 1)), encoding="utf-8")
    return target


def format_score(score: float | None) -> str:
    return "" if score is None else f"{score:.4f}" if score < 10 else f"{score:.2f}"


@contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """Keep so many cores busy inside the context."""
    workers = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(count)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()


def _spin() -> None:
    while True:
        pass


def _parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=SHARED, help="folder of the public data sets")
    parser.add_argument("--minutes", type=float, default=2.0, help="time limit of each run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--only", nargs="+", help="parts of names of the cases to run")
    parser.add_argument("--examples", type=int, help="train on the first examples only")
    parser.add_argument("--init-from", type=Path, help="folder of pretrained weights to fine-tune")
    parser.add_argument("--load", type=int, default=0, help="cores to keep busy with other processes")
    args = parser.parse_args(arguments)
    if not args.data_dir.is_dir():
        parser.error(f"{args.data_dir} does not exist: name the folder of the data sets with --data-dir")
    return args


if __name__ == "__main__":
    main()
