"""A tiny training run: model, data, objective and evaluation."""

import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from softlook.losses import IGNORE_INDEX
from softlook.models import GPT, GPTConfig
from softlook.train import DataCursor, LengthBucketedBatches, Loss, OptimizerConfig, TrainingConfig, fit
from softlook.train.batching.collate import Ids, PackedBatch, pad_sequences
from softlook.train.checkpoint.train_state import Progress
from softlook.train.events import Event, StepLogged
from softlook.train.objectives import causal_lm, make_loss_evaluator
from softlook.train.trainer import EvaluateFn

CPU = torch.device("cpu")
SIZES = GPTConfig(vocab_size=11, context=12, dim=8, depth=1, heads=2, dropout=0.2)
NO_DROPOUT = replace(SIZES, dropout=0.0)
FAST = OptimizerConfig(lr=1e-2, warmup=3)


def sentences(count: int = 23) -> list[list[int]]:
    """Different sentences of 2 to 9 ids."""
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(1, 11, (2 + i % 8,), generator=generator).tolist() for i in range(count)]


def rows(examples: Sequence[Ids]) -> PackedBatch:
    """Each sentence in a row of its own."""
    ids = pad_sequences([example[:-1] for example in examples])
    expected = pad_sequences([example[1:] for example in examples], IGNORE_INDEX)
    positions = torch.arange(ids.shape[1]).expand(ids.shape)
    return PackedBatch(ids, expected, torch.where(expected == IGNORE_INDEX, -1, 0), positions)


FIT_OPTIONS = ("evaluate", "optim", "tokenizer", "clock", "uninformed_loss")
"""Options of `fit` besides those of TrainingConfig."""


def batches(seed: int = 0, max_tokens: int = 24) -> LengthBucketedBatches[list[int], PackedBatch]:
    return LengthBucketedBatches(sentences(), len, rows, max_tokens=max_tokens, seed=seed)


def model(sizes: GPTConfig = SIZES) -> GPT:
    """The same model each time."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return GPT(sizes)


def make_evaluator() -> EvaluateFn:
    return make_loss_evaluator([rows(sentences()[:5]), rows(sentences()[5:7])], causal_lm(), CPU)


def run_training(
    folder: Path | None = None, events: list[Event] | None = None, **settings: Any
) -> tuple[GPT, Progress]:
    """Train with these settings; `evaluate`, `source`, `objective` and `optim` may be replaced too.

    `stop_at` raises SIGINT during that step.
    """
    events, stop_at = [] if events is None else events, settings.pop("stop_at", None)
    callback = settings.pop("callback", events.append)

    def record(event: Event) -> None:
        callback(event)
        if isinstance(event, StepLogged) and event.step == stop_at:
            signal.raise_signal(signal.SIGINT)

    trained = settings.pop("model", None) or model()
    parts = {name: settings.pop(name) for name in FIT_OPTIONS if name in settings}
    source, objective = settings.pop("source", batches()), settings.pop("objective", causal_lm())
    progress = fit(
        trained,
        source,
        objective,
        **{"optim": FAST, **parts},
        training=TrainingConfig(**{"device": "cpu", "log_every": 1, **settings}),
        run_dir=folder,
        callbacks=[record],
    )
    return trained, progress


def weights(trained: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in trained.state_dict().items()}


def assert_same(one: nn.Module | dict[str, Tensor], other: nn.Module | dict[str, Tensor]) -> None:
    """Bit for bit."""
    one, other = (weights(each) if isinstance(each, nn.Module) else each for each in (one, other))
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def assert_same_progress(one: Progress, other: Progress) -> None:
    """Equal except for the time spent."""
    times = {"seconds": 0, "phase_seconds": 0}
    assert one.to_json() | times == other.to_json() | times


def events_of(events: list[Event], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


class Line(nn.Module):
    """A model of one parameter."""

    def __init__(self, value: float = 0.0) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor([value]))


def distance(line: nn.Module, batch: Tensor) -> Loss:
    """Squared error of the parameter to the numbers of the batch."""
    assert isinstance(line, Line)
    return Loss((line.value - batch).square().sum(), batch.numel())


START = DataCursor()


def join_pair(one: Ids, other: Ids) -> tuple[list[int], list[int]]:
    """`[CLS] one [SEP] other [SEP]` with ids 3 and 4, and token types."""
    first, second = [3, *one, 4], [*other, 4] if len(other) else []
    return [*first, *second], [0] * len(first) + [1] * len(second)


def sentence_pair_positions(documents: Sequence[Sequence[Sequence[int]]]) -> list[tuple[int, int]]:
    """(document, sentence) of every sentence that has a successor."""
    return [(i, j) for i, document in enumerate(documents) for j in range(len(document) - 1)]
