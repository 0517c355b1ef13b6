"""Data small enough to learn from in a second: digits to turn round, a language of few words, two easy classes."""

import random
from pathlib import Path
from typing import Any

from softlook.recipes.settings import (
    Classify,
    Fill,
    Lm,
    Sizes,
    Table,
    TableOptim,
    TableSizes,
    TableTraining,
    Translate,
    TranslateSizes,
    Vectors,
)
from softlook.train.events import Event
from softlook.train.settings import Optim, Training

TINY = Sizes(dim=32, depth=1, heads=2, dropout=0.0)
FAST = Optim(lr=5e-3)
TINY_TABLE = TableSizes(dim=16, depth=1, heads=2, members=2)
WHO, DOES, WHAT = ("the cat", "the dog", "my king"), ("eats", "sees"), ("bread", "fish", "the moon")


def digits(path: Path, count: int = 400) -> Path:
    """Numbers, and the same turned round."""
    dice = random.Random(0)
    rows = [" ".join(dice.choices("0123456789", k=dice.randint(2, 5))) for _ in range(count)]
    path.write_text("".join(f"{row}\t{row[::-1]}\n" for row in rows), encoding="utf-8")
    return path


def sentences(path: Path, count: int = 40) -> Path:
    """Documents of a few sentences each, with a blank line between them."""
    dice = random.Random(1)
    said = [
        [f"{dice.choice(WHO)} {dice.choice(DOES)} {dice.choice(WHAT)} {number} ." for number in range(6)]
        for _ in range(count)
    ]
    path.write_text("\n\n".join("\n".join(document) for document in said) + "\n", encoding="utf-8")
    return path


def reviews(path: Path, count: int = 200) -> Path:
    """Good ones and bad ones, which differ by a word."""
    dice = random.Random(2)
    words = {"good": ("fine", "lovely"), "bad": ("awful", "dull")}
    rows = []
    for number in range(count):
        label = dice.choice(("good", "bad"))
        rows.append(f"film {number} was {dice.choice(words[label])},{label}")
    path.write_text("review,verdict\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def training(steps: int, **more: Any) -> Training:
    return Training(steps=steps, device="cpu", report_every=1, **{"evaluate_every": steps, "save_every": steps, **more})


def translating(folder: Path, steps: int = 4, **more: Any) -> Translate:
    sizes = TranslateSizes(dim=32, depth=1, heads=2, dropout=0.0)
    return Translate(**_told(folder, steps, {"data": (digits(folder / "digits.tsv"),), "size": sizes, **more}))


def language(folder: Path, steps: int = 4, **more: Any) -> Lm:
    return Lm(**_told(folder, steps, {"data": (sentences(folder / "words.txt"),), "size": TINY, **more}))


def filling(folder: Path, steps: int = 4, **more: Any) -> Fill:
    return Fill(**_told(folder, steps, {"data": (sentences(folder / "words.txt"),), "size": TINY, **more}))


def classifying(folder: Path, steps: int = 4, **more: Any) -> Classify:
    return Classify(**_told(folder, steps, {"data": (reviews(folder / "reviews.csv"),), "size": TINY, **more}))


def near(folder: Path, steps: int = 4, **more: Any) -> Vectors:
    return Vectors(**_told(folder, steps, {"data": (sentences(folder / "words.txt"),), **more}))


def _told(folder: Path, steps: int, more: dict[str, Any]) -> dict[str, Any]:
    train = training(steps, **more.pop("train", {}))
    return {"run": folder / "run", "optim": FAST, "training": train, **more}


def said(heard: list[Event], kind: type) -> list[Any]:
    return [event for event in heard if isinstance(event, kind)]


def people(path: Path, count: int = 240) -> Path:
    """Who buys, and what they spend, which depend on age and city; some cells are empty."""
    dice = random.Random(3)
    rows = []
    for number in range(count):
        age, city = dice.randint(18, 80), dice.choice(("Oslo", "Rome", "Bern"))
        buys = "yes" if (age > 50) != (city == "Bern") else "no"
        spent = round(age / 10 + (3 if city == "Oslo" else 0) + dice.random(), 2)
        rows.append(f"{number},{age if dice.random() > 0.05 else ''},{city},{dice.randint(1, 3)},{buys},{spent}")
    path.write_text("id,age,city,grade,buys,spent\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def tabling(folder: Path, epochs: int = 6, **more: Any) -> Table:
    """A small run on a table."""
    train = TableTraining(epochs=epochs, device="cpu", **more.pop("train", {}))
    size = TableSizes(dim=16, depth=1, heads=2) if more.get("estimator") == "tab" else TINY_TABLE
    told = {"data": (people(folder / "people.csv"),), "run": folder / "run", "target": ("buys",), "no_baseline": True}
    told |= {"ignore": ("id", "spent"), "size": size, "optim": TableOptim(batch_size=32), "training": train, **more}
    return Table(**told)
