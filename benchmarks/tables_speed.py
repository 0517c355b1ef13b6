"""`python -m benchmarks.tables_speed DATA_DIR`: speed of FT-Transformer and of its authors' implementation (rtdl).

DATA_DIR contains california_housing, adult and covertype as CSV files. Both models start from equal weights. First both
are trained without dropout on the same batches and their losses are compared. Then they are trained with the paper's
dropout, alternating every few steps, and predict the same batches in turn, and then many rows as each is used: rtdl
8,192 at a time, softlook's estimators a few hundred. As in its estimators, softlook also accumulates gradients over
micro-batches of a step, while rtdl takes the whole batch. Each has its own AdamW: rtdl's parameter groups in torch's
default loop, softlook's fused. The last column is the FLOP rate of softlook as a fraction of that of one large matrix
product in the same precision.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas
import torch
from rtdl_revisiting_models import FTTransformer as RtdlTransformer
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.timing import ratio_noise
from softlook.models import FTTransformer, FTTransformerConfig, optimize_for_cpu
from softlook.tabular.preprocessing.rows import CPU_ROWS, TableTensors
from softlook.tabular.training.runtime import best_time
from softlook.tabular.training.train_step import cpu_micro_batch_size
from softlook.train.mixed_precision import bf16_if_faster
from tests.parity.test_rtdl import copy

STEPS_PER_TURN = 2
WARMUP_ROUNDS = 1
"""Rounds that are not measured."""
TRAINING_BF16 = "training, softlook in bfloat16"
"""As `preset="default"` trains on a CPU with bfloat16 units."""
LARGE_BATCH = 8192
"""Rows that rtdl's programs predict at a time."""
DROPOUTS: dict[str, str] = {
    "attention_dropout": "attention_dropout",
    "ffn_dropout": "hidden_dropout",
    "residual_dropout": "dropout",
}
NO_DECAY = {"numeric_embedding", "categorical_embedding", "cls_token"}


@dataclass(frozen=True)
class Rows:
    """A training split: standardized numbers, category codes and targets."""

    name: str
    numbers: Tensor
    categories: Tensor | None
    targets: Tensor
    batch_size: int

    @property
    def cardinalities(self) -> tuple[int, ...]:
        return () if self.categories is None else tuple((self.categories.amax(0) + 1).tolist())

    @property
    def classes(self) -> int:
        return int(self.targets.max()) + 1 if self.targets.dtype == torch.long else 1

    def batches(self, seed: int) -> Iterator[tuple[Tensor, Tensor | None, Tensor]]:
        """One epoch of shuffled batches."""
        order = torch.randperm(len(self.targets), generator=torch.Generator().manual_seed(seed))
        for rows in order.split(self.batch_size):
            yield self.numbers[rows], None if self.categories is None else self.categories[rows], self.targets[rows]


class Runner:
    """A model and its optimizer."""

    def __init__(
        self, model: Any, optimizer: torch.optim.Optimizer, *, micro_batch: int | None = None, bf16: bool = False
    ) -> None:
        self.model, self.optimizer, self.micro_batch, self.bf16 = model, optimizer, micro_batch, bf16

    def step(self, numbers: Tensor, categories: Tensor | None, targets: Tensor) -> float:
        self.model.train()
        self.optimizer.zero_grad()
        size = self.micro_batch or len(targets)
        micro_batches = [slice(start, start + size) for start in range(0, len(targets), size)]
        loss = sum(self._backward(numbers, categories, targets, rows) for rows in micro_batches)
        self.optimizer.step()
        return loss

    def _backward(self, numbers: Tensor, categories: Tensor | None, targets: Tensor, rows: slice) -> float:
        with bf16_if_faster(numbers.device) if self.bf16 else nullcontext():
            outputs = self.model(numbers[rows], None if categories is None else categories[rows])
        labels = targets[rows]
        is_classification = labels.dtype == torch.long
        loss = F.cross_entropy(outputs, labels) if is_classification else F.mse_loss(outputs[:, 0], labels)
        loss = loss * (len(labels) / len(targets))
        loss.backward()
        return loss.item()

    def predict(self, numbers: Tensor, categories: Tensor | None, _: Tensor) -> Tensor:
        self.model.eval()
        with torch.inference_mode():
            return self.model(numbers, categories)


