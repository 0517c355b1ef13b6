"""Small data sets and configs that train within a second."""

import random
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from softlook.recipes.config.schema import (
    CausalLMConfig,
    ClassificationConfig,
    MaskedLMConfig,
    ModelConfig,
    TaggingConfig,
    TranslationConfig,
    TranslationModelConfig,
    Word2VecConfig,
)
from softlook.recipes.config.tabular_schema import (
    TabularConfig,
    TabularModelConfig,
    TabularOptimizerConfig,
    TabularTrainingConfig,
)
from softlook.train.config import OptimizerConfig, TrainingConfig
from softlook.train.events import Event

TINY = ModelConfig(dim=32, depth=1, heads=2, dropout=0.0)
FAST = OptimizerConfig(lr=5e-3)
TINY_TABLE = TabularModelConfig(dim=16, depth=1, heads=2, n_members=2)
WHO, DOES, WHAT = ("the cat", "the dog", "my king"), ("eats", "sees"), ("bread", "fish", "the moon")


def digits(path: Path, count: int = 400) -> Path:
    """Numbers, and the same reversed."""
    rng = random.Random(0)
    rows = [" ".join(rng.choices("0123456789", k=rng.randint(2, 5))) for _ in range(count)]
    path.write_text("".join(f"{row}\t{row[::-1]}\n" for row in rows), encoding="utf-8")
    return path


def sentences(path: Path, count: int = 40) -> Path:
    """Documents of a few sentences each, separated by blank lines."""
    rng = random.Random(1)
    documents = [
        [f"{rng.choice(WHO)} {rng.choice(DOES)} {rng.choice(WHAT)} {number} ." for number in range(6)]
        for _ in range(count)
    ]
    path.write_text("\n\n".join("\n".join(document) for document in documents) + "\n", encoding="utf-8")
    return path


