"""Ask an encoder: texts in, classes or vectors out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from tokenizers import Tokenizer
from torch import Tensor, nn

from softlook.models import SkipGram, TextEncoder
from softlook.recipes.classification import Framing
from softlook.recipes.opened import Opened, Question, questions
from softlook.recipes.starting import with_head
from softlook.tokens.special import UNKNOWN
from softlook.train.examples import padded, there
from softlook.train.objectives import known_segments

PLACES = 1 << 13
"""Tokens that are read together."""
Asked = str | tuple[str, str] | Question
Pooling = Literal["first", "mean"]


@dataclass(frozen=True)
class Judgement:
    """Which class a text belongs to, and how likely each is."""

    text: str
    pair: str | None
    label: str
    probability: float
    classes: dict[str, float]
    """All of them, the likeliest first."""


def classify(run: Opened, texts: Iterable[Asked]) -> list[Judgement]:
    """The class of each text, or pair of texts, in their order. They are held in memory together."""
    asked = questions(texts)
    chances = read(run.asked_to("classify"), run.model, asked).softmax(-1)
    return [_judgement(one, row, run.labels) for one, row in zip(asked, chances, strict=True)]


def embed(
    run: Opened, texts: Iterable[Asked], *, pooling: Pooling | None = None, unit: bool = False
) -> Float[Tensor, "N C"]:
    """A vector for each text, in their order.

    - `pooling`: how the vectors of tokens become one. Where not told, a sentence encoder does as it was made to, and
      others give the mean.
    - `unit`: make each vector one long, as a sentence encoder may do by itself.

    Of word vectors it is the word's; of several words the mean, without those that have none.
    """
    asked, model = questions(texts), run.asked_to("embed").model
    vectors = _words(run, asked) if isinstance(model, SkipGram) else read(run, pooled(model, pooling), asked)
    return nn.functional.normalize(vectors, dim=-1) if unit else vectors


def pooled(model: Any, pooling: Pooling | None) -> Any:
    """The same encoder with one vector as its answer."""
    config = model.config
    dense = {"pooler": None} if hasattr(config, "pooler") else {}  # some have no dense layer behind the pool anyway
    is_sentence = config.head in ("pooled", "embedding") and getattr(config, "pooler", None) is None
    if is_sentence and pooling in (None, config.pooling):
        return model
    head = config.head if is_sentence else "pooled"
    device = next(model.parameters()).device
    made = with_head(model, head=head, pooling=pooling or "mean", **dense)
    return made.to(device, next(model.parameters()).dtype).eval()


class Row(NamedTuple):
    """What an encoder reads of a question."""

    ids: Sequence[int]
    sides: Sequence[int]
    """0 for the first text, 1 for the second."""


@torch.no_grad()
def read(run: Opened, model: TextEncoder, asked: Sequence[Question]) -> Float[Tensor, "N C"]:
    """What the head says of each text, those of about the same length together."""
    rows = framed(run, asked)
    order = sorted(range(len(rows)), key=lambda number: len(rows[number].ids))
    found: list[Tensor] = []
    numbers: list[int] = []
    for number in [*order, None]:
        if numbers and (number is None or (len(numbers) + 1) * len(rows[number].ids) > PLACES):
            found.append(_answers(run, model, [rows[one] for one in numbers]))
            numbers = []
        numbers += [] if number is None else [number]
    if not found:
        return torch.empty(0, max(len(run.labels), model.config.dim))
    return torch.cat(found)[torch.tensor(order).argsort()]


def framed(run: Opened, asked: Sequence[Question]) -> list[Row]:
    """Texts with their signs, cut to the length that the model was trained for.

    A run's are as in its training; for other people's models their tokenizer says what they are.
    """
    config = run.model.config
    longest = min(getattr(getattr(run.settings, "batch", None), "longest", None) or config.context, config.context)
    if run.settings is None and not run.is_ours:
        return _templated(run, asked, longest)
    framing, tokenizer = Framing(run.tokenizer, longest), run.tokenizer
    rows = []
    for one, other, _ in framing.items([one.labelled() for one in asked], []):
        first = [tokenizer.first, *one, tokenizer.separator]
        second = [*other, tokenizer.separator] if other else []
        rows.append(Row([*first, *second], [0] * len(first) + [1] * len(second)))
    return rows


def _templated(run: Opened, asked: Sequence[Question], longest: int) -> list[Row]:
    words = Tokenizer.from_str(run.tokenizer.tokenizer.to_str())
    words.enable_truncation(longest)
    last = max(run.model.config.segments - 1, 0)
    texts = [one.text if one.pair is None else (one.text, one.pair) for one in asked]
    return [Row(coded.ids, [min(side, last) for side in coded.type_ids]) for coded in words.encode_batch(texts)]


def _answers(run: Opened, model: Any, rows: Sequence[Row]) -> Tensor:
    ids, present = (made([row.ids for row in rows]).to(run.device) for made in (padded, there))
    sides = padded([row.sides for row in rows]).to(run.device)
    return model(ids, present=present, segments=known_segments(model, sides)).float().cpu()


def _words(run: Opened, asked: Sequence[Question]) -> Float[Tensor, "N C"]:
    table = run.model.words.table.weight.detach().float().cpu()
    silent = {*run.tokenizer.special, run.tokenizer.tokenizer.token_to_id(UNKNOWN)}
    found = []
    for one, ids in zip(asked, run.tokenizer.encode([one.text for one in asked]), strict=True):
        known = [id for id in ids if id not in silent]
        if not known:
            raise one.fault(f"there is no vector for {one.text[:80]!r}", "the run's vectors.txt lists its words")
        found.append(table[known].mean(0))
    return torch.stack(found) if found else table[:0]


def _judgement(one: Question, row: Tensor, labels: Sequence[str]) -> Judgement:
    ranked = sorted(zip(labels, row.tolist(), strict=True), key=lambda entry: -entry[1])
    return Judgement(one.text, one.pair, *ranked[0], dict(ranked))
