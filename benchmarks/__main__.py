"""`python -m benchmarks`: everything this machine can measure, as text here and as Markdown in docs/benchmarks."""

import argparse
import tempfile
import warnings
from pathlib import Path

import torch

from benchmarks import (
    attention_sweep,
    bias_costs,
    decoding_costs,
    gpu_sweep,
    host_costs,
    import_cost,
    int8_cost,
    look_costs,
    model_costs,
    training_costs,
)
from benchmarks.report import FOLDER, Report
from benchmarks.timing import Deadline


def main() -> None:
    words = _words()
    warnings.simplefilter("ignore")  # a kernel that refuses says why at length
    torch.manual_seed(0)
    parts = set(words.only or "ABCDEFGHIJK")
    # Numbers that mean little stay out of the documentation.
    trial = Path(tempfile.gettempdir()) / "softlook-benchmarks"
    folder = words.folder or (trial if words.quick or words.dry else FOLDER)
    if words.dry or (torch.cuda.is_available() and not words.cpu):
        report = Report("cpu" if words.dry else "cuda", _command(words), folder)
        gpu_sweep.measure(report, Deadline(words.minutes), parts, dry=words.dry, quick=words.quick)
        _done(report)
    if not words.gpu and not words.dry and parts & set("ABCD"):
        _on_cpu(Report("cpu", _command(words), folder), parts, words.quick, Deadline(words.minutes))
    if not words.gpu and not words.dry and "I" in parts:
        report = Report("cpu", _command(words), folder, "models")
        model_costs.measure(report, Deadline(words.minutes), words.quick)
        _done(report)
    if not words.gpu and not words.dry and "J" in parts:
        report = Report("cpu", _command(words), folder, "training")
        training_costs.measure(report, Deadline(words.minutes), words.quick)
        _done(report)
    if not words.gpu and not words.dry and "K" in parts:
        report = Report("cpu", _command(words), folder, "decoding")
        decoding_costs.measure(report, Deadline(words.minutes), words.quick)
        asked = [] if words.run is None else [int8_cost.pairs(words.run, *words.pairs)]
        int8_cost.measure(report, [*int8_cost.dates(20 if words.quick else int8_cost.DATES), *asked])
        _done(report)


def _on_cpu(report: Report, parts: set[str], quick: bool, deadline: Deadline) -> None:
    if "A" in parts:
        attention_sweep.measure(report, deadline.share(0.55), quick)
        host_costs.overhead(report, "cpu", quick)
    if "B" in parts:
        look_costs.measure(report, "cpu", deadline.share(0.85), quick)
    if "C" in parts:
        bias_costs.measure(report, "cpu", deadline, quick)
    if "D" in parts:
        import_cost.measure(report, quick)
    report.say(f"Measured in {deadline.spent() / 60:.1f} minutes.")
    _done(report)


def _done(report: Report) -> None:
    report.write()
    print(f"\nwritten: {report.path.parent.name}/{report.path.name}", flush=True)


def _command(words: argparse.Namespace) -> str:
    """What was typed, without anybody's folders."""
    flags = [f"--{name}" for name in ("quick", "cpu", "gpu", "dry") if getattr(words, name)]
    told = [f"--only {words.only}"] if words.only else []
    told += [] if words.run is None else ["--run RUN --pairs SOURCE TARGET"]
    return " ".join(["python -m benchmarks", *flags, *told])


def _words() -> argparse.Namespace:
    reader = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    reader.add_argument("--quick", action="store_true", help="a few small cells, briefly: does it all still work?")
    which = reader.add_mutually_exclusive_group()
    which.add_argument("--cpu", action="store_true", help="only what runs on the CPU")
    which.add_argument("--gpu", action="store_true", help="only what runs on the GPU")
    which.add_argument("--dry", action="store_true", help="the GPU's script on the CPU, at sizes that mean nothing")
    reader.add_argument("--only", metavar="LETTERS", help="parts to run: A-D and I-K on the CPU, E-H on the GPU")
    reader.add_argument("--minutes", type=float, default=6.0, help="begin no new cell after this long")
    reader.add_argument("--folder", type=Path, help="where the Markdown goes; docs/benchmarks unless it is a trial")
    reader.add_argument("--run", type=Path, help="K: a run that translates, for what weights of one byte cost it")
    reader.add_argument("--pairs", nargs=2, type=Path, metavar=("SOURCE", "TARGET"), help="K: pairs it never saw")
    words = reader.parse_args()
    if (words.run is None) != (words.pairs is None):
        reader.error("--run and --pairs SOURCE TARGET belong together")
    return words


if __name__ == "__main__":
    main()
