"""Language models: text in, a model that says what comes next out."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from softlook.blocks.segments import SegmentMemory
from softlook.data import Examples, Text, documents, find
from softlook.decode import Recurring, generate, sample, speaker_for
from softlook.models import (
    GPT,
    ConvolutionalLM,
    ConvolutionalLMConfig,
    GPTConfig,
    Llama,
    LlamaConfig,
    TransformerXL,
    TransformerXLConfig,
)
from softlook.ops import masks
from softlook.recipes.adapting import adapted, tuning_rate
from softlook.recipes.carrying import carry_out
from softlook.recipes.corpus import Corpus, read_corpus
from softlook.recipes.job import Job, Plan, Sample, Trained
from softlook.recipes.packing import Shelf, bytes_of, tokens_for
from softlook.recipes.settings import Files, Lm
from softlook.recipes.sizing import Chosen, Room, sized, vocab_of
from softlook.recipes.starting import started
from softlook.recipes.told import Told, told
from softlook.tokens import TextTokenizer
from softlook.train.batches import Place
from softlook.train.events import Listener
from softlook.train.examples import Rows
from softlook.train.objectives import language, surprise
from softlook.train.step import Loss
from softlook.train.stream import Stream, Tokens
from softlook.train.tensors import there

FEW = 5_000_000
"""Characters of text up to which a model spells."""
LARGE_FOR_A_GPU = 10_000_000
"""Tokens from which on a GPU is given more of them at once."""
FINE_TUNING = 2
"""Times through the data when one starts from trained weights."""
SHORT_SAID = "There is time to see the data a few times only: a Llama, which learns more from each."
COOL = 0.8
"""The temperature that samples are drawn at."""
SEGMENTS = 4
"""Segments to a row, through which Transformer-XL carries its memory."""
Model = GPT | Llama | TransformerXL | ConvolutionalLM


def lm(asked: Lm | Told[Lm], listeners: Sequence[Listener] = ()) -> Trained:
    """Learn to say what comes next: `softlook train lm --data corpus.txt`.

    >>> from pathlib import Path
    >>> from softlook.recipes import Lm
    >>> from softlook.train import Training
    >>> _ = Path("corpus.txt").write_text("".join(f"{n} green bottles\\n" for n in range(99)))
    >>> trained = lm(Lm(data=(Path("corpus.txt"),), training=Training(steps=2)))
    >>> sorted(trained.scores["held_out"])
    ['bits_per_byte', 'bytes', 'loss', 'perplexity', 'tokens']
    """
    return carry_out(Language(), told(asked) if isinstance(asked, Lm) else asked, listeners)


class Language(Job[Lm, Text]):
    """Packed documents, a decoder-only model, perplexity and bits per byte."""

    name = "lm"

    def read(self, asked: Told[Lm]) -> Corpus[Text]:
        return read_corpus(partial(read_documents, asked), asked.get("data"), asked.get("valid"))

    def choose(self, corpus: Corpus[Text], asked: Told[Lm], room: Room) -> Chosen:
        few, words = corpus.characters < FEW, min(words_of(corpus.characters), vocab_of(corpus.characters, room))
        usual = {"tokens.kind": "characters"} if few else {"tokens.vocab": words}
        asked = Told(asked.schema, usual | asked.values, asked.origins)
        chosen, tokens = sized(corpus.characters, asked, room, layer=12, dropout=0.2)
        cuda = room.device.type == "cuda"
        large = cuda and tokens > LARGE_FOR_A_GPU
        context = asked.get("batch.longest") or (512 if large else 256 if cuda else 128)
        chosen.values |= {
            "batch.longest": int(min(context, max(tokens // 20, 8))),
            "batch.tokens": int(min(max(tokens / 40, 256), 32768 if large else 16384 if cuda else 1536)),
            "optim.lr": 2 * chosen.values["optim.lr"],
            "optim.weight_decay": 0.1,
        }
        if asked.get("from"):
            chosen.values |= {"optim.lr": tuning_rate(asked), "size.dropout": 0.1}
        elif not cuda and not chosen.values["size.dropout"]:
            chosen.values["model"] = "llama"
            chosen.said.append(SHORT_SAID)
        return chosen

    def plan(self, corpus: Corpus[Text], settings: Lm, tokenizer: TextTokenizer, device: torch.device) -> Plan:
        batch = settings.batch.tokens or 1536
        model = made_model(settings, tokenizer)
        context, row = reach_of(model, settings)
        train, valid = tokens_for(Shelf(corpus, tokenizer, settings.run))
        rows = max(batch // row, 1)
        batches = Packed(Stream(train, context=row, rows=rows, seed=settings.training.seed))
        objective = Following(context)
        look = Look(Stream(valid, context=row, rows=max(rows, 4096 // row), seed=0), objective, device)
        return Plan(
            model=model,
            batches=batches,
            objective=objective,
            evaluate=look,
            sample=partial(samples, valid, tokenizer, context),
            tokens=len(train.ids),
            batch=rows * row,
            test=partial(look.whole, bytes_of(corpus.valid)),
            reads=None if settings.from_ is None else FINE_TUNING * float(len(train.ids)),
        )


def words_of(characters: int) -> int:
    """Words that a model of a text should know: the root of its length, as rare ones are learned from nothing.

    >>> words_of(90_000_000), words_of(6_000_000)
    (8100, 2100)
    """
    return int(min(max(round(0.85 * math.sqrt(characters), -2), 500), 32000))


def read_documents(asked: Told[Lm], files: Files) -> Examples[Text]:
    """Documents, in pieces small enough that some of them can be held out."""
    size = sum(path.stat().st_size for path in find(files))
    return documents(
        files,
        text=asked.get("text"),
        bad_rows=int(asked.get("max_bad_rows")),
        longest=int(asked.get("longest_line")),
        piece=min(max(size // 200, 200), 1 << 16),
    )


def reach_of(model: nn.Module, settings: Lm) -> tuple[int, int]:
    """How many tokens are read at once, and how many are in a row: Transformer-XL reads one piece by piece."""
    context = settings.batch.longest or 128
    context = min(context, getattr(model.config, "context", context))  # pyright: ignore[reportArgumentType]
    return context, SEGMENTS * context if isinstance(model, TransformerXL) else context


def made_model(settings: Lm, tokenizer: TextTokenizer) -> nn.Module:
    """The model that the settings name, or the one to start from."""
    if settings.from_ is not None:
        model = started(settings.from_, Model, "say what comes next", vocab=tokenizer.vocab)
        return adapted(model, settings.lora)
    size, vocab = settings.size, tokenizer.vocab
    assert size.dim is not None and size.depth is not None and size.heads is not None and size.dropout is not None
    dim, depth, heads, dropout, context = size.dim, size.depth, size.heads, size.dropout, settings.batch.longest or 128
    if settings.model == "convolution":
        return ConvolutionalLM(ConvolutionalLMConfig(vocab=vocab, dim=dim, depth=3 * depth, cycle=6, dropout=dropout))
    if settings.model == "llama":
        return Llama(
            LlamaConfig(
                vocab=vocab, context=context, dim=dim, depth=depth, heads=heads, hidden=size.hidden, dropout=dropout
            )
        )
    if settings.model == "transformer_xl":
        return TransformerXL(
            TransformerXLConfig(
                vocab=vocab,
                dim=dim,
                depth=depth,
                heads=heads,
                hidden=size.hidden or 4 * dim,
                dropout=dropout,
                pre_norm=True,
            )
        )
    return GPT(
        GPTConfig(vocab=vocab, context=context, dim=dim, depth=depth, heads=heads, hidden=size.hidden, dropout=dropout)
    )


@dataclass(frozen=True)
class Whole:
    """Rows that hold one document each: nothing has to be kept apart."""

    ids: Int[Tensor, "B T"]
    wanted: Int[Tensor, "B T"]


class Packed:
    """Batches of a stream; those in which no row holds two documents are made simpler, as they are quicker."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def start(self, place: Place) -> Iterator[tuple[Place, Rows | Whole]]:
        return ((after, simplified(batch)) for after, batch in self.stream.start(place))


