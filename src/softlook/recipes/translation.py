"""Translation: pairs of texts in, a model that turns one into the other out."""

import logging
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from softlook.data import Examples, Pair, pairs
from softlook.models import RNNSearch, RNNSearchConfig, Transformer, TransformerConfig
from softlook.recipes.adapting import adapted
from softlook.recipes.carrying import carry_out
from softlook.recipes.corpus import MOST_LOOKED_AT, Corpus, read_corpus
from softlook.recipes.job import Job, Plan, Sample, Trained
from softlook.recipes.pairing import paired, sides
from softlook.recipes.saying import translated
from softlook.recipes.settings import Files, Translate
from softlook.recipes.sizing import Chosen, Room, sized
from softlook.recipes.starting import started
from softlook.recipes.told import Told, told
from softlook.tokens import TextTokenizer
from softlook.tokens.text import LONGEST
from softlook.train import examples
from softlook.train.batches import Shuffled
from softlook.train.events import Listener
from softlook.train.objectives import held_out, translation

log = logging.getLogger("softlook.recipes")
FEW = 5_000_000
"""Tokens below which a GPU has time for more than the data can teach without help."""
BY_HEART: dict[str, Any] = {
    "size.dim": 512,
    "size.depth": 4,
    "size.heads": 8,
    "size.hidden": 1024,
    "size.dropout": 0.3,
    "tokens.vocab": 8000,
    "tokens.dropout": 0.1,
    "batch.agree": 5.0,
    "batch.tokens": 4096,
    "optim.lr": 1e-3,
}
"""What keeps a wide model from learning few pairs by heart."""
BY_HEART_SAID = "Few pairs for a fast device: a wide model, with R-Drop and BPE dropout against learning them by heart."
SHOWN = 3
"""Samples at each look."""


def translate(asked: Translate | Told[Translate], listeners: Sequence[Listener] = ()) -> Trained:
    """Learn to turn one text into another: `softlook train translate --data pairs.tsv`.

    Going on is calling it again. The run's folder holds everything there is to know about it.

    Seen on Multi30k, English to German, test 2016, with nothing chosen by hand, on a third of an H200 (three runs at
    once, each at most 9 min 20 s), seeds 0, 1 and 2: 41.7, 41.9 and 41.5 BLEU (cased, 13a) on the raw text; 42.2, 42.5
    and 42.5 on the lower-cased tokenised text, as it was cut.

    >>> from pathlib import Path
    >>> from softlook.recipes import Translate
    >>> from softlook.train import Training
    >>> _ = Path("pairs.tsv").write_text("".join(f"number {n}\\tZahl {n}\\n" for n in range(50)))
    >>> trained = translate(Translate(data=(Path("pairs.tsv"),), training=Training(steps=2)))
    >>> trained.folder.as_posix(), trained.progress.step
    ('runs/translate-pairs', 2)
    """
    return carry_out(Translation(), told(asked) if isinstance(asked, Translate) else asked, listeners)


class Translation(Job[Translate, Pair]):
    """Pairs, a Transformer or a recurrent translator, and BLEU."""

    name = "translate"

    def read(self, asked: Told[Translate]) -> Corpus[Pair]:
        read = partial(read_pairs, asked)
        return read_corpus(read, asked.get("data"), asked.get("valid"), most=MOST_LOOKED_AT)

    def choose(self, corpus: Corpus[Pair], asked: Told[Translate], room: Room) -> Chosen:
        chosen, tokens = sized(corpus.characters, asked, room, layer=28, dropout=0.3)
        chosen.values["batch.longest"] = 256 if chosen.values["tokens.kind"] == "bpe" else 512
        if room.device.type == "cuda":
            chosen.values["batch.multiple"] = 8
        if room.device.type == "cuda" and chosen.values["tokens.kind"] == "bpe" and tokens < FEW:
            chosen.values |= BY_HEART
            chosen.said = [BY_HEART_SAID]
        if room.device.type == "cpu":
            chosen.values["decode.checked"] = 60
        return chosen

    def plan(self, corpus: Corpus[Pair], settings: Translate, tokenizer: TextTokenizer, device: torch.device) -> Plan:
        valid = [pair for pair in corpus.valid if max(map(len, pair[:2])) <= LONGEST]
        model = made_model(settings, tokenizer)
        made = paired(corpus, settings, tokenizer)
        objective = translation(settings.batch.smoothing, settings.batch.agree)
        plan = Plan(
            model=model,
            batches=made.batches,
            objective=objective,
            evaluate=Look(valid, settings, tokenizer, device),
            sample=partial(samples, valid, tokenizer),
            tokens=made.tokens,
            batch=settings.batch.tokens or 2048,
            test=partial(tested, settings, tokenizer),
        )
        if left := corpus.counts[0] - made.count:
            plan.said.append(f"{left:,} pairs are longer than {settings.batch.longest} tokens and left out.")
        return plan


