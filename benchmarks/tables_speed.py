"""`python -m benchmarks.tables_speed FOLDER`: FT-Transformer beside its authors', same weights, same rows, in turn.

FOLDER holds california_housing, adult and covertype as CSV. Each pair starts from equal weights. First both learn
without dropout from the same batches, and their losses are compared; then both learn with the paper's dropouts, a few
steps at a time in turn, and predict in turn, the same batches, and then many rows each in its own way: the authors'
programs take 8,192 at once, our estimators a few hundred. Of a step's rows ours also takes as many together as our
estimators do, and adds up their gradients; theirs takes all. Each has the AdamW it is used with: the authors' groups in
torch's plain loop, ours fused. The last column says how near ours is to what the cores can do at all: its products a
second, as a share of those in one large product of matrices of the same precision.
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
from rtdl_revisiting_models import FTTransformer as Theirs
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.timing import spread
from softlook.models import FTTransformer, FTTransformerConfig
from softlook.tabular.preprocessing.rows import TOGETHER
from softlook.tabular.preprocessing.rows import TableTensors as EncodedTable
from softlook.tabular.training.runtime import best_time
from softlook.tabular.training.train_step import cpu_micro_batch_size
from softlook.train.mixed_precision import bf16_if_faster
from tests.parity.test_rtdl import copy

LAP = 2
"""Steps that one makes before it is the other's turn."""
FIRST = 1
"""Laps left out: what is made once is made then."""
HALVED = "training, our products in bfloat16"
"""As `preset="default"` learns on a CPU that has units for it."""
MANY = 8192
"""Rows that the authors' programs predict at once."""
DROPOUTS: dict[str, str] = {
    "attention_dropout": "attention_dropout",
    "ffn_dropout": "hidden_dropout",
    "residual_dropout": "dropout",
}


@dataclass(frozen=True)
class TableTensors:
    """A table to learn from: numbers scaled, categories counted."""

    name: str
    numbers: Tensor
    categories: Tensor | None
    target: Tensor
    batch: int

    @property
    def cardinalities(self) -> tuple[int, ...]:
        return () if self.categories is None else tuple((self.categories.amax(0) + 1).tolist())

    @property
    def classes(self) -> int:
        return int(self.target.max()) + 1 if self.target.dtype == torch.long else 1

    def batches(self, seed: int) -> Iterator[tuple[Tensor, Tensor | None, Tensor]]:
        """One epoch, in an order that the seed tells."""
        order = torch.randperm(len(self.target), generator=torch.Generator().manual_seed(seed))
        for rows in order.split(self.batch):
            yield self.numbers[rows], None if self.categories is None else self.categories[rows], self.target[rows]


class Runner:
    """A model and its optimiser."""

    def __init__(
        self, model: Any, optimiser: torch.optim.Optimizer, *, concat_rows: int | None = None, halved: bool = False
    ) -> None:
        self.model, self.optimiser, self.concat_rows, self.halved = model, optimiser, concat_rows, halved

    def step(self, numbers: Tensor, categories: Tensor | None, target: Tensor) -> float:
        self.model.train()
        self.optimiser.zero_grad()
        size = self.concat_rows or len(target)
        parts = [slice(start, start + size) for start in range(0, len(target), size)]
        loss = sum(self._learned(numbers, categories, target, part) for part in parts)
        self.optimiser.step()
        return loss

    def _learned(self, numbers: Tensor, categories: Tensor | None, target: Tensor, part: slice) -> float:
        with bf16_if_faster(numbers.device) if self.halved else nullcontext():
            said = self.model(numbers[part], None if categories is None else categories[part])
        some = target[part]
        loss = F.cross_entropy(said, some) if some.dtype == torch.long else F.mse_loss(said[:, 0], some)
        loss = loss * (len(some) / len(target))
        loss.backward()
        return loss.item()

    def predict(self, numbers: Tensor, categories: Tensor | None, _: Tensor) -> Tensor:
        self.model.eval()
        with torch.inference_mode():
            return self.model(numbers, categories)