def reviews(path: Path, count: int = 200) -> Path:
    """Positive and negative reviews, which differ by a word."""
    rng = random.Random(2)
    words = {"good": ("fine", "lovely"), "bad": ("awful", "dull")}
    rows = []
    for number in range(count):
        label = rng.choice(("good", "bad"))
        rows.append(f"film {number} was {rng.choice(words[label])},{label}")
    path.write_text("review,verdict\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def squares(folder: Path, count: int = 120) -> Path:
    """Images of 16 x 16 pixels with a bright square on the left or on the right, a folder for each."""
    for number in range(count):
        image, top, left = Image.new("L", (16, 16), 20), number // 2 % 11, 8 * (number % 2)
        ImageDraw.Draw(image).rectangle((left + 1, top, left + 5, top + 4), fill=150 + number % 100)
        path = folder / ("left", "right")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
    return folder


SYLLABLES = ("an", "bel", "cor", "da", "el", "fa", "hi", "jo", "ka", "lu", "mi", "no", "pe", "ra", "si", "tu", "ve")
PATTERNS = (
    "{PER} lives in {LOC} .",
    "On {DATE} , {PER} flew from {LOC} to {LOC} .",
    "The mayor of {LOC} met {PER} and {PER} .",
    "It rained in {LOC} on {DATE} .",
    "Nothing happened , said {PER} .",
    "The train was late again .",
)
MONTHS = ("January", "May", "July", "October")


def entities(path: Path, count: int = 300, seed: int = 4) -> Path:
    """Sentences with invented names, cities and dates, in the format of CoNLL."""
    rng = random.Random(seed)

    def name() -> str:
        return "".join(rng.choices(SYLLABLES, k=rng.randint(2, 3))).capitalize()

    def entity(label: str) -> list[str]:
        if label == "DATE":
            return [str(rng.randint(1, 28)), rng.choice(MONTHS), str(rng.randint(1990, 2030))]
        return [name(), name()] if label == "PER" or rng.random() < 0.3 else [name()]

    lines: list[str] = ["-DOCSTART- O", ""]
    for _ in range(count):
        for part in rng.choice(PATTERNS).split():
            label = part.strip("{}")
            words = entity(label) if part.startswith("{") else [part]
            tags = [f"{'I' if index else 'B'}-{label}" for index in range(len(words))] if part != label else ["O"]
            lines += [f"{word}\t{tag}" for word, tag in zip(words, tags, strict=True)]
        lines.append("")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def training_config(steps: int, **more: Any) -> TrainingConfig:
    return TrainingConfig(
        max_steps=steps, device="cpu", log_every=1, **{"evaluate_every": steps, "save_every": steps, **more}
    )


def translation_config(folder: Path, steps: int = 4, **more: Any) -> TranslationConfig:
    sizes = TranslationModelConfig(dim=32, depth=1, heads=2, dropout=0.0)
    return TranslationConfig(
        **_with_defaults(folder, steps, {"data": (digits(folder / "digits.tsv"),), "model": sizes, **more})
    )


def causal_lm_config(folder: Path, steps: int = 4, **more: Any) -> CausalLMConfig:
    return CausalLMConfig(
        **_with_defaults(folder, steps, {"data": (sentences(folder / "words.txt"),), "model": TINY, **more})
    )


def masked_lm_config(folder: Path, steps: int = 4, **more: Any) -> MaskedLMConfig:
    return MaskedLMConfig(
        **_with_defaults(folder, steps, {"data": (sentences(folder / "words.txt"),), "model": TINY, **more})
    )


def classification_config(folder: Path, steps: int = 4, **more: Any) -> ClassificationConfig:
    return ClassificationConfig(
        **_with_defaults(folder, steps, {"data": (reviews(folder / "reviews.csv"),), "model": TINY, **more})
    )


def tagging_config(folder: Path, steps: int = 4, **more: Any) -> TaggingConfig:
    return TaggingConfig(
        **_with_defaults(folder, steps, {"data": (entities(folder / "train.conll"),), "model": TINY, **more})
    )


def word2vec_config(folder: Path, steps: int = 4, **more: Any) -> Word2VecConfig:
    return Word2VecConfig(**_with_defaults(folder, steps, {"data": (sentences(folder / "words.txt"),), **more}))


def _with_defaults(folder: Path, steps: int, more: dict[str, Any]) -> dict[str, Any]:
    train = training_config(steps, **more.pop("train", {}))
    return {"run_dir": folder / "run", "optim": FAST, "training": train, **more}


def events_of(events: list[Event], event_type: type) -> list[Any]:
    return [event for event in events if isinstance(event, event_type)]


def people(path: Path, count: int = 240) -> Path:
    """A table whose targets depend on age and city; some cells are empty."""
    rng = random.Random(3)
    rows = []
    for number in range(count):
        age, city = rng.randint(18, 80), rng.choice(("Oslo", "Rome", "Bern"))
        buys = "yes" if (age > 50) != (city == "Bern") else "no"
        spent = round(age / 10 + (3 if city == "Oslo" else 0) + rng.random(), 2)
        rows.append(f"{number},{age if rng.random() > 0.05 else ''},{city},{rng.randint(1, 3)},{buys},{spent}")
    path.write_text("id,age,city,grade,buys,spent\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def tabular_config(folder: Path, epochs: int = 6, **more: Any) -> TabularConfig:
    """A small run on a table."""
    train = TabularTrainingConfig(epochs=epochs, device="cpu", **more.pop("train", {}))
    size = TabularModelConfig(dim=16, depth=1, heads=2) if more.get("estimator") == "tab" else TINY_TABLE
    values = {
        "data": (people(folder / "people.csv"),),
        "run_dir": folder / "run",
        "target": ("buys",),
        "no_baseline": True,
        "ensemble": "single",
    }
    values |= {
        "ignore": ("id", "spent"),
        "model": size,
        "optim": TabularOptimizerConfig(batch_size=32),
        "training": train,
        **more,
    }
    return TabularConfig(**values)
