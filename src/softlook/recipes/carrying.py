"""One run from its settings to its end: read, choose, open the folder, learn, test."""

import logging
from collections.abc import Sequence
from typing import Any

import torch

from softlook.blocks.lora import merge_lora
from softlook.data.examples import Example
from softlook.recipes.adapting import check_lora, leave_adapters
from softlook.recipes.corpus import Corpus
from softlook.recipes.foretelling import Foretold, foretell
from softlook.recipes.job import Job, Plan, Trained
from softlook.recipes.keeping import Keeper, Watched
from softlook.recipes.remembering import LABELS, SCORES, SETTINGS, lasting, place_of, remembered, write_settings
from softlook.recipes.sinks.choice import Sinks, sinks_of, telling
from softlook.recipes.starting import load_any
from softlook.recipes.told import Schema, Settled, Told, nested, settle
from softlook.tokens import TextTokenizer
from softlook.train.device import choose_device
from softlook.train.distributed import World, in_company
from softlook.train.events import EventLog, Finished, Listener, scores_at
from softlook.train.folder import RunFolder, write_json, write_text
from softlook.train.loop import fit
from softlook.train.ranks import is_first
from softlook.weights import read_tokenizer
from softlook.weights.runs import read_sealed
from softlook.weights.schema import read_json

log = logging.getLogger("softlook.recipes")
Prepared = tuple[Settled[Schema], TextTokenizer, Plan]


def carry_out(job: Job[Schema, Example], asked: Told[Schema], listeners: Sequence[Listener] = ()) -> Trained:
    """The whole run. The same call goes on where it was stopped; of several processes the first prepares it."""
    corpus, folder = read_aloud(job, asked), RunFolder(place_of(job.name, asked))
    training = settle(asked, {}).settings.training
    company = in_company(
        choose_device(training.device), is_parted=training.parallel == "fsdp", silence=training.silence
    )
    with company as world, folder.mine():
        prepared = begin(job, asked, corpus, folder) if world.first else None
        world.together()
        return learn(folder, prepared or join(job, asked, corpus, folder), listeners, world)


def begin(
    job: Job[Schema, Example], asked: Told[Schema], corpus: Corpus[Example], folder: RunFolder
) -> Prepared[Schema]:
    """Settle everything and write it down, or find it as it was written down."""
    found = prepare(job, asked, corpus, folder)
    settled, tokenizer, plan = found.settled, found.tokenizer, found.plan
    goes_on = folder.open({"task": job.name, **nested(lasting(settled))}, corpus.digest)
    if not folder.tokenizer.exists():
        write_text(folder.tokenizer, tokenizer.tokenizer.to_str(pretty=True))
    if plan.labels:
        write_json(folder.path / LABELS, {"labels": plan.labels})
    write_settings(folder, job.name, settled)  # last: it has the digests of the others
    log.info(f"{'Going on with' if goes_on else 'Beginning'} {folder.path}")
    return settled, tokenizer, plan


def join(
    job: Job[Schema, Example], asked: Told[Schema], corpus: Corpus[Example], folder: RunFolder
) -> Prepared[Schema]:
    """What the first process has settled, for another one."""
    kept = read_sealed(folder.path / SETTINGS)
    settled = Settled(asked.schema.model_validate(nested(kept["values"])), kept["origins"])
    tokenizer = TextTokenizer(read_tokenizer(folder.tokenizer))
    torch.manual_seed(settled.settings.training.seed)
    device = choose_device(asked.get("training.device"))
    return settled, tokenizer, job.plan(corpus, settled.settings, tokenizer, device)


def rehearse(job: Job[Schema, Example], asked: Told[Schema]) -> Foretold[Schema]:
    """What a run would be, without beginning it."""
    return prepare(job, asked, read_aloud(job, asked), RunFolder(place_of(job.name, asked)))


def read_aloud(job: Job[Schema, Example], asked: Told[Schema]) -> Corpus[Example]:
    """Read the data, and say what was found. What can be known to be wrong is said before that."""
    settings = settle(asked, {}).settings
    choose_device(settings.training.device)
    if is_first():
        sinks_of(settings.sinks)
    check_lora(asked)
    corpus = job.read(asked)
    for sentence in (*corpus.said, f"{corpus.counts[0]:,} examples to learn from, {corpus.counts[1]:,} held out."):
        log.info(sentence[0].upper() + sentence[1:])
    return corpus


def prepare(
    job: Job[Schema, Example], asked: Told[Schema], corpus: Corpus[Example], folder: RunFolder
) -> Foretold[Schema]:
    """Settle every value. What was once chosen for a run stays, or it could not go on."""
    before = remembered(folder, asked)
    known = TextTokenizer(read_tokenizer(folder.tokenizer)) if folder.exists() else None
    found = foretell(job, asked, corpus, before=before, tokenizer=known)
    if before is None:
        log.info("\n".join((*found.said, *found.settled.lines())))
    return found


def learn(folder: RunFolder, prepared: Prepared[Any], listeners: Sequence[Listener], world: World) -> Trained:
    """Train, then test what came of it. Whoever else is to hear of it does, however it ends."""
    settled = prepared[0]
    names = sinks_of(settled.settings.sinks) if world.first else ()
    with telling(names, folder.path, {name: value for name, value, _ in settled.rows()}) as sinks:
        return learn_aloud(folder, prepared, listeners, sinks, world)


def learn_aloud(
    folder: RunFolder, prepared: Prepared[Any], listeners: Sequence[Listener], sinks: Sinks, world: World
) -> Trained:
    """The same, with everybody listening."""
    settled, tokenizer, plan = prepared
    keeper = Keeper(folder.path, settled.rows())
    own = [EventLog(folder.events), keeper, sinks, *listeners] if world.first else []
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
    if not world.is_parted:
        if world.first:
            leave_adapters(plan.model, folder.path, settled.settings.from_)
        merge_lora(plan.model)  # from here on it is the plain model that the run holds
    finished = watched.finished or Finished(progress.step, "the first process knows", progress.seconds)
    known = read_json(folder.path / SCORES) if (folder.path / SCORES).is_file() else {}
    scores: dict[str, Any] = {**known, **scores_at(folder.events, progress.best_step)}
    if world.first and finished.complete:
        device = choose_device(settled.settings.training.device)
        model = load_any(folder.path).to(device) if world.is_parted else plan.model
        with torch.no_grad():
            scores |= plan.test(model)
        plan.after(folder.path, model)
        write_json(folder.path / SCORES, scores)
        keeper.draw(scores)
        sinks.scores = scores
    return Trained(folder.path, plan.model, tokenizer, progress, finished, scores, settled)
