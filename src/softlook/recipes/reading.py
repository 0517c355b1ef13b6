"""Ask an encoder: texts in, classes or vectors out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softlook.heads import class_scores
from softlook.models import SkipGram, TextEncoder
from softlook.recipes.classification import Framing
from softlook.recipes.opened import Opened, Question, questions
from softlook.recipes.starting import with_head
from softlook.tokens.framing import Framed
from softlook.tokens.loading import duplicate
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
    """Of regression, the number itself."""
    classes: dict[str, float]
    """All of them, the likeliest first."""


def classify(run: Opened, texts: Iterable[Asked]) -> list[Judgement]:
    """The class of each text, or pair of texts, in their order. They are held in memory together."""
    asked = questions(texts)
    scores = class_scores(read(run.asked_to("classify"), run.model, asked), run.model.config.problem)
    return [_judgement(one, row, run.labels) for one, row in zip(asked, scores, strict=True)]


def embed(
    run: Opened,
    texts: Iterable[Asked],
    *,
    pooling: Pooling | None = None,
    unit: bool = False,
    prompt: str | None = None,
) -> Float[Tensor, "N C"]:
    """A vector for each text, in their order.

    - `pooling`: how the vectors of tokens become one. Where not told, a sentence encoder does as it was made to, and
      others give the mean.
    - `unit`: make each vector one long, as a sentence encoder may do by itself.
    - `prompt`: the name of one of a sentence encoder's prompts, to be put before each text; its default where not told.

    Where a folder of sentence-transformers says so, texts are lowercased and cut, and vectors shortened.
    Of word vectors it is the word's; of several words the mean, without those that have none.
    """
    asked, model, before = questions(texts), run.asked_to("embed").model, run.sentence.prompt(prompt)
    asked = [one._replace(text=before + one.text) for one in asked] if before else asked
    vectors = _words(run, asked) if isinstance(model, SkipGram) else read(run, pooled(model, pooling), asked)
    vectors = vectors[:, : run.sentence.dimensions]
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


def framed(run: Opened, asked: Sequence[Question]) -> list[Framed]:
    """Texts with their signs, cut to the length that the model was trained for.

    A run's are as in its training; for other people's models their tokenizer says what they are.
    """
    context = run.model.config.context
    trained = getattr(getattr(run.settings, "batch", None), "longest", None)
    longest = min(context, trained or context, run.sentence.max_length or context)
    if run.settings is None and not run.is_ours:
        return _templated(run, asked, longest)
    framing = Framing(run.tokenizer, longest)
    items = framing.items([one.labelled() for one in asked], [])
    return [framing.frame.join(one, other) for one, other, _ in items]


def _templated(run: Opened, asked: Sequence[Question], longest: int) -> list[Framed]:
    words = duplicate(run.tokenizer.tokenizer)
    words.enable_truncation(longest)
    texts = [one.text if one.pair is None else (one.text, one.pair) for one in asked]
    return [Framed(coded.ids, coded.type_ids) for coded in words.encode_batch(texts)]


def _answers(run: Opened, model: Any, rows: Sequence[Framed]) -> Tensor:
    ids, present = (made([row.ids for row in rows]).to(run.device) for made in (padded, there))
    sides = padded([row.segments for row in rows]).to(run.device)
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