def read_pairs(asked: Told[Translate], files: Files) -> Examples[Pair]:
    """Pairs from files, as the settings say."""
    return pairs(
        files,
        source=asked.get("source"),
        target=asked.get("target"),
        bad_rows=int(asked.get("max_bad_rows")),
        longest=int(asked.get("longest_line")),
    )


def made_model(settings: Translate, tokenizer: TextTokenizer) -> nn.Module:
    """The model that the settings name, or the one to start from."""
    if settings.from_ is not None:
        model = started(settings.from_, Transformer | RNNSearch, "translate", vocab=tokenizer.vocab)
        return adapted(model, settings.lora)
    size = settings.size
    assert size.dim is not None and size.depth is not None and size.heads is not None and size.dropout is not None
    if settings.model == "rnn_search":
        return RNNSearch(
            RNNSearchConfig(
                source_vocab=tokenizer.vocab,
                target_vocab=tokenizer.vocab,
                dim=size.dim,
                hidden=size.hidden or 2 * size.dim,
                readout=size.dim,
                dropout=size.dropout,
            )
        )
    return Transformer(
        TransformerConfig(
            vocab=tokenizer.vocab,
            dim=size.dim,
            depth=size.depth,
            heads=size.heads,
            hidden=size.hidden,
            dropout=size.dropout,
            norm=size.norm,
        )
    )


class Look:
    """A look at held-out pairs: how surprising they are and, on some, BLEU by taking the likeliest words."""

    def __init__(
        self, valid: Sequence[Pair], settings: Translate, tokenizer: TextTokenizer, device: torch.device
    ) -> None:
        self.valid, self.settings, self.tokenizer = valid[: settings.decode.checked], settings, tokenizer
        longest = settings.batch.longest or 256
        coded = (tokenizer.encode(side) for side in sides(valid))
        items = [(one[:longest], other[:longest]) for one, other in zip(*coded, strict=True)]
        batches = Shuffled(
            items,
            lambda pair: max(map(len, pair)) + 1,
            partial(examples.pairs, begin=tokenizer.begin, end=tokenizer.end, pad=tokenizer.pad),
            most=4096,
            seed=0,
        )
        kept = [batches.collate([items[i] for i in numbers]) for numbers in batches.epoch(0)]
        self.loss = held_out(kept, translation(0.0), device)

    def __call__(self, model: nn.Module) -> dict[str, float]:
        scores = self.loss(model)
        if find_spec("sacrebleu") is None:
            return scores
        from softlook.recipes.bleu import bleu  # noqa: PLC0415  (an extra: without it there is no BLEU on the way)

        said = translated(model, self.tokenizer, [pair.source for pair in self.valid])
        scores["bleu"] = bleu(said, [pair.target for pair in self.valid])
        return {"missing_bleu": 100 - scores["bleu"], **scores} if self.settings.decode.select == "bleu" else scores


def samples(valid: Sequence[Pair], tokenizer: TextTokenizer, model: nn.Module) -> list[Sample]:
    """What the model says now, beside what it should."""
    shown = valid[:SHOWN]
    said = translated(model, tokenizer, [pair.source for pair in shown])
    return [
        {"source": pair.source, "said": words, "wanted": pair.target} for pair, words in zip(shown, said, strict=True)
    ]


def tested(settings: Translate, tokenizer: TextTokenizer, model: nn.Module) -> dict[str, Any]:
    """BLEU and chrF on test data, by beam search."""
    if not settings.test:
        return {}
    from softlook.recipes.bleu import scored  # noqa: PLC0415  (an extra)

    tests = list(read_pairs(told(settings), settings.test))
    decode = settings.decode
    sources = [pair.source for pair in tests]
    said = translated(model, tokenizer, sources, beams=decode.beams, penalty=decode.penalty)
    return {"test": {"examples": len(tests), **scored(said, [pair.target for pair in tests])}}