def simplified(rows: Rows) -> Rows | Whole:
    one = (rows.documents == rows.documents[:, :1]).all() and bool((rows.positions[:, 0] == 0).all())
    return Whole(rows.ids, rows.wanted) if one else rows


class Following:
    """Say what comes next. Attention does not cross documents; a convolution has no mask, and does.

    Transformer-XL reads a row segment by segment, and carries its memory from one to the next; with a `past`, from one
    batch to the next as well, whose rows then go on where those before them ended.
    """

    def __init__(self, segment: int, *, remembers: bool = True) -> None:
        self.segment, self.remembers, self.apart = segment, remembers, language()

    def __call__(self, model: nn.Module, batch: Rows | Whole, past: "Past | None" = None) -> Loss:
        inner = getattr(model, "module", model)  # several processes share a model through a wrapper
        if isinstance(inner, TransformerXL):
            return self._by_segments(model, batch, past or Past(self.segment))
        if isinstance(batch, Whole) or isinstance(inner, ConvolutionalLM):
            return surprise(model(batch.ids), batch.wanted)
        return self.apart(model, batch)

    def _by_segments(self, model: nn.Module, batch: Rows | Whole, past: "Past") -> Loss:
        losses = []
        for start in range(0, batch.ids.shape[1], self.segment):
            here = slice(start, start + self.segment)
            past = past if self.remembers else Past(self.segment)
            mask = None if isinstance(batch, Whole) else masks.causal() & past.apart(batch.documents[:, here])
            scores = model(batch.ids[:, here], mask=mask, memory=past.memory)
            losses.append(surprise(scores, batch.wanted[:, here]))
        return Loss(sum(loss.total for loss in losses), sum(loss.count for loss in losses))  # pyright: ignore[reportArgumentType]


