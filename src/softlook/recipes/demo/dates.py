"""The demo: an encoder-decoder that translates dates in many languages to ISO 8601.

`softlook demo` takes a few minutes on two CPU cores, offline. The dates are generated from Unicode CLDR, and as people
type them (typed_dates.py).
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from itertools import islice
from pathlib import Path

import torch
from babel import Locale
from babel.dates import format_date, format_skeleton
from jaxtyping import Float
from torch import Tensor

from softlook.decode.alignment import cross_attention_maps
from softlook.recipes.config.schema import (
    DecodeConfig,
    TokenizerConfig,
    TranslationBatchConfig,
    TranslationConfig,
    TranslationModelConfig,
    TranslationRegConfig,
)
from softlook.recipes.demo.typed_dates import type_date
from softlook.recipes.inference.pipeline import DATES as SHIPPED_MODEL
from softlook.recipes.inference.pipeline import Pipeline, load_pipeline
from softlook.recipes.inference.translation import translate_texts
from softlook.recipes.text.translation import train_translation
from softlook.train.config import OptimizerConfig, TrainingConfig
from softlook.train.events import Callback

CODES = """
    af bg ca cs da de el en en_GB es et eu fi fr ga hr hu id is it
    ja ko lt lv ms nb nl pl pt ro ru sk sl sv sw tr uk zh
"""
LANGUAGES = tuple(CODES.split())
FORMATS = ("full", "long", "medium", "yMMMd", "yMMMEd", "yMMMMd", "yMMMMEEEEd")
FIRST, LAST = date(1950, 1, 1), date(2049, 12, 31)
HELD_OUT_DATES = 10
"""One in so many dates is held out, in every language."""
HELD_OUT_FORMS = 12
"""One in so many combinations of language and format is held out."""
NUM_EXAMPLES, NUM_TYPED, NUM_HELD_OUT = 60_000, 40_000, 2_000
STEPS = 720
EXAMPLE_DATE = "jeudi 3 mars 2022"
TRAIN_FILE, VALID_FILE = "train.tsv", "valid.tsv"
HELD_OUT_DATES_FILE, HELD_OUT_FORMS_FILE = "held-out-dates.tsv", "held-out-forms.tsv"
TYPED_LANGUAGE = "en"
"""The language of dates as people type them; those of numbers only are read alike in all languages."""


@dataclass(frozen=True)
class WrittenDate:
    """A date in a language and format, and in ISO 8601."""

    text: str
    iso: str
    language: str
    format: str


@cache
def formats_of(language: str) -> tuple[str, ...]:
    """The distinct formats in which a language names the month: then day and month cannot be confused."""
    seen: dict[str, str] = {}
    for format in FORMATS:
        text = write_date(date(2022, 3, 4), language, format)
        if text is not None and any(letter.isalpha() for letter in text):
            seen.setdefault(text, format)
    return tuple(seen.values())


def write_date(day: date, language: str, format: str) -> str | None:
    """A date in a language and format; None if the language has no such format.

    >>> write_date(date(2022, 3, 3), "fr", "full")
    'jeudi 3 mars 2022'
    """
    locale = Locale.parse(language)
    if format in ("full", "long", "medium"):
        return " ".join(format_date(day, format, locale=locale).split())
    if format in locale.datetime_skeletons:
        return " ".join(format_skeleton(format, day, locale=locale).split())
    return None


def is_held_out_date(day: date) -> bool:
    """Whether a date is in the test set: a fixed pseudo-random selection."""
    return (day.toordinal() * 2_654_435_761) % 2**32 < 2**32 // HELD_OUT_DATES


def is_held_out_form(language: str, format: str) -> bool:
    """Whether a format of a language is in the test set; never a language's only one."""
    candidates = [(name, other) for name in LANGUAGES for other in formats_of(name)[1:]]
    return (language, format) in candidates[5::HELD_OUT_FORMS]


def training_dates(seed: int) -> Iterator[WrittenDate]:
    """An endless stream of training dates in training formats."""
    rng = random.Random(seed)
    forms = _forms(held_out=False)
    while True:
        day = _random_day(rng)
        if not is_held_out_date(day):
            yield _written(day, *rng.choice(forms))


def typed_dates(seed: int, *, held_out: bool = False) -> Iterator[WrittenDate]:
    """An endless stream of training dates, or of held-out ones, as people type them."""
    rng = random.Random(seed)
    while True:
        day = _random_day(rng)
        if is_held_out_date(day) == held_out:
            yield WrittenDate(*type_date(day, rng), TYPED_LANGUAGE, "typed")


def held_out_dates(count: int, seed: int = 0) -> list[WrittenDate]:
    """Held-out dates in training formats."""
    return _held_out(count, seed, _forms(held_out=False))


def held_out_forms(count: int, seed: int = 0) -> list[WrittenDate]:
    """Held-out dates in formats that are held out for their language."""
    return _held_out(count, seed, _forms(held_out=True))


def _held_out(count: int, seed: int, forms: list[tuple[str, str]]) -> list[WrittenDate]:
    rng = random.Random(seed)
    days = filter(is_held_out_date, iter(lambda: _random_day(rng), None))
    return [_written(next(days), *rng.choice(forms)) for _ in range(count)]


