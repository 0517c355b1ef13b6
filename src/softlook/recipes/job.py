"""One run from its settings to its end: read, choose, open the folder, learn, test."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic

import torch
from torch import nn

from softlook.data.examples import Example
from softlook.recipes.corpus import Corpus, stem_of
from softlook.recipes.keeping import Keeper, Watched
from softlook.recipes.settings import ASIDE
from softlook.recipes.sizing import Chosen, Room, most_read, pace_of, room_of, timed
from softlook.recipes.told import CHOSEN, Schema, Settled, Told, nested, settle
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.train.batches import Batches
from softlook.train.device import choose_device
from softlook.train.events import EventLog, Finished, Listener
from softlook.train.folder import RunFolder, write_json
from softlook.train.loop import fit
from softlook.train.progress import Progress
from softlook.train.run import Evaluate
from softlook.train.settings import FREE
from softlook.train.step import Objective
from softlook.weights import read_tokenizer
from softlook.weights.schema import read_json

log = logging.getLogger("softlook.recipes")
SETTINGS, SCORES, LABELS = "settings.json", "scores.json", "labels.json"
RUNS = Path("runs")
MOST_TEXTS = 500_000
"""Texts that a tokenizer is trained on."""
Sample = dict[str, str]


@dataclass
class Plan:
    """All that learning takes, made from settings and data."""

    model: nn.Module
    batches: Batches
    objective: Objective
    evaluate: Evaluate
    sample: Callable[[nn.Module], list[Sample]]
    tokens: float
    """To learn from, each time through."""
    batch: int
    """Tokens of a batch."""
    reads: float | None = None
    """Tokens that are worth reading in all; by a rule of thumb where not told."""
    test: Callable[[nn.Module], dict[str, Any]] = lambda model: {}
    """What the finished model is worth on data that it was not chosen by."""
    after: Callable[[Path, nn.Module], None] = lambda folder, model: None
    """What else is left in the folder at the end."""
    said: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Trained:
    """What a run leaves."""

    folder: Path
    model: nn.Module
    tokenizer: TextTokenizer
    progress: Progress
    finished: Finished
    scores: dict[str, Any]
    """Of the best checkpoint: on held-out data and, where there are some, on test data."""
    settled: Settled[Any]


class Job(ABC, Generic[Schema, Example]):
    """What is different from one task to another."""

    name: str

    @abstractmethod
    def read(self, asked: Told[Schema]) -> Corpus[Example]:
        """The data, and what is held out of them."""

    @abstractmethod
    def choose(self, corpus: Corpus[Example], asked: Told[Schema], room: Room) -> Chosen:
        """Sizes for these data and this device."""

    @abstractmethod
    def plan(self, corpus: Corpus[Example], settings: Schema, tokenizer: TextTokenizer, device: torch.device) -> Plan:
        """A model, batches and questions."""

    def texts(self, corpus: Corpus[Example]) -> Iterable[str]:
        """What the tokenizer is made from."""
        for number, example in enumerate(corpus.train):
            if number >= MOST_TEXTS:
                break
            yield from example.texts.values()

    def tokenizer(self, corpus: Corpus[Example], settings: Schema) -> TextTokenizer:
        """One that was given, one that belongs to the weights one starts from, or a new one."""
        tokens = settings.tokens
        given = tokens.file or (settings.from_ and tokenizer_beside(settings.from_))
        if given:
            return TextTokenizer(read_tokenizer(given))
        assert tokens.kind is not None and tokens.vocab is not None
        return TextTokenizer(train_tokenizer(self.texts(corpus), kind=tokens.kind, vocab=tokens.vocab))


def carry_out(job: Job[Schema, Example], asked: Told[Schema], listeners: Sequence[Listener] = ()) -> Trained:
    """The whole run. The same call goes on where it was stopped."""
    corpus, folder = read_aloud(job, asked), RunFolder(place_of(job.name, asked))
    with folder.mine():
        settled, tokenizer, plan = prepare(job, asked, corpus, folder)
        config = {"task": job.name, **nested(lasting(settled))}
        goes_on = folder.open(config, corpus.digest)
        if not folder.tokenizer.exists():
            tokenizer.tokenizer.save(str(folder.tokenizer))
        write_json(folder.path / SETTINGS, {"task": job.name, "values": settled.values(), "origins": settled.origins})
        if plan.labels:
            write_json(folder.path / LABELS, {"labels": plan.labels})
        log.info(f"{'Going on with' if goes_on else 'Beginning'} {folder.path}")
        return learn(folder, settled, tokenizer, plan, listeners)


def rehearse(job: Job[Schema, Example], asked: Told[Schema]) -> Settled[Schema]:
    """What a run would be, without beginning it."""
    return prepare(job, asked, read_aloud(job, asked), RunFolder(place_of(job.name, asked)))[0]


def read_aloud(job: Job[Schema, Example], asked: Told[Schema]) -> Corpus[Example]:
    """Read the data, and say what was found."""
    corpus = job.read(asked)
    for sentence in (*corpus.said, f"{corpus.counts[0]:,} examples to learn from, {corpus.counts[1]:,} held out."):
        log.info(sentence[0].upper() + sentence[1:])
    return corpus


def prepare(
    job: Job[Schema, Example], asked: Told[Schema], corpus: Corpus[Example], folder: RunFolder
) -> tuple[Settled[Schema], TextTokenizer, Plan]:
    """Settle every value. What was once chosen for a run stays, or it could not go on."""
    device = choose_device(asked.get("training.device"))
    room = room_of(device, asked.get("training.minutes"), asked.get("training.precision"))
    before = remembered(folder, asked)
    kept = {} if before is None else before.values
    chosen = job.choose(corpus, asked, room)
    settled = settle(asked, chosen.values | kept)
    torch.manual_seed(settled.settings.training.seed)
    known = TextTokenizer(read_tokenizer(folder.tokenizer)) if folder.exists() else None
    tokenizer = known or job.tokenizer(corpus, settled.settings)
    plan = job.plan(corpus, settled.settings, tokenizer, device)
    if before is None or before.again:
        pace = pace_of(plan.model, plan.batches, plan.objective, room, settled.settings.training.precision)
        more = timed(pace, plan.reads or most_read(plan.tokens), plan.batch, room, asked.values)
        settled = settle(asked, chosen.values | more.values | kept)
        chosen.said += more.said
    if before is None:
        log.info("\n".join((*chosen.said, *plan.said, *settled.lines())))
    return settled, tokenizer, plan


def learn(
    folder: RunFolder, settled: Settled[Any], tokenizer: TextTokenizer, plan: Plan, listeners: Sequence[Listener]
) -> Trained:
    """Train, then test what came of it."""
    settings = settled.settings
    keeper = Keeper(folder.path, settled.rows())
    watched = Watched(plan.evaluate, plan.sample, [EventLog(folder.events), keeper, *boards(folder.path), *listeners])
    progress = fit(
        plan.model,
        plan.batches,
        plan.objective,
        evaluate=watched.evaluate,
        training=settings.training,
        optim=settings.optim,
        folder=folder.path,
        tokenizer=folder.tokenizer,
        listeners=[watched],
    )
    assert watched.finished is not None
    scores: dict[str, Any] = {"loss": progress.best} | watched.best
    if watched.finished.complete:
        with torch.no_grad():
            scores |= plan.test(plan.model)
        plan.after(folder.path, plan.model)
        write_json(folder.path / SCORES, scores)
        keeper.draw(scores)
    return Trained(folder.path, plan.model, tokenizer, progress, watched.finished, scores, settled)


def boards(folder: Path) -> list[Listener]:
    """TensorBoard, where it is installed."""
    if find_spec("tensorboard") is None:
        return []
    return [import_module("softlook.recipes.board").Board(folder / "tensorboard")]


def place_of(name: str, asked: Told[Any]) -> Path:
    """The run's folder; with `fresh`, the first free name beside it."""
    path = Path(asked.get("run") or RUNS / f"{name}-{stem_of(tuple(map(Path, asked.get('data'))))}")
    if not asked.get("fresh"):
        return path
    number = 2
    free = path
    while free.exists():
        free, number = path.with_name(f"{path.name}-{number}"), number + 1
    return free