class Parted(Runner):
    """Predicts many rows as our estimators do, a few at a time."""

    def predict(self, numbers: Tensor, categories: Tensor | None, _: Tensor) -> Tensor:
        few = TOGETHER
        parts = [None] * -(-len(numbers) // few) if categories is None else categories.split(few)
        pairs = zip(numbers.split(few), parts, strict=True)
        return torch.cat([super(Parted, self).predict(part, codes, _) for part, codes in pairs])


def pair(rows: TableTensors, *, dropping: bool, halved: bool) -> tuple[Runner, Runner]:
    """Ours and theirs with the paper's sizes and equal weights."""
    torch.manual_seed(0)
    sizes = Theirs.get_default_kwargs()
    sizes |= {} if dropping else dict.fromkeys(DROPOUTS, 0.0)
    numbers = rows.numbers.shape[1]
    theirs = Theirs(n_cont_features=numbers, cat_cardinalities=list(rows.cardinalities), d_out=rows.classes, **sizes)
    dropouts = {own: sizes[name] for name, own in DROPOUTS.items()}
    ours = FTTransformer(FTTransformerConfig(n_numeric=numbers, cardinalities=rows.cardinalities, classes=rows.classes, **dropouts))
    copy(theirs, ours)
    plain = torch.optim.AdamW(theirs.make_parameter_groups(), lr=1e-4, weight_decay=1e-5)
    fused = torch.optim.AdamW(groups(ours), lr=1e-4, weight_decay=1e-5, fused=True)
    concat_rows = cpu_micro_batch_size(ours, EncodedTable(rows.numbers, torch.zeros(1, len(rows.cardinalities))))
    return Runner(ours, fused, concat_rows=concat_rows, halved=halved), Runner(theirs, plain)


def groups(model: FTTransformer) -> list[dict[str, Any]]:
    """As the authors have it: no decay for tokens, norms and biases."""
    free = {"numbers", "categories", "summary"}
    named = [(name, weight) for name, weight in model.named_parameters() if weight.numel()]
    still = [weight for name, weight in named if weight.ndim < 2 or name.split(".")[0] in free]
    return [
        {"params": [weight for _, weight in named if not any(weight is other for other in still)]},
        {"params": still, "weight_decay": 0.0},
    ]


def split(rows: TableTensors, steps: int | None, *, halved: bool) -> tuple[float, float]:
    """The mean loss of an epoch without dropout, or of its first steps, and how far ours is from theirs."""
    ours, theirs = pair(rows, dropping=False, halved=halved)
    losses = [
        (ours.step(*batch), theirs.step(*batch))
        for _, batch in zip(range(steps or 10**9), rows.batches(1), strict=False)
    ]
    own, other = (statistics.mean(each) for each in zip(*losses, strict=True))
    return other, abs(own - other) / abs(other)


def laps(
    rows: TableTensors, call: Callable[[Runner], Callable[..., object]], count: int, *, halved: bool
) -> tuple[list[float], list[float]]:
    """Seconds a batch, ours and theirs, lap by lap in turn."""
    (ours, theirs), spent = pair(rows, dropping=True, halved=halved), ([], [])
    runners = (Parted(ours.model, ours.optimiser) if rows.batch == MANY else ours, theirs)
    batches = [batch for batch, _ in zip(rows.batches(2), range(LAP), strict=False)]
    for lap in range(FIRST + count):
        for place in (0, 1) if lap % 2 else (1, 0):
            work, start = call(runners[place]), time.perf_counter()
            for batch in batches:
                work(*batch)
            spent[place].append((time.perf_counter() - start) / len(batches))
    return spent[0][FIRST:], spent[1][FIRST:]


def products(rows: TableTensors, call: Callable[[Runner], Callable[..., object]], *, halved: bool) -> int:
    """Multiplications and additions of one batch of ours."""
    ours, _ = pair(rows, dropping=True, halved=halved)
    work, batch = call(ours), next(rows.batches(2))
    with FlopCounterMode(display=False) as counted:
        work(*batch)
    return counted.get_total_flops()


def most_a_second(*, halved: bool) -> float:
    """The same a second in one large product of matrices: no model can do more."""
    size = 2048
    left, right = (torch.ones(size, size, dtype=torch.bfloat16 if halved else torch.float32) for _ in range(2))
    return 2 * size**3 / best_time(lambda: left @ right, tries=5)


def california(folder: Path) -> TableTensors:
    frame = pandas.read_csv(folder / "california_housing" / "california_housing.csv.gz")
    split = pandas.read_csv(folder / "california_housing" / "rtdl_split.csv.gz").iloc[:, 0]
    frame = pandas.DataFrame(frame[split.to_numpy() == "train"])
    target = torch.tensor(frame.pop(frame.columns[-1]).to_numpy(), dtype=torch.float32)
    return TableTensors("California", scaled(frame), None, (target - target.mean()) / target.std(), 256)


def adult(folder: Path) -> TableTensors:
    frame = pandas.read_csv(folder / "adult" / "adult_train.csv.gz", skipinitialspace=True)
    target = torch.tensor(pandas.factorize(frame.pop(frame.columns[-1]), sort=True)[0], dtype=torch.long)
    words = [name for name in frame.columns if not pandas.api.types.is_numeric_dtype(frame[name])]
    codes = [torch.tensor(pandas.factorize(frame[name].fillna(""))[0], dtype=torch.long) for name in words]
    return TableTensors("Adult", scaled(frame.drop(columns=words)), torch.stack(codes, 1), target, 256)


def covertype(folder: Path, rows: int = 100_000) -> TableTensors:
    frame = pandas.read_csv(folder / "covertype" / "covertype.csv.gz", nrows=rows)
    target = torch.tensor(pandas.factorize(frame.pop(frame.columns[-1]), sort=True)[0], dtype=torch.long)
    return TableTensors("Covertype, 100,000 rows", scaled(frame), None, target, 1024)


def scaled(frame: pandas.DataFrame) -> Tensor:
    numbers = torch.tensor(frame.to_numpy(), dtype=torch.float32)
    return (numbers - numbers.mean(0)) / numbers.std(0).clamp(min=1e-6)


TABLES = {"california": california, "adult": adult, "covertype": covertype}


def main() -> None:
    words = _words()
    torch.set_num_threads(words.limit_threads)
    print("| table | work | theirs, s an epoch | ours | ratio | ± | loss | apart | of the cores' most |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in words.only:
        rows = TABLES[name](words.folder)
        works: dict[str, tuple[TableTensors, Callable[[Runner], Callable[..., object]]]] = {
            "training": (rows, lambda runner: runner.step),
            HALVED: (rows, lambda runner: runner.step),
            "predicting": (rows, lambda runner: runner.predict),
            "predicting, each in its own way": (replace(rows, batch=MANY), lambda runner: runner.predict),
        }
        for work, (batched, call) in works.items():
            ours, theirs = laps(batched, call, words.laps, halved=work == HALVED)
            epoch = len(rows.target) / batched.batch
            seconds = [f"{epoch * statistics.median(each):.2f}" for each in (theirs, ours)]
            ratio = statistics.median(other / own for own, other in zip(ours, theirs, strict=True))
            told = "| "
            if work.startswith("training"):
                loss, distance = apart(rows, words.compared, halved=work == HALVED)
                told = f"{loss:.4f} | {distance:.0e}"
            pace = products(batched, call, halved=work == HALVED) / statistics.median(ours)
            share = f"{pace / most_a_second(halved=work == HALVED):.0%}"
            apart_by = f"{ratio:.2f} | {spread(theirs, ours):.2f}"
            print(f"| {rows.name} | {work} | {' | '.join(seconds)} | {apart_by} | {told} | {share} |", flush=True)


def _words() -> argparse.Namespace:
    reader = argparse.ArgumentParser(prog="python -m benchmarks.tables_speed", description=__doc__)
    reader.add_argument("folder", type=Path, help="where the tables are")
    reader.add_argument("--only", nargs="+", choices=list(TABLES), default=list(TABLES), help="these tables alone")
    reader.add_argument("--threads", type=int, default=2)
    reader.add_argument("--laps", type=int, default=15, help=f"turns of {LAP} batches each")
    reader.add_argument("--compared", type=int, help="compare losses over so many steps; a whole epoch where not told")
    return reader.parse_args()


if __name__ == "__main__":
    main()