class Past:
    """What Transformer-XL remembers: the states of the last segment, and which document each of them belongs to."""

    def __init__(self, length: int) -> None:
        self.memory, self.documents = SegmentMemory(length), torch.empty(0)

    def apart(self, document_BT: Int[Tensor, "B T"]) -> masks.Mask:
        """Which keys, of the memory and of the next segment itself, are of the same document; that one is next."""
        key_BS = torch.cat([self.documents, document_BT], 1) if self.memory.held else document_BT
        self.documents = key_BS[:, -self.memory.length :]
        return masks.dense((document_BT[:, :, None] == key_BS[:, None, :])[:, None])


def in_lanes(stream: Stream) -> Iterator[Rows]:
    """Once through in as many lanes as a batch has rows: each row goes on where it ended in the batch before."""
    end = len(stream.tokens.ids)
    length = -(-end // (stream.context * stream.rows))
    for place in range(length):
        begins = [(lane * length + place) * stream.context for lane in range(stream.rows)]
        yield stream.tokens.rows([min(begin, end) for begin in begins], stream.context)


class Look:
    """A look at held-out text: the loss on some of it, while training; at the end on all of it.

    A model with a memory reads on and on, and forgets nothing where a row ends.
    """

    def __init__(self, stream: Stream, objective: Following, device: torch.device) -> None:
        self.stream, self.objective, self.device = stream, objective, device
        self.some = 1_000_000 if device.type == "cuda" else 32_768

    def __call__(self, model: nn.Module) -> dict[str, float]:
        count = max(self.some // (self.stream.context * self.stream.rows), 1)
        loss, _ = self._loss(model, self.objective, count)
        return {"loss": loss, "perplexity": math.exp(min(loss, 80.0))}

    def whole(self, spoken: int, model: nn.Module) -> dict[str, Any]:
        """Perplexity of a token, and bits that a byte of the text takes."""
        loss, targets = self._loss(model, self.objective)
        scores = {"loss": loss, "perplexity": math.exp(min(loss, 80.0)), "tokens": targets, "bytes": spoken}
        scores["bits_per_byte"] = loss * targets / max(spoken, 1) / math.log(2)
        if isinstance(model, TransformerXL):
            scores["loss_without_memory"], _ = self._loss(model, Following(self.objective.segment, remembers=False))
        return {"held_out": scores}

    def _loss(self, model: nn.Module, objective: Following, count: int | None = None) -> tuple[float, int]:
        total, targets = 0.0, 0
        for loss in islice(self._losses(model, objective), count):
            total += float(loss.total)
            targets += int(loss.count)
        return total / max(targets, 1), targets

    def _losses(self, model: nn.Module, objective: Following) -> Iterator[Loss]:
        if isinstance(getattr(model, "module", model), TransformerXL):
            past = Past(objective.segment)
            return (objective(model, there(batch, self.device), past) for batch in in_lanes(self.stream))
        return (objective(model, there(simplified(batch), self.device)) for batch in self.stream.in_order())


def samples(valid: Tokens, tokenizer: TextTokenizer, context: int, model: nn.Module) -> list[Sample]:
    """How the model goes on with the beginning of the held-out text."""
    begin = [int(id) for id in valid.ids[: min(16, len(valid.ids) // 2, context // 2)]]
    speaker = Recurring(model, context) if isinstance(model, TransformerXL) else speaker_for(model)
    drawn, longest = sample(COOL, seed=0), min(200, context - len(begin))
    said = generate(speaker, [begin], pick=drawn, end=tokenizer.end, longest=longest)[0]
    return [{"begin": tokenizer.decode(begin), "said": tokenizer.decode(said.ids)}]
