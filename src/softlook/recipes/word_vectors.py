"""Word vectors: text in, a vector for each word out, by the company it keeps (skip-gram)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor, nn

from softlook.base.errors import DataError
from softlook.data import Text
from softlook.losses import negative_sampling
from softlook.models import SkipGram, SkipGramConfig
from softlook.ops.word_vectors import nearest, noise, window_pairs
from softlook.recipes.adapting import adapted
from softlook.recipes.carrying import carry_out
from softlook.recipes.corpus import Corpus, Part, read_corpus
from softlook.recipes.filling import read_sentences
from softlook.recipes.job import Job, Plan, Sample, Trained
from softlook.recipes.packing import Shelf, in_turn
from softlook.recipes.settings import Vectors
from softlook.recipes.sizing import Chosen, Room
from softlook.recipes.starting import started
from softlook.recipes.told import Told, told
from softlook.tokens import TextTokenizer
from softlook.tokens.text import LONGEST
from softlook.train.batches import Rolled, Shuffled, chance
from softlook.train.events import Listener
from softlook.train.examples import Ids, padded
from softlook.train.examples import there as present
from softlook.train.step import Loss
from softlook.train.store import PORTION, Store
from softlook.train.tensors import there

VECTORS = "vectors.txt"
RARE_BELOW = 1e-3
"""Words that make up more of the text than this are passed over now and then, as word2vec does."""
SHOWN, LOOKED_AT = 8, 500
"""Words as samples, and lines of a look at held-out text."""


def vectors(asked: Vectors | Told[Vectors], listeners: Sequence[Listener] = ()) -> Trained:
    """Give words vectors: `softlook train vectors --data corpus.txt`. The run holds them as vectors.txt too.

    >>> from softlook.recipes import Vectors
    >>> from softlook.train import Training
    >>> _ = Path("corpus.txt").write_text("".join(f"{n} green bottles hang\\n" for n in range(99)))
    >>> trained = vectors(Vectors(data=(Path("corpus.txt"),), training=Training(steps=2)))
    >>> (trained.folder / "vectors.txt").exists()
    True
    """
    return carry_out(Nearness(), told(asked) if isinstance(asked, Vectors) else asked, listeners)


@dataclass(frozen=True)
class Near:
    """Words, and for each a true neighbour followed by wrong ones."""

    centre: Int[Tensor, " B"]
    candidates: Int[Tensor, "B K"]


class Nearness(Job[Vectors, Text]):
    """Sentences, a skip-gram model, and the nearest words as samples."""

    name = "vectors"

    def read(self, asked: Told[Vectors]) -> Corpus[Text]:
        return read_corpus(partial(read_sentences, asked), asked.get("data"), asked.get("valid"))  # pyright: ignore[reportArgumentType]

    def choose(self, corpus: Corpus[Text], asked: Told[Vectors], room: Room) -> Chosen:
        words = corpus.characters / 5.5
        chosen = Chosen()
        chosen.values = {
            "tokens.kind": "words",
            "tokens.vocab": int(min(max(words / 20, 500), 50_000)),
            "size.dim": 100 if words < 20e6 else 300,
            "batch.tokens": int(min(max(words / 40, 256), 4096)),
            "batch.longest": 512,
            "optim.lr": 5e-3,
            "optim.schedule": "cosine",
            "optim.weight_decay": 0.0,
        }
        chosen.said.append(f"About {words:,.0f} words: vectors of width {chosen.values['size.dim']}.")
        return chosen

    def plan(self, corpus: Corpus[Text], settings: Vectors, tokenizer: TextTokenizer, device: torch.device) -> Plan:
        longest = settings.batch.longest or 512
        shelf, read = Shelf(corpus, tokenizer, settings.run), partial(rows_of, tokenizer=tokenizer, longest=longest)
        train = shelf.store(read(corpus.train), f"words {longest}")
        if not len(train):
            raise DataError("not one line holds two words", help="skip-gram asks for neighbours")
        looked_at = list(islice(read(corpus.valid), LOOKED_AT)) or train[:LOOKED_AT]
        drawing = Drawing(train, tokenizer, settings)
        most, seed = settings.batch.tokens or 4096, settings.training.seed
        model = made_model(settings, tokenizer)
        tokens = float(len(train.ids))
        return Plan(
            model=model,
            batches=Rolled(Shuffled(train, train.lengths(), list, most=most, seed=seed), drawing, seed=seed),
            objective=near,
            evaluate=partial(looked, [drawing(looked_at, chance(0))], device),
            sample=partial(samples, tokenizer, drawing.counts),
            tokens=tokens,
            batch=most,
            reads=max(3 * tokens, min(20 * tokens, 40e6)),
            after=partial(written, tokenizer),
        )


def made_model(settings: Vectors, tokenizer: TextTokenizer) -> nn.Module:
    """New vectors, or those one starts from."""
    if settings.from_ is not None:
        model = started(settings.from_, SkipGram, "give words vectors", vocab=tokenizer.vocab)
        return adapted(model, settings.lora)
    return SkipGram(SkipGramConfig(vocab=tokenizer.vocab, dim=settings.size.dim or 100))


def rows_of(part: Part[Text], *, tokenizer: TextTokenizer, longest: int) -> Iterator[tuple[Ids]]:
    """The words of each line, where there are two."""
    for some in in_turn(part, lambda example: len(example.text)):
        for row in tokenizer.encode([example.text[:LONGEST] for example in some]):
            if len(row) > 1:
                yield (row[:longest],)


class Drawing:
    """Sentences become words with a true neighbour and wrong ones, by dice that are handed in."""

    def __init__(self, store: Store, tokenizer: TextTokenizer, settings: Vectors) -> None:
        self.window, self.wrong = settings.batch.window, settings.batch.wrong
        self.counts = torch.zeros(tokenizer.vocab, dtype=torch.long)
        for some in store.tensors()[0].split(PORTION):
            self.counts += torch.bincount(some.long(), minlength=tokenizer.vocab)
        self.counts[list(tokenizer.special)] = 0
        self.noise = noise(self.counts)
        share = self.counts / self.counts.sum().clamp(min=1)
        self.kept = (RARE_BELOW / share.clamp(min=1e-12)).sqrt().clamp(max=1.0)
        self.kept[list(tokenizer.special)] = 0.0

    def __call__(self, items: Sequence[Sequence[Ids]], dice: torch.Generator) -> Near:
        rows = [row for (row,) in items]
        ids, there = padded(rows), present(rows)
        there = there & (torch.rand(ids.shape, generator=dice) < self.kept[ids])
        centre, neighbour = window_pairs(ids, self.window, present=there)
        wrong = torch.multinomial(self.noise, max(len(centre), 1) * self.wrong, replacement=True, generator=dice)
        wrong = wrong.view(-1, self.wrong)[: len(centre)]
        return Near(centre, torch.cat([neighbour[:, None], wrong], 1))


def near(model: nn.Module, batch: Near) -> Loss:
    """Tell the true neighbour from the wrong ones."""
    count = len(batch.centre)
    if not count:
        return Loss(sum(p.sum() for p in model.parameters()) * 0.0, 0)  # pyright: ignore[reportArgumentType]
    return Loss(negative_sampling(model(batch.centre, batch.candidates)) * count, count)


def looked(batches: Sequence[Near], device: torch.device, model: nn.Module) -> dict[str, float]:
    """A look at held-out sentences."""
    losses = [near(model, there(batch, device)) for batch in batches]
    total, count = sum(float(loss.total) for loss in losses), sum(int(loss.count) for loss in losses)
    return {"loss": total / max(count, 1)}


def samples(tokenizer: TextTokenizer, counts: Tensor, model: nn.Module) -> list[Sample]:
    """Words that occur often, though not the most often, and those nearest to each."""
    assert isinstance(model, SkipGram)
    usual = counts.argsort(descending=True)[: int((counts > 0).sum())]
    chosen = usual[len(usual) // 20 :][:SHOWN]
    if len(usual) < 6:
        return []
    close = nearest(model.words.table.weight.detach().cpu(), chosen, 5)

    def word(number: Tensor) -> str:
        return tokenizer.tokenizer.id_to_token(int(number)) or ""

    return [
        {"word": word(one), "nearest": ", ".join(word(other) for other in others)}
        for one, others in zip(chosen, close, strict=True)
    ]


def written(tokenizer: TextTokenizer, folder: Path, model: nn.Module) -> None:
    """The vectors as text, as word2vec writes them: how many, how wide, then a word and its numbers to each line."""
    assert isinstance(model, SkipGram)
    table = model.words.table.weight.detach().cpu().tolist()
    special = set(tokenizer.special)
    rows = [(tokenizer.tokenizer.id_to_token(i), row) for i, row in enumerate(table) if i not in special]
    with (folder / VECTORS).open("w", encoding="utf-8") as file:
        file.write(f"{len(rows)} {len(table[0])}\n")
        file.writelines(f"{word} {' '.join(f'{number:.5f}' for number in row)}\n" for word, row in rows)