def _forms(*, held_out: bool) -> list[tuple[str, str]]:
    """All (language, format) of the training set or of the test set."""
    forms = [(name, format) for name in LANGUAGES for format in formats_of(name)]
    return [form for form in forms if is_held_out_form(*form) == held_out]


def _random_day(rng: random.Random) -> date:
    return FIRST + timedelta(days=rng.randrange((LAST - FIRST).days + 1))


def _written(day: date, language: str, format: str) -> WrittenDate:
    text = write_date(day, language, format)
    assert text is not None
    return WrittenDate(text, day.isoformat(), language, format)


@dataclass(frozen=True)
class DateScores:
    """Exact-match accuracy on dates."""

    correct: int
    count: int
    errors: list[tuple[str, str, str]]
    """A few of them: date, prediction, reference."""
    by_language: dict[str, float]

    @property
    def accuracy(self) -> float:
        return self.correct / max(self.count, 1)


def make_data(folder: Path, seed: int = 0) -> None:
    """Write training, validation and test dates as TSV files."""
    folder.mkdir(parents=True, exist_ok=True)
    typed = islice(typed_dates(seed), NUM_TYPED)
    _write(folder / TRAIN_FILE, [*islice(training_dates(seed), NUM_EXAMPLES), *typed])
    _write(folder / VALID_FILE, [*held_out_dates(500, seed + 1), *islice(typed_dates(seed + 1, held_out=True), 300)])
    _write(folder / HELD_OUT_DATES_FILE, held_out_dates(NUM_HELD_OUT, seed + 2))
    _write(folder / HELD_OUT_FORMS_FILE, held_out_forms(NUM_HELD_OUT // 2, seed + 3))


def demo_config(folder: Path, *, steps: int = STEPS, max_minutes: float | None = None) -> TranslationConfig:
    """The config of the demo, as for `softlook train translate`."""
    return TranslationConfig(
        data=(folder / TRAIN_FILE,),
        valid=(folder / VALID_FILE,),
        run_dir=folder / "run",
        tokenizer=TokenizerConfig(type="characters", vocab_size=1000),
        model=TranslationModelConfig(dim=96, depth=2, heads=4, hidden=256, dropout=0.0),
        batch=TranslationBatchConfig(max_tokens=8000, max_length=128),
        reg=TranslationRegConfig(label_smoothing=0.0),
        optim=OptimizerConfig(lr=3e-3, schedule="cosine", warmup=60),
        training=TrainingConfig(
            max_steps=steps,
            max_minutes=max_minutes,
            evaluate_every=150,
            save_every=300,
            ema_decay=0.99,
            log_every=10,
        ),
        decode=DecodeConfig(eval_samples=100),
    )


def train(
    folder: Path,
    callbacks: Sequence[Callback] = (),
    *,
    steps: int = STEPS,
    max_minutes: float | None = None,
    progress: bool = True,
) -> Pipeline:
    """Train the demo's model in `folder`, or resume its training."""
    if not (folder / HELD_OUT_FORMS_FILE).exists():
        make_data(folder)
    config = demo_config(folder, steps=steps, max_minutes=max_minutes)
    return load_pipeline(train_translation(config, callbacks, progress=progress).run_dir)


def shipped_model() -> Pipeline:
    """The model that is part of the package: made by `python -m softlook.recipes.demo FOLDER`."""
    return load_pipeline(SHIPPED_MODEL, device="cpu")


def read_dates(pipeline: Pipeline, texts: Sequence[str]) -> list[str]:
    """Each date in ISO 8601."""
    return translate_texts(pipeline.model, pipeline.tokenizer, texts)


def score_dates(pipeline: Pipeline, dates: Sequence[WrittenDate]) -> DateScores:
    """Read dates and count exact matches."""
    predictions = read_dates(pipeline, [date.text for date in dates])
    is_correct = [one == date.iso for one, date in zip(predictions, dates, strict=True)]
    count = Counter(date.language for date in dates)
    correct = Counter(date.language for date, ok in zip(dates, is_correct, strict=True) if ok)
    rows = zip(dates, predictions, is_correct, strict=True)
    errors = [(date.text, prediction, date.iso) for date, prediction, ok in rows if not ok]
    by_language = {name: correct[name] / count[name] for name in LANGUAGES if count[name]}
    return DateScores(sum(is_correct), len(is_correct), errors[:5], by_language)


@torch.no_grad()
def align_date(pipeline: Pipeline, text: str) -> tuple[str, Float[Tensor, "T S"]]:
    """The ISO date of a text, and its cross-attention weights in the last block, averaged over heads.

    The last source position, EOS, is left out.
    """
    tokenizer = pipeline.tokenizer
    prediction = read_dates(pipeline, [text])[0]
    source, target = tokenizer.encode([text, prediction])
    decoder_input = [tokenizer.bos_id, *target[:-1]]
    weights = cross_attention_maps(pipeline.model, [[*source, tokenizer.eos_id]], [decoder_input])[0]
    return prediction, weights[:, :-1]


def _write(path: Path, dates: Sequence[WrittenDate]) -> None:
    path.write_text("".join(f"{date.text}\t{date.iso}\n" for date in dates), encoding="utf-8")
