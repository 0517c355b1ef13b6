"""Classification: texts with labels in, a model that says which class a text belongs to out."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from softlook.base.errors import DataError
from softlook.data import Examples, Labelled, labelled
from softlook.models import Bert, BertConfig, Deberta, ModernBert
from softlook.recipes.adapting import adapted, tuning_rate
from softlook.recipes.carrying import carry_out
from softlook.recipes.corpus import MOST_LOOKED_AT, Corpus, read_corpus
from softlook.recipes.job import Job, Plan, Sample, Trained
from softlook.recipes.judging import by_class, judged
from softlook.recipes.packing import Shelf, in_turn
from softlook.recipes.settings import Classify, Files
from softlook.recipes.sizing import Chosen, Room, sized
from softlook.recipes.starting import started, with_head
from softlook.recipes.told import Told, told
from softlook.tokens import TextTokenizer
from softlook.tokens.framing import frame_of
from softlook.tokens.text import LONGEST
from softlook.train.batches import Rolled, Shuffled
from softlook.train.events import Listener
from softlook.train.examples import Ids, Labels, shortened
from softlook.train.examples import labelled as batched
from softlook.train.objectives import classification, known_segments
from softlook.train.store import Example, Store
from softlook.train.tensors import there as on

UNEVEN = 4
"""Times that the commonest class may be commoner than the rarest before it is said."""
FINE_TUNING, FEW_READS = 4, 2e6
"""Times through the data when one starts from trained weights; and tokens, up to which few data are read ten times."""
FEW_TO_TUNE = 2_000_000
"""Characters up to which a large model has to be kept from learning the texts by heart while it is tuned."""
SCRATCH, ENOUGH = 3, 2e6
"""Times through the data when one starts from nothing; and tokens, up to which few data are read more often."""
FEW = 20_000_000
"""Characters up to which a deep model would learn the texts by heart, and not what makes their class."""
SHALLOW: dict[str, Any] = {
    "size.dim": 64,
    "size.depth": 2,
    "size.heads": 2,
    "size.hidden": 128,
    "size.dropout": 0.3,
    "batch.unseen": 0.4,
    "batch.smoothing": 0.2,
    "optim.lr": 1.5e-3,
    "optim.weight_decay": 1.0,
}
"""What keeps a model of few texts from learning them by heart."""
SHALLOW_SAID = "Few texts: a small model, with words covered up and smoothed labels against learning them by heart."
MOST_CLASSES = 100_000
"""Classes beyond which a column is taken for something else."""
Item = tuple[Ids, Ids, int]


def classify(asked: Classify | Told[Classify], listeners: Sequence[Listener] = ()) -> Trained:
    """Learn to say which class a text belongs to: `softlook train classify --data reviews.csv`.

    >>> from pathlib import Path
    >>> from softlook.recipes import Classify
    >>> from softlook.train import Training
    >>> rows = "".join(f"film {n},{'good' if n % 2 else 'bad'}\\n" for n in range(40))
    >>> _ = Path("reviews.csv").write_text(f"text,label\\n{rows}")
    >>> trained = classify(Classify(data=(Path("reviews.csv"),), training=Training(steps=2)))
    >>> sorted(trained.scores)
    ['accuracy', 'error', 'f1', 'loss', 'mcc']
    """
    return carry_out(Classification(), told(asked) if isinstance(asked, Classify) else asked, listeners)


class Classification(Job[Classify, Labelled]):
    """Labelled texts, an encoder with a head for classes, and how often it is right."""

    name = "classify"

    def read(self, asked: Told[Classify]) -> Corpus[Labelled]:
        read = partial(read_labelled, asked)
        return read_corpus(read, asked.get("data"), asked.get("valid"), most=MOST_LOOKED_AT)

    def choose(self, corpus: Corpus[Labelled], asked: Told[Classify], room: Room) -> Chosen:
        words = int(min(max(round(corpus.characters / 200, -2), 500), 32000))  # they cost little where none is said
        asked = Told(asked.schema, {"tokens.vocab": words, **asked.values}, asked.origins)
        chosen, _ = sized(corpus.characters, asked, room, layer=12, dropout=0.3)
        chosen.values |= {
            "batch.longest": 128 if chosen.values["tokens.kind"] == "bpe" else 512,
            "pooling": "mean",
            "training.patience": 10,
        }
        if asked.get("from"):
            chosen.values |= {"optim.lr": tuning_rate(asked), "size.dropout": 0.1, "batch.tokens": 1024}
            # To read each batch twice costs twice the time, which a GPU has, and few data need.
            few, cuda = corpus.characters < FEW_TO_TUNE, room.device.type == "cuda"
            chosen.values["batch.agree"] = 3.0 if few else 1.0 if cuda else 0.0
            chosen.said = [f"Starting from {asked.get('from')}: a few times through the data, in small steps."]
        elif corpus.characters < FEW:
            chosen.values |= SHALLOW
            chosen.said = [SHALLOW_SAID]
        return chosen

    def plan(
        self, corpus: Corpus[Labelled], settings: Classify, tokenizer: TextTokenizer, device: torch.device
    ) -> Plan:
        counts, valid = counted(corpus.train), list(corpus.valid)
        # What was held out by us may be the only one of its class; held-out data of somebody's own may hold no others.
        unseen = {example.label for example in valid} if corpus.train.split is not None else set()
        names = sorted(counts.keys() | unseen, key=_order)
        if len(names) < 2:
            raise DataError(f"all examples are of one class, {names[0]!r:.40}", help="name the column: --label")
        model = made_model(settings, tokenizer, len(names))
        framing = Framing(tokenizer, min(settings.batch.longest or 128, model.config.context))
        shelf, what = Shelf(corpus, tokenizer, settings.run), f"labelled {framing.longest} {names}"
        store = shelf.store(framing.rows(corpus.train, names), what, rows=3, words=len(names))
        lengths = framing.lengths(store)
        most, seed = settings.batch.tokens or 2048, settings.training.seed
        batches = Shuffled(store, lengths, framing.stored, most=most, seed=seed)
        if settings.batch.unseen:
            batches = Rolled(batches, partial(covered, settings.batch.unseen), seed=seed)
        tokens = float(lengths.sum())
        return Plan(
            model=model,
            batches=batches,
            objective=classification(settings.batch.smoothing, settings.batch.agree),
            evaluate=partial(looked, framing, framing.items(known(valid, names), names), names, settings.select),
            sample=partial(samples, framing, known(valid, names), names, device),
            tokens=tokens,
            batch=settings.batch.tokens or 2048,
            reads=_reads(tokens, tuned=settings.from_ is not None),
            test=partial(tested, settings, framing, names, device),
            labels=names,
            said=_uneven(counts),
        )


def _reads(tokens: float, *, tuned: bool) -> float:
    """Tokens that are worth reading: fewer data are read more often, those for trained weights less."""
    if tuned:
        return max(FINE_TUNING * tokens, min(10 * tokens, FEW_READS))
    return max(SCRATCH * tokens, min(40 * tokens, ENOUGH))


def read_labelled(asked: Told[Classify], files: Files) -> Examples[Labelled]:
    """Labelled texts from files, as the settings say."""
    return labelled(
        files,
        text=asked.get("text"),
        pair=asked.get("text_pair"),
        label=asked.get("label"),
        bad_rows=int(asked.get("max_bad_rows")),
        longest=int(asked.get("longest_line")),
    )


def made_model(settings: Classify, tokenizer: TextTokenizer, classes: int) -> Any:
    """An encoder with a head for these classes: new, or on top of weights one starts from."""
    if settings.from_ is not None:
        encoder = started(settings.from_, Bert | Deberta | ModernBert, "be taught to classify", vocab=tokenizer.vocab)
        pooling = settings.pooling or encoder.config.pooling
        model = with_head(
            encoder, head="classes", classes=classes, pooling=pooling, dropout=settings.size.dropout or 0.0
        )
        # As many classes as before are still other classes.
        return adapted(model, settings.lora, before=encoder, whole=["head.to_classes"])
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
            head="classes",
            classes=classes,
            pooling=settings.pooling or "mean",
        )
    )


class Framing:
    """Texts as batches, with special tokens around them, of at most `longest` tokens."""

    def __init__(self, tokenizer: TextTokenizer, longest: int) -> None:
        self.tokenizer, self.longest, self.frame = tokenizer, longest, frame_of(tokenizer)
        self.room = longest - self.frame.around_pair

    def items(self, examples: Sequence[Labelled], names: Sequence[str]) -> list[Item]:
        """Ids of both texts, and the number of the class."""
        numbers = {name: number for number, name in enumerate(names)}
        ones = self.tokenizer.encode([example.text[:LONGEST] for example in examples])
        others = self.tokenizer.encode([(example.pair or "")[:LONGEST] for example in examples])
        classes = [numbers.get(example.label, 0) for example in examples]
        return [
            (*shortened(one, other, self.room), which) for one, other, which in zip(ones, others, classes, strict=True)
        ]

    def rows(self, examples: Iterable[Labelled], names: Sequence[str]) -> Iterator[tuple[Ids, Ids, Ids]]:
        """The same one by one, the number of the class as a row too."""
        for some in in_turn(examples, lambda example: len(example.text) + len(example.pair or "")):
            for one, other, which in self.items(some, names):
                yield one, other, [which]

    def length(self, item: Item) -> int:
        return len(item[0]) + len(item[1]) + (self.frame.around_pair if item[1] else self.frame.around)

    def lengths(self, store: Store) -> torch.Tensor:
        """Of everything in a store."""
        one, other = store.lengths(0), store.lengths(1)
        return one + other + torch.where(other > 0, self.frame.around_pair, self.frame.around)

    def stored(self, items: Sequence[Example]) -> Labels:
        """A batch of what lies in a store."""
        return self([(one, other, which) for one, other, (which,) in items])

    def __call__(self, items: Sequence[Item]) -> Labels:
        """A batch."""
        return batched(items, join=self.frame.join, room=self.room, pad=self.tokenizer.pad)


def covered(share: float, batch: Labels, dice: torch.Generator) -> Labels:
    """Some words covered up, so that no judgement hangs on a single one; the global token stays."""
    stays = torch.rand(batch.present.shape, generator=dice) >= share
    stays[:, 0] = True
    return replace(batch, present=batch.present & stays)


def scores_of(model: nn.Module, framing: Framing, items: Sequence[Item], device: torch.device) -> torch.Tensor:
    """A score for each class of each text, in the order of the texts."""
    order = sorted(range(len(items)), key=lambda number: framing.length(items[number]))
    found: list[torch.Tensor] = []
    with torch.no_grad():
        for start in range(0, len(order), 64):
            batch = on(framing([items[number] for number in order[start : start + 64]]), device)
            sides = known_segments(model, batch.segments)
            found.append(model(batch.ids, present=batch.present, segments=sides).float().cpu())
    scores = torch.cat(found)
    return scores[torch.tensor(order).argsort()]


def looked(
    framing: Framing, items: Sequence[Item], names: Sequence[str], select: str, model: nn.Module
) -> dict[str, float]:
    """A look at held-out texts. A model grows too sure of itself, and its loss with it, while it still gets better."""
    device = next(model.parameters()).device
    scores, wanted = scores_of(model, framing, items, device), [which for *_, which in items]
    loss = nn.functional.cross_entropy(scores, torch.tensor(wanted)).item()
    found = {"loss": loss, **judged(scores.argmax(-1).tolist(), wanted, names)}
    return {"error": 1 - found["accuracy"], **found} if select == "accuracy" else found


def samples(
    framing: Framing, valid: Sequence[Labelled], names: Sequence[str], device: torch.device, model: nn.Module
) -> list[Sample]:
    """What the model makes of a few held-out texts."""
    shown = valid[:3]
    chances = scores_of(model, framing, framing.items(shown, names), device).softmax(-1)
    return [
        {
            "text": " | ".join(example.texts.values()),
            "said": f"{names[int(row.argmax())]} ({row.max():.0%})",
            "wanted": example.label,
        }
        for example, row in zip(shown, chances, strict=True)
    ]


def tested(
    settings: Classify, framing: Framing, names: Sequence[str], device: torch.device, model: nn.Module
) -> dict[str, Any]:
    """How right it is on test data, class by class too."""
    if not settings.test:
        return {}
    examples = known(list(read_labelled(told(settings), settings.test)), names)
    items = framing.items(examples, names)
    said = scores_of(model, framing, items, device).argmax(-1).tolist()
    wanted = [which for *_, which in items]
    counted = {"examples": len(items), **judged(said, wanted, names), "classes": by_class(said, wanted, names)}
    return {"test": counted}


def counted(examples: Iterable[Labelled]) -> Counter[str]:
    """How many there are of each class."""
    counts: Counter[str] = Counter()
    for example in examples:
        counts[example.label] += 1
        if len(counts) > MOST_CLASSES:
            what = f"there are more than {MOST_CLASSES:,} classes, the last of them {example.label!r:.40}"
            raise DataError(what, help="is this the column of the classes? Name it: --label")
    return counts


def known(examples: Sequence[Labelled], names: Sequence[str]) -> list[Labelled]:
    """Those of classes that were learned; a class that nobody has seen is an error with its place."""
    learned = set(names)
    for example in examples:
        if example.label not in learned:
            place = example.origin
            what = f"the class {example.label!r:.40} was not in the data to learn from: {', '.join(names):.80}"
            raise place.fault(what) if place else DataError(what)
    return list(examples)


def _order(label: str) -> tuple[int, float, str]:
    """Numbers by their size, then words by the alphabet."""
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label


def _uneven(counts: Counter[str]) -> list[str]:
    (most, often), (least, seldom) = counts.most_common()[0], counts.most_common()[-1]
    said = f"{len(counts)} classes, the commonest {most!r:.40} ({often / counts.total():.0%})."
    if often <= UNEVEN * seldom:
        return [said]
    return [said, f"They are uneven: {least!r:.40} has only {seldom:,} examples; look at f1 and mcc, not at accuracy."]