@dataclass(frozen=True)
class Before:
    """What was chosen when a run began."""

    values: dict[str, Any]
    again: bool
    """Is there another limit of time than then? How many steps fit has to be found out again."""


def remembered(folder: RunFolder, asked: Told[Any]) -> Before | None:
    """What was chosen for a run that goes on. It stays, or the run could not go on."""
    if not folder.exists() or not (folder.path / SETTINGS).is_file():
        return None
    kept = read_json(folder.path / SETTINGS)
    chosen = {name: kept["values"][name] for name, origin in kept["origins"].items() if origin == CHOSEN}
    minutes = kept["values"]["training.minutes"]
    again = asked.values.get("training.minutes", minutes) != minutes
    if again:
        chosen = {name: value for name, value in chosen.items() if name not in ("training.steps", "training.minutes")}
    return Before(chosen, again)


def lasting(settled: Settled[Any]) -> dict[str, Any]:
    """The values that a run keeps to its end."""
    free = ASIDE | {f"training.{name}" for name in FREE}
    return {name: value for name, value in settled.values().items() if name not in free}


def tokenizer_beside(folder: Path) -> Path | None:
    """The tokenizer of a run, a checkpoint or a folder of Hugging Face's."""
    path = folder / "tokenizer.json"
    return path if path.is_file() else None
