"""Masked language models: text in, a model that finds hidden words from both sides out."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import nn

from softlook.data import Examples, Text, sentences
from softlook.losses import NOTHING
from softlook.models import Bert, BertConfig, Deberta, ModernBert
from softlook.recipes.adapting import adapted, tuning_rate
from softlook.recipes.carrying import carry_out
from softlook.recipes.corpus import Corpus, Part, read_corpus, unbroken
from softlook.recipes.job import Job, Plan, Sample, Trained
from softlook.recipes.packing import Shelf, in_turn
from softlook.recipes.settings import Files, Fill
from softlook.recipes.sizing import Chosen, Room, sized
from softlook.recipes.starting import started, with_head
from softlook.recipes.told import Told, told
from softlook.tokens import TextTokenizer
from softlook.tokens.framing import frame_of
from softlook.tokens.text import LONGEST
from softlook.train.batches import Rolled, Shuffled, chance
from softlook.train.documents import Documents, Neighbours
from softlook.train.events import Listener
from softlook.train.examples import Gaps, Ids
from softlook.train.masking import Hiding, coupled, gaps
from softlook.train.objectives import filling, known_segments
from softlook.train.store import gathered
from softlook.train.tensors import there

HELD_OUT = 64
"""Examples to a batch, in looks at held-out text."""
BEGINS = 1
"""A sign that a document begins."""


def fill(asked: Fill | Told[Fill], listeners: Sequence[Listener] = ()) -> Trained:
    """Learn to find hidden words: `softlook train fill --data corpus.txt`.

    >>> from pathlib import Path
    >>> from softlook.recipes import Fill
    >>> from softlook.train import Training
    >>> _ = Path("corpus.txt").write_text("".join(f"{n} green bottles\\n" for n in range(99)))
    >>> sorted(fill(Fill(data=(Path("corpus.txt"),), training=Training(steps=2))).scores)
    ['found', 'loss']
    """
    return carry_out(Filling(), told(asked) if isinstance(asked, Fill) else asked, listeners)


class Filling(Job[Fill, Text]):
    """Sentences with hidden words, an encoder with a head for words."""

    name = "fill"

    def read(self, asked: Told[Fill]) -> Corpus[Text]:
        return read_corpus(partial(read_sentences, asked), asked.get("data"), asked.get("valid"))

    def choose(self, corpus: Corpus[Text], asked: Told[Fill], room: Room) -> Chosen:
        chosen, _ = sized(corpus.characters, asked, room, layer=12, dropout=0.1)
        chosen.values["batch.longest"] = 128
        if asked.get("from"):
            chosen.values["optim.lr"] = tuning_rate(asked)
        return chosen

    def plan(self, corpus: Corpus[Text], settings: Fill, tokenizer: TextTokenizer, device: torch.device) -> Plan:
        longest, most = settings.batch.longest or 128, settings.batch.tokens or 2048
        asking = Asking(tokenizer, settings)
        shelf, what = Shelf(corpus, tokenizer, settings.run), f"sentences {longest}"
        documents = Documents(shelf.store(sentences_of(corpus.train, tokenizer, longest), what, rows=2))
        valid = Documents(shelf.held_out(sentences_of(corpus.valid, tokenizer, longest), what, rows=2))
        ask = asking.pairs if settings.pairs else asking.alone
        places, lengths, gapped = ask(documents)
        seed = settings.training.seed
        # What is asked is decided when a batch is made, by dice that depend on its place alone.
        batches = Rolled(Shuffled(places, lengths, list, most=most, seed=seed), gapped, seed=seed)
        tokens = float(documents.sentences.lengths().sum())
        return Plan(
            model=made_model(settings, tokenizer),
            batches=batches,
            objective=filling,
            evaluate=Look(ask(valid or documents), device),
            sample=partial(samples, valid or documents, tokenizer, device),
            tokens=tokens,
            batch=most,
            reads=None if settings.from_ is None else 4 * tokens,
        )


def read_sentences(asked: Told[Fill], files: Files) -> Examples[Text]:
    """Sentences from files, as the settings say."""
    return sentences(
        files,
        text=asked.get("text"),
        bad_rows=int(asked.get("max_bad_rows")),
        longest=int(asked.get("longest_line")),
    )


def made_model(settings: Fill, tokenizer: TextTokenizer) -> nn.Module:
    """An encoder with a head for words, and one for pairs where they are asked for."""
    head = "pretraining" if settings.pairs else "words"
    if settings.from_ is not None:
        kinds = Bert if settings.pairs else Bert | Deberta | ModernBert
        encoder = started(settings.from_, kinds, "be taught to find hidden words", vocab=tokenizer.vocab)
        return adapted(with_head(encoder, head=head), settings.lora, before=encoder)
    size = settings.size
    assert size.dim is not None and size.depth is not None and size.heads is not None and size.dropout is not None
    return Bert(
        BertConfig(
            vocab=tokenizer.vocab,
            context=settings.batch.longest or 128,
            dim=size.dim,
            depth=size.depth,
            heads=size.heads,
            hidden=size.hidden,
            dropout=size.dropout,
            head=head,
        )
    )


def documents_of(part: Part[Text], tokenizer: TextTokenizer, longest: int) -> Documents:
    """Documents as lists of sentences, in memory."""
    return Documents(gathered(sentences_of(part, tokenizer, longest), vocab=tokenizer.vocab, rows=2))


def sentences_of(part: Part[Text], tokenizer: TextTokenizer, longest: int) -> Iterator[tuple[Ids, Ids]]:
    """Sentences, each with a sign where it begins a document; one that is too long becomes several."""
    room = longest - frame_of(tokenizer).around_pair
    for some in in_turn((texts for texts, _, _ in unbroken(part)), lambda texts: sum(len(each.text) for each in texts)):
        cut = [[piece for each in texts for piece in pieces(each.text)] for texts in some]
        coded = iter(tokenizer.encode([piece for document in cut for piece in document]))
        for document in cut:
            rows = (
                row[start : start + room] for row in islice(coded, len(document)) for start in range(0, len(row), room)
            )
            for number, row in enumerate(rows):
                yield row, [] if number else [BEGINS]


def pieces(text: str) -> list[str]:
    """A text, or if a tokenizer would not take it at once, parts of it."""
    return [text[start : start + LONGEST] for start in range(0, len(text), LONGEST)]


Asked = tuple[Sequence[Any], torch.Tensor, Callable[[Any, torch.Generator], Gaps]]
"""Examples, how long each is, and what makes a question of some of them."""


class Asking:
    """How examples become questions."""

    def __init__(self, tokenizer: TextTokenizer, settings: Fill) -> None:
        hiding = Hiding(
            mask=tokenizer.mask, vocab=tokenizer.vocab, special=tokenizer.special, share=settings.batch.hidden
        )
        frame = frame_of(tokenizer)
        room = (settings.batch.longest or 128) - frame.around_pair
        self.gaps = partial(gaps, hiding=hiding, join=frame.join, room=room, pad=tokenizer.pad)

    def alone(self, documents: Documents) -> Asked:
        """Each sentence by itself."""
        rows = documents.sentences
        return rows, rows.lengths(), lambda batch, dice: self.gaps([(row, [], NOTHING) for row, _ in batch], dice)

    def pairs(self, documents: Documents) -> Asked:
        """Each sentence with the one behind it, or with a stranger."""
        places, every = Neighbours(documents), range(len(documents))  # not one of them is empty

        def gapped(batch: Sequence[tuple[int, int]], dice: torch.Generator) -> Gaps:
            return self.gaps(coupled(documents, batch, dice, others=every), dice)

        return places, places.lengths(), gapped


class Look:
    """A look at held-out sentences: always the same words are hidden."""

    def __init__(self, asked: Asked, device: torch.device) -> None:
        places, _, gapped = asked
        starts = range(0, min(len(places), 1000), HELD_OUT)
        self.batches = [gapped(places[start : start + HELD_OUT], chance(0, start)) for start in starts]
        self.device = device

    def __call__(self, model: nn.Module) -> dict[str, float]:
        total, count, right = 0.0, 0, 0
        follows: list[bool] = []
        for batch in self.batches:
            batch = there(batch, self.device)
            loss = filling(model, batch)
            sides = known_segments(model, batch.segments)
            scores: Any = model(batch.ids, present=batch.present, segments=sides)
            words = scores if isinstance(scores, torch.Tensor) else scores.words
            right += int((words.argmax(-1) == batch.wanted).sum())
            if not isinstance(scores, torch.Tensor):
                follows += (scores.next.argmax(-1) == batch.follows).tolist()
            total, count = total + float(loss.total), count + int(loss.count)
        found = {"loss": total / max(count, 1), "found": right / max(count, 1)}
        return found | ({"pairs_right": sum(follows) / len(follows)} if follows else {})


def samples(documents: Documents, tokenizer: TextTokenizer, device: torch.device, model: nn.Module) -> list[Sample]:
    """A held-out sentence with a hidden word in its middle, and what the model puts there."""
    made: list[Sample] = []
    frame = frame_of(tokenizer)
    for document in islice(documents, 3):
        ids = frame.join(document[0]).ids
        place = len(ids) // 2
        hidden, ids[place] = ids[place], tokenizer.mask
        scores: Any = model(torch.tensor([ids], device=device))
        words = (scores if isinstance(scores, torch.Tensor) else scores.words)[0, place].topk(3).indices.tolist()
        before, after = tokenizer.decode(ids[:place]), tokenizer.decode(ids[place + 1 :])
        said = ", ".join(tokenizer.decode([word]) for word in words)
        made.append({"text": f"{before} ___ {after}", "said": said, "wanted": tokenizer.decode([hidden])})
    return made
