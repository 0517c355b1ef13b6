"""A run small enough to be made a hundred times: a model, sentences of different lengths, and what to learn."""

import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from softlook.losses import NOTHING
from softlook.models import GPT, GPTConfig
from softlook.train import Loss, Optim, Place, Shuffled, Training, fit
from softlook.train.events import Event, Trained
from softlook.train.examples import Ids, Rows, padded
from softlook.train.loop import Evaluate
from softlook.train.objectives import held_out, language
from softlook.train.progress import Progress

CPU = torch.device("cpu")
SIZES = GPTConfig(vocab=11, context=12, dim=8, depth=1, heads=2, dropout=0.2)
CALM = replace(SIZES, dropout=0.0)
FAST = Optim(lr=1e-2, warmup=3)


def sentences(count: int = 23) -> list[list[int]]:
    """Sentences of 2 to 9 ids; no two alike."""
    dice = torch.Generator().manual_seed(5)
    return [torch.randint(1, 11, (2 + i % 8,), generator=dice).tolist() for i in range(count)]


def rows(examples: Sequence[Ids]) -> Rows:
    """Each sentence in a row of its own."""
    ids = padded([example[:-1] for example in examples])
    wanted = padded([example[1:] for example in examples], NOTHING)
    positions = torch.arange(ids.shape[1]).expand(ids.shape)
    return Rows(ids, wanted, torch.where(wanted == NOTHING, -1, 0), positions)


def batches(seed: int = 0, most: int = 24) -> Shuffled[list[int], Rows]:
    return Shuffled(sentences(), len, rows, most=most, seed=seed)


def model(sizes: GPTConfig = SIZES) -> GPT:
    """The same one each time."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return GPT(sizes)


def look() -> Evaluate:
    return held_out([rows(sentences()[:5]), rows(sentences()[5:7])], language(), CPU)


def trained(folder: Path | None = None, heard: list[Event] | None = None, **settings: Any) -> tuple[GPT, Progress]:
    """A run with these settings; `evaluate`, `source`, `objective` and `optim` may be others too.

    With `stop_at`, somebody presses Ctrl-C while that step is made.
    """
    heard, stop_at = [] if heard is None else heard, settings.pop("stop_at", None)
    also = settings.pop("listener", heard.append)

    def listen(event: Event) -> None:
        also(event)
        if isinstance(event, Trained) and event.step == stop_at:
            signal.raise_signal(signal.SIGINT)

    learner = settings.pop("model", None) or model()
    parts = {name: settings.pop(name) for name in ("evaluate", "optim", "tokenizer") if name in settings}
    source, objective = settings.pop("source", batches()), settings.pop("objective", language())
    progress = fit(
        learner,
        source,
        objective,
        **{"optim": FAST, **parts},
        training=Training(**{"device": "cpu", "report_every": 1, **settings}),
        folder=folder,
        listeners=[listen],
    )
    return learner, progress


def weights(trained: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in trained.state_dict().items()}


def assert_same(one: nn.Module | dict[str, Tensor], other: nn.Module | dict[str, Tensor]) -> None:
    """Equal to the last bit."""
    one, other = (weights(each) if isinstance(each, nn.Module) else each for each in (one, other))
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def assert_same_place(one: Progress, other: Progress) -> None:
    """Equal but for the time that was spent."""
    assert one.to_json() | {"seconds": 0} == other.to_json() | {"seconds": 0}


def said(heard: list[Event], kind: type) -> list[Any]:
    return [event for event in heard if isinstance(event, kind)]


class Line(nn.Module):
    """One number, to be learned."""

    def __init__(self, value: float = 0.0) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor([value]))


def distance(line: nn.Module, batch: Tensor) -> Loss:
    """How far the number is from the numbers of the batch, squared."""
    assert isinstance(line, Line)
    return Loss((line.value - batch).square().sum(), batch.numel())


START = Place()


def framed(one: Ids, other: Ids) -> tuple[list[int], list[int]]:
    """`[CLS] one [SEP] other [SEP]` with ids 3 and 4, and the segment of each token."""
    first, second = [3, *one, 4], [*other, 4] if len(other) else []
    return [*first, *second], [0] * len(first) + [1] * len(second)
