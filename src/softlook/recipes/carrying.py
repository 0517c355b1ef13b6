"""One run from its settings to its end: read, choose, open the folder, learn, test."""

import logging
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from softlook.data.examples import Example
from softlook.recipes.corpus import Corpus
from softlook.recipes.job import Job, Plan, Trained
from softlook.recipes.keeping import Keeper, Watched
from softlook.recipes.remembering import LABELS, SCORES, SETTINGS, lasting, place_of, remembered
from softlook.recipes.sizing import most_read, pace_of, room_of, timed
from softlook.recipes.starting import load_any
from softlook.recipes.told import Schema, Settled, Told, nested, settle
from softlook.tokens import TextTokenizer
from softlook.train.device import choose_device
from softlook.train.distributed import World, in_company
from softlook.train.events import EventLog, Finished, Listener
from softlook.train.folder import RunFolder, write_json
from softlook.train.loop import fit
from softlook.weights import read_tokenizer
from softlook.weights.schema import read_json

log = logging.getLogger("softlook.recipes")
GIVEN = ("tokens.kind", "tokens.vocab", "size.dim", "size.depth", "size.heads", "pooling")
"""Settings that weights to start from decide."""
Prepared = tuple[Settled[Schema], TextTokenizer, Plan]


def carry_out(job: Job[Schema, Example], asked: Told[Schema], listeners: Sequence[Listener] = ()) -> Trained:
    """The whole run. The same call goes on where it was stopped; of several processes the first prepares it."""
    corpus, folder = read_aloud(job, asked), RunFolder(place_of(job.name, asked))
    parted = settle(asked, {}).settings.training.parallel == "fsdp"
    with in_company(choose_device(asked.get("training.device")), is_parted=parted) as world, folder.mine():
        prepared = begin(job, asked, corpus, folder) if world.first else None
        world.together()
        return learn(folder, prepared or join(job, asked, corpus, folder), listeners, world)


def begin(
    job: Job[Schema, Example], asked: Told[Schema], corpus: Corpus[Example], folder: RunFolder
) -> Prepared[Schema]:
    """Settle everything and write it down, or find it as it was written down."""
    settled, tokenizer, plan = prepare(job, asked, corpus, folder)
    goes_on = folder.open({"task": job.name, **nested(lasting(settled))}, corpus.digest)
    if not folder.tokenizer.exists():
        tokenizer.tokenizer.save(str(folder.tokenizer))
    write_json(folder.path / SETTINGS, {"task": job.name, "values": settled.values(), "origins": settled.origins})
    if plan.labels:
        write_json(folder.path / LABELS, {"labels": plan.labels})
    log.info(f"{'Going on with' if goes_on else 'Beginning'} {folder.path}")
    return settled, tokenizer, plan


def join(
    job: Job[Schema, Example], asked: Told[Schema], corpus: Corpus[Example], folder: RunFolder
) -> Prepared[Schema]:
    """What the first process has settled, for another one."""
    kept = read_json(folder.path / SETTINGS)
    settled = Settled(asked.schema.model_validate(nested(kept["values"])), kept["origins"])
    tokenizer = TextTokenizer(read_tokenizer(folder.tokenizer))
    torch.manual_seed(settled.settings.training.seed)
    device = choose_device(asked.get("training.device"))
    return settled, tokenizer, job.plan(corpus, settled.settings, tokenizer, device)


def rehearse(job: Job[Schema, Example], asked: Told[Schema]) -> Settled[Schema]:
    """What a run would be, without beginning it."""
    return prepare(job, asked, read_aloud(job, asked), RunFolder(place_of(job.name, asked)))[0]


def read_aloud(job: Job[Schema, Example], asked: Told[Schema]) -> Corpus[Example]:
    """Read the data, and say what was found. What can be known to be wrong is said before that."""
    choose_device(settle(asked, {}).settings.training.device)
    corpus = job.read(asked)
    for sentence in (*corpus.said, f"{corpus.counts[0]:,} examples to learn from, {corpus.counts[1]:,} held out."):
        log.info(sentence[0].upper() + sentence[1:])
    return corpus


def prepare(
    job: Job[Schema, Example], asked: Told[Schema], corpus: Corpus[Example], folder: RunFolder
) -> Prepared[Schema]:
    """Settle every value. What was once chosen for a run stays, or it could not go on."""
    device = choose_device(asked.get("training.device"))
    room = room_of(device, asked.get("training.minutes"), asked.get("training.precision"))
    before = remembered(folder, asked)
    kept = {} if before is None else before.values
    chosen = job.choose(corpus, asked, room)
    if asked.get("from"):  # its sizes and its words come with it
        chosen.values = {name: value for name, value in chosen.values.items() if name not in GIVEN}
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
        count = sum(parameter.numel() for parameter in plan.model.parameters())
        told = f"{count:,} weights: about {16 * count / 1e6:,.0f} MB to train them, and what a batch takes."
        log.info("\n".join((*chosen.said, *plan.said, told, *settled.lines())))
    return settled, tokenizer, plan


def learn(folder: RunFolder, prepared: Prepared[Any], listeners: Sequence[Listener], world: World) -> Trained:
    """Train, then test what came of it."""
    settled, tokenizer, plan = prepared
    keeper = Keeper(folder.path, settled.rows())
    own = [EventLog(folder.events), keeper, *boards(folder.path), *listeners] if world.first else []
    watched = Watched(plan.evaluate, plan.sample, own)
    progress = fit(
        plan.model,
        plan.batches,
        plan.objective,
        evaluate=watched.evaluate,
        training=settled.settings.training,
        optim=settled.settings.optim,
        folder=folder.path,
        tokenizer=folder.tokenizer,
        listeners=[watched],
    )
    finished = watched.finished or Finished(progress.step, "the first process knows", progress.seconds)
    known = read_json(folder.path / SCORES) if (folder.path / SCORES).is_file() else {}
    scores: dict[str, Any] = {**known, "loss": progress.best, **watched.best}
    if world.first and finished.complete:
        device = choose_device(settled.settings.training.device)
        model = load_any(folder.path).to(device) if world.is_parted else plan.model
        with torch.no_grad():
            scores |= plan.test(model)
        plan.after(folder.path, model)
        write_json(folder.path / SCORES, scores)
        keeper.draw(scores)
    return Trained(folder.path, plan.model, tokenizer, progress, finished, scores, settled)


def boards(folder: Path) -> list[Listener]:
    """TensorBoard, where it is installed."""
    if find_spec("tensorboard") is None:
        return []
    return [import_module("softlook.recipes.board").Board(folder / "tensorboard")]