class ChunkedRunner(Runner):
    """Predicts in small batches, as softlook's estimators do on a CPU."""

    def predict(self, numbers: Tensor, categories: Tensor | None, _: Tensor) -> Tensor:
        codes = [None] * -(-len(numbers) // CPU_ROWS) if categories is None else categories.split(CPU_ROWS)
        pairs = zip(numbers.split(CPU_ROWS), codes, strict=True)
        return torch.cat([super(ChunkedRunner, self).predict(*pair, _) for pair in pairs])


Call = Callable[[Runner], Callable[..., object]]
"""Selects the method of a runner that is measured."""


def make_runners(rows: Rows, *, dropout: bool, bf16: bool) -> tuple[Runner, Runner]:
    """softlook's and rtdl's models of the paper's size with equal weights."""
    torch.manual_seed(0)
    sizes = RtdlTransformer.get_default_kwargs()
    sizes |= {} if dropout else dict.fromkeys(DROPOUTS, 0.0)
    n_numeric, cardinalities, classes = rows.numbers.shape[1], rows.cardinalities, rows.classes
    other = RtdlTransformer(n_cont_features=n_numeric, cat_cardinalities=list(cardinalities), d_out=classes, **sizes)
    dropouts = {own: sizes[name] for name, own in DROPOUTS.items()}
    config = FTTransformerConfig(n_numeric=n_numeric, cardinalities=cardinalities, classes=classes, **dropouts)
    own = FTTransformer(config)
    copy(other, own)
    optimize_for_cpu(own)  # as the estimators do
    plain = torch.optim.AdamW(other.make_parameter_groups(), lr=1e-4, weight_decay=1e-5)
    fused = torch.optim.AdamW(parameter_groups(own), lr=1e-4, weight_decay=1e-5, fused=True)
    micro_batch = cpu_micro_batch_size(own, TableTensors(rows.numbers, torch.zeros(1, len(cardinalities))))
    return Runner(own, fused, micro_batch=micro_batch, bf16=bf16), Runner(other, plain)


def parameter_groups(model: FTTransformer) -> list[dict[str, Any]]:
    """rtdl's groups: no weight decay for embeddings, norms and biases."""
    named = [(name, weight) for name, weight in model.named_parameters() if weight.numel()]
    no_decay = [weight for name, weight in named if weight.ndim < 2 or name.split(".")[0] in NO_DECAY]
    return [
        {"params": [weight for _, weight in named if not any(weight is other for other in no_decay)]},
        {"params": no_decay, "weight_decay": 0.0},
    ]


def compare_losses(rows: Rows, steps: int | None, *, bf16: bool) -> tuple[float, float]:
    """rtdl's mean loss over an epoch without dropout, or its first steps, and softlook's relative difference to it."""
    softlook, rtdl = make_runners(rows, dropout=False, bf16=bf16)
    losses = [
        (softlook.step(*batch), rtdl.step(*batch))
        for _, batch in zip(range(steps or 10**9), rows.batches(1), strict=False)
    ]
    own, other = (statistics.mean(each) for each in zip(*losses, strict=True))
    return other, abs(own - other) / abs(other)


def measure_seconds(rows: Rows, call: Call, rounds: int, *, bf16: bool) -> tuple[list[float], list[float]]:
    """Seconds per batch of softlook and of rtdl, round by round in alternating order."""
    (softlook, rtdl), seconds = make_runners(rows, dropout=True, bf16=bf16), ([], [])
    chunked = rows.batch_size == LARGE_BATCH
    runners = (ChunkedRunner(softlook.model, softlook.optimizer) if chunked else softlook, rtdl)
    batches = [batch for batch, _ in zip(rows.batches(2), range(STEPS_PER_TURN), strict=False)]
    for number in range(WARMUP_ROUNDS + rounds):
        for index in (0, 1) if number % 2 else (1, 0):
            method, start = call(runners[index]), time.perf_counter()
            for batch in batches:
                method(*batch)
            seconds[index].append((time.perf_counter() - start) / len(batches))
    return seconds[0][WARMUP_ROUNDS:], seconds[1][WARMUP_ROUNDS:]


def count_flops(rows: Rows, call: Call, *, bf16: bool) -> int:
    """FLOPs of one batch of softlook."""
    softlook, _ = make_runners(rows, dropout=True, bf16=bf16)
    method, batch = call(softlook), next(rows.batches(2))
    with FlopCounterMode(display=False) as counter:
        method(*batch)
    return counter.get_total_flops()


def peak_flops_per_second(*, bf16: bool) -> float:
    """The FLOP rate of one large matrix product."""
    size = 2048
    left, right = (torch.ones(size, size, dtype=torch.bfloat16 if bf16 else torch.float32) for _ in range(2))
    return 2 * size**3 / best_time(lambda: left @ right, repeats=5)


def california(data_dir: Path) -> Rows:
    frame = pandas.read_csv(data_dir / "california_housing" / "california_housing.csv.gz")
    split = pandas.read_csv(data_dir / "california_housing" / "rtdl_split.csv.gz").iloc[:, 0]
    frame = pandas.DataFrame(frame[split.to_numpy() == "train"])
    targets = torch.tensor(frame.pop(frame.columns[-1]).to_numpy(), dtype=torch.float32)
    return Rows("California", standardize(frame), None, (targets - targets.mean()) / targets.std(), 256)


def adult(data_dir: Path) -> Rows:
    frame = pandas.read_csv(data_dir / "adult" / "adult_train.csv.gz", skipinitialspace=True)
    targets = torch.tensor(pandas.factorize(frame.pop(frame.columns[-1]), sort=True)[0], dtype=torch.long)
    categorical = [name for name in frame.columns if not pandas.api.types.is_numeric_dtype(frame[name])]
    codes = [torch.tensor(pandas.factorize(frame[name].fillna(""))[0], dtype=torch.long) for name in categorical]
    return Rows("Adult", standardize(frame.drop(columns=categorical)), torch.stack(codes, 1), targets, 256)


def covertype(data_dir: Path, rows: int = 100_000) -> Rows:
    frame = pandas.read_csv(data_dir / "covertype" / "covertype.csv.gz", nrows=rows)
    targets = torch.tensor(pandas.factorize(frame.pop(frame.columns[-1]), sort=True)[0], dtype=torch.long)
    return Rows("Covertype, 100,000 rows", standardize(frame), None, targets, 1024)


def standardize(frame: pandas.DataFrame) -> Tensor:
    numbers = torch.tensor(frame.to_numpy(), dtype=torch.float32)
    return (numbers - numbers.mean(0)) / numbers.std(0).clamp(min=1e-6)


DATASETS = {"california": california, "adult": adult, "covertype": covertype}


def main() -> None:
    args = _parse_args()
    torch.set_num_threads(args.threads)
    print("| dataset | work | rtdl, s per epoch | softlook | ratio | ± | loss | loss diff | of peak FLOP/s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in args.datasets:
        rows = DATASETS[name](args.data_dir)
        works: dict[str, tuple[Rows, Call]] = {
            "training": (rows, lambda runner: runner.step),
            TRAINING_BF16: (rows, lambda runner: runner.step),
            "prediction": (rows, lambda runner: runner.predict),
            "prediction, own batch sizes": (replace(rows, batch_size=LARGE_BATCH), lambda runner: runner.predict),
        }
        for work, (batched, call) in works.items():
            print(_row(rows, batched, work, call, args), flush=True)


def _row(rows: Rows, batched: Rows, work: str, call: Call, args: argparse.Namespace) -> str:
    bf16 = work == TRAINING_BF16
    softlook, rtdl = measure_seconds(batched, call, args.rounds, bf16=bf16)
    steps_per_epoch = len(rows.targets) / batched.batch_size
    seconds = [f"{steps_per_epoch * statistics.median(each):.2f}" for each in (rtdl, softlook)]
    ratio = statistics.median(other / own for own, other in zip(softlook, rtdl, strict=True))
    losses = ["", ""]
    if work.startswith("training"):
        loss, difference = compare_losses(rows, args.loss_steps, bf16=bf16)
        losses = [f"{loss:.4f}", f"{difference:.0e}"]
    rate = count_flops(batched, call, bf16=bf16) / statistics.median(softlook)
    of_peak = f"{rate / peak_flops_per_second(bf16=bf16):.0%}"
    cells = [rows.name, work, *seconds, f"{ratio:.2f}", f"{ratio_noise(rtdl, softlook):.2f}", *losses, of_peak]
    return f"| {' | '.join(cells)} |"


def _parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables_speed", description=__doc__)
    parser.add_argument("data_dir", type=Path, help="directory of the datasets")
    parser.add_argument("--datasets", nargs="+", choices=list(DATASETS), default=list(DATASETS), help="default: all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15, help=f"rounds of {STEPS_PER_TURN} batches each")
    parser.add_argument("--loss-steps", type=int, help="steps after which losses are compared; default: an epoch")
    return parser.parse_args()


if __name__ == "__main__":
    main()
