"""`python -m benchmarks`: run all benchmarks that this machine supports and write the results to docs/benchmarks."""

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
    trace_costs,
    training_costs,
)
from benchmarks.report import FOLDER, Report
from benchmarks.timing import Deadline

ALL_PARTS = "ABCDEFGHIJKL"


def main() -> None:
    args = _parse_args()
    warnings.simplefilter("ignore")  # torch explains at length why a kernel is unsupported
    torch.manual_seed(0)
    parts = set(args.only or ALL_PARTS)
    # Results of trial runs are not added to the documentation.
    trial = Path(tempfile.gettempdir()) / "softlook-benchmarks"
    folder = args.folder or (trial if args.quick or args.dry else FOLDER)
    if args.dry or (torch.cuda.is_available() and not args.cpu):
        report = Report("cpu" if args.dry else "cuda", _command(args), folder)
        gpu_sweep.measure(report, Deadline(args.minutes), parts, dry=args.dry, quick=args.quick)
        _finish(report)
    if args.gpu or args.dry:
        return
    if parts & set("ABCDH"):
        _run_on_cpu(Report("cpu", _command(args), folder), parts, args.quick, Deadline(args.minutes))
    if "I" in parts:
        report = Report("cpu", _command(args), folder, "models")
        model_costs.measure(report, Deadline(args.minutes), args.quick)
        _finish(report)
    if "J" in parts:
        report = Report("cpu", _command(args), folder, "training")
        training_costs.measure(report, Deadline(args.minutes), args.quick)
        _finish(report)
    if "K" in parts:
        report = Report("cpu", _command(args), folder, "decoding")
        decoding_costs.measure(report, Deadline(args.minutes), args.quick)
        translation = [] if args.run is None else [int8_cost.translation_data(args.run, *args.pairs)]
        int8_cost.measure(report, [*int8_cost.dates(20 if args.quick else int8_cost.N_DATES), *translation])
        _finish(report)
    if "L" in parts:
        report = Report("cpu", _command(args), folder, "trace")
        trace_costs.measure(report, args.quick)
        _finish(report)


def _run_on_cpu(report: Report, parts: set[str], quick: bool, deadline: Deadline) -> None:
    if "A" in parts:
        attention_sweep.measure(report, deadline.fraction(0.55), quick)
    if "H" in parts:
        host_costs.overhead(report, "cpu", quick)
    if "B" in parts:
        look_costs.measure(report, "cpu", deadline.fraction(0.85), quick)
    if "C" in parts:
        bias_costs.measure(report, "cpu", deadline, quick)
    if "D" in parts:
        import_cost.measure(report, quick)
    report.text(f"Measured in {deadline.elapsed() / 60:.1f} minutes.")
    _finish(report)


def _finish(report: Report) -> None:
    report.write()
    print(f"\nwritten: {report.path.parent.name}/{report.path.name}", flush=True)


def _command(args: argparse.Namespace) -> str:
    """The command line without paths."""
    flags = [f"--{name}" for name in ("quick", "cpu", "gpu", "dry") if getattr(args, name)]
    options = [f"--only {args.only}"] if args.only else []
    options += [] if args.run is None else ["--run RUN --pairs SOURCE TARGET"]
    return " ".join(["python -m benchmarks", *flags, *options])


def _parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few small cases, to test the scripts")
    device = parser.add_mutually_exclusive_group()
    device.add_argument("--cpu", action="store_true", help="only the CPU benchmarks")
    device.add_argument("--gpu", action="store_true", help="only the GPU benchmarks")
    device.add_argument("--dry", action="store_true", help="the GPU benchmarks on the CPU with tiny sizes, as a test")
    parser.add_argument("--only", metavar="LETTERS", help="parts to run: A-D and H-L on the CPU, E-H on the GPU")
    parser.add_argument("--minutes", type=float, default=6.0, help="no new case starts after this time")
    parser.add_argument(
        "--folder", type=Path, help="directory of the Markdown file; default: docs/benchmarks, and /tmp for trial runs"
    )
    parser.add_argument("--run", type=Path, help="K: a translation run whose int8 accuracy is measured")
    parser.add_argument(
        "--pairs", nargs=2, type=Path, metavar=("SOURCE", "TARGET"), help="K: held-out sentence pairs for --run"
    )
    args = parser.parse_args()
    if (args.run is None) != (args.pairs is None):
        parser.error("--run and --pairs SOURCE TARGET must be used together")
    return args


if __name__ == "__main__":
    main()
