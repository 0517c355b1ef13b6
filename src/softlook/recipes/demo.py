"""The demo: an encoder-decoder Transformer learns to read dates in many languages, and shows where it looks.

`softlook demo`: about two and a half minutes on two CPU cores, offline; 99.5 % of unseen dates read right there.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.blocks.attention import Mixing
from softlook.models import Transformer
from softlook.recipes.dates import LANGUAGES, Written, learn_from, unseen_dates, unseen_forms
from softlook.recipes.saying import translated
from softlook.recipes.settings import Decode, PairBatch, Tokens, Translate, TranslateSizes
from softlook.recipes.translation import translate
from softlook.tokens import TextTokenizer
from softlook.train.events import Listener
from softlook.train.settings import Optim, Training
from softlook.weights import load, read_tokenizer

EXAMPLES, HELD_OUT = 60_000, 2_000
SHOWN = "jeudi 3 mars 2022"
TRAIN, VALID, DATES, FORMS = "train.tsv", "valid.tsv", "unseen-dates.tsv", "unseen-forms.tsv"


@dataclass(frozen=True)
class Reader:
    """A model that reads dates, and the tokenizer that belongs to it."""

    model: Transformer
    tokenizer: TextTokenizer

    def read(self, texts: Sequence[str]) -> list[str]:
        """Each date as ISO 8601 has it."""
        return translated(self.model, self.tokenizer, texts)


@dataclass(frozen=True)
class Marks:
    """How many of so many dates were read right, to the last digit."""

    right: int
    asked: int
    wrong: list[tuple[str, str, str]]
    """Date, what was read, what it says: a few of them."""
    by_language: dict[str, float]

    @property
    def share(self) -> float:
        return self.right / max(self.asked, 1)


def make_data(folder: Path, seed: int = 0) -> None:
    """Dates to learn from and to be asked about, as files that anybody can look into."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / TRAIN, list(islice(learn_from(seed), EXAMPLES)))
    _write(folder / VALID, unseen_dates(500, seed + 1))
    _write(folder / DATES, unseen_dates(HELD_OUT, seed + 2))
    _write(folder / FORMS, unseen_forms(HELD_OUT // 2, seed + 3))


def settings(folder: Path, *, steps: int = 720) -> Translate:
    """The same as these flags of `softlook train translate`."""
    return Translate(
        data=(folder / TRAIN,),
        valid=(folder / VALID,),
        run=folder / "run",
        tokens=Tokens(kind="characters", vocab=1000),
        size=TranslateSizes(dim=96, depth=2, heads=4, hidden=256, dropout=0.0),
        batch=PairBatch(tokens=8000, longest=128, smoothing=0.0),
        optim=Optim(lr=3e-3, schedule="cosine", warmup=60),
        training=Training(steps=steps, evaluate_every=150, save_every=300, average=0.99, report_every=10),
        decode=Decode(checked=100),
    )


def learn(folder: Path, listeners: Sequence[Listener] = (), *, steps: int = 720) -> Reader:
    """Train, or go on training, in `folder`."""
    if not (folder / FORMS).exists():
        make_data(folder)
    trained = translate(settings(folder, steps=steps), listeners)
    assert isinstance(trained.model, Transformer)
    return Reader(trained.model, trained.tokenizer)


def shipped() -> Reader:
    """The reader that comes with the package: trained by `learn` for 900 steps, kept as a checkpoint."""
    folder = Path(str(files("softlook.recipes") / "date_reader"))
    model = load(folder)
    assert isinstance(model, Transformer)
    return Reader(model, TextTokenizer(read_tokenizer(folder)))


def marks(reader: Reader, dates: Sequence[Written]) -> Marks:
    """Have dates read, and count."""
    said = reader.read([date.text for date in dates])
    right = [one == date.iso for one, date in zip(said, dates, strict=True)]
    asked, got = (
        Counter(date.language for date in dates),
        Counter(d.language for d, ok in zip(dates, right, strict=True) if ok),
    )
    wrong = [(date.text, one, date.iso) for date, one, ok in zip(dates, said, right, strict=True) if not ok]
    return Marks(
        sum(right), len(right), wrong[:5], {name: got[name] / asked[name] for name in LANGUAGES if asked[name]}
    )


@torch.no_grad()
def alignment(reader: Reader, text: str) -> tuple[str, Float[Tensor, "T S"]]:
    """What a date is read as, and where each character of the answer looked: the mean over heads of the last block.

    The last column, the end of the source, is left out: what is looked at there is nothing to be seen.
    """
    model, tokenizer = reader.model.eval(), reader.tokenizer
    said = reader.read([text])[0]
    kept: list[Tensor] = []

    def watch(module: Mixing, args: tuple[Any, ...], output: Tensor) -> None:
        query, key, _, *rest = args
        kept.append(module.weights(query, key, *rest)[0].mean(0))

    source, answer = (torch.tensor([row]) for row in tokenizer.encode([text, said]))
    source = torch.cat([source, torch.tensor([[tokenizer.end]])], 1)
    begun = torch.cat([torch.tensor([[tokenizer.begin]]), answer[:, :-1]], 1)
    last: Any = model.decoder.blocks[-1]
    hook = last.cross.mix.register_forward_hook(watch)
    try:
        model(source, begun)
    finally:
        hook.remove()
    return said, kept[0][:, :-1]


def _write(path: Path, dates: Sequence[Written]) -> None:
    path.write_text("".join(f"{date.text}\t{date.iso}\n" for date in dates), encoding="utf-8")
