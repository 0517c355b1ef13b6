"""Ask a run that translates: texts in, translations out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from softlook.base.errors import ConfigError
from softlook.decode import Hypothesis, Reason
from softlook.decode.habits import MOST_BEAMS
from softlook.decode.speaking import context_of
from softlook.models import RNNSearch
from softlook.recipes.aligning import Alignment, alignments
from softlook.recipes.opened import Opened, Question, questions
from softlook.recipes.saying import candidates


@dataclass(frozen=True)
class Candidate:
    """One way to say it."""

    text: str
    score: float
    """Its log-probability by its length: the nearer to 0, the surer."""
    log_probability: float
    alignment: Alignment | None = None
    reason: Reason = "end"
    """"length" where it was cut by a length limit, before it came to an end of its own."""


@dataclass(frozen=True)
class Translation:
    """What became of a text, best first; of an empty one nothing does."""

    source: str
    best: list[Candidate]

    @property
    def text(self) -> str:
        return self.best[0].text if self.best else ""


def translate(
    run: Opened,
    texts: Iterable[str | Question],
    *,
    beams: int | None = None,
    penalty: float | None = None,
    n_best: int = 1,
    aligned: bool = False,
) -> list[Translation]:
    """Texts in other words, in their order; each is what it would be alone. They are held in memory together.

    Beams and penalty are those the run was made with, or other people's files say, where not told. The rest of a
    generation config is applied as Hugging Face's `generate` does, or refused.

    >>> from softlook.recipes.answering import opened
    >>> translate(opened("dates", device="cpu"), ["jeudi 3 mars 2022", "le 1er mai 1998"])[0].text
    '2022-03-03'
    """
    run.habits.check(searching=beams is not None)
    beams = max(run.habits.beams, n_best) if beams is None else beams
    _check(beams, n_best)
    asked = questions(texts)
    full = [number for number, one in enumerate(asked) if one.text.strip()]
    rows = _rows(run.asked_to("translate"), [asked[number] for number in full])
    penalty = run.habits.penalty if penalty is None else penalty
    signs: dict[str, Any] = {"begin": run.signs.begin[0], "end": run.signs.end}
    found = candidates(run.model, rows, **signs, beams=beams, penalty=penalty, habits=run.habits)
    made = _candidates(run, rows, [hypotheses[:n_best] for hypotheses in found], aligned)
    best = dict(zip(full, made, strict=True))
    return [Translation(one.text, best.get(number, [])) for number, one in enumerate(asked)]


def _check(beams: int, n_best: int) -> None:
    if not 1 <= beams <= MOST_BEAMS:
        raise ConfigError(f"beams is how many beginnings are kept, 1 to {MOST_BEAMS}; {beams} came")
    if not 1 <= n_best <= beams:
        raise ConfigError(f"{n_best} best of {beams} beams were wanted. Keep at least as many: --beams {n_best}")


def _rows(run: Opened, asked: Sequence[Question]) -> list[list[int]]:
    """What is read, with its signs."""
    if not run.signs.begin or not run.signs.end:
        raise ConfigError(f"what says the beginning or the end of an answer is not known of {run.name}")
    coded = run.tokenizer.encode([one.text.strip() for one in asked])
    rows = [[*run.signs.before, *ids, *run.signs.after] for ids in coded]
    room = None if isinstance(run.model, RNNSearch) else context_of(run.model)
    for one, row in zip(asked, rows, strict=True):
        if room is not None and len(row) > room:
            raise one.fault(f"this text has {len(row):,} tokens, and the model has {room:,} places", "part it")
    return rows


def _candidates(
    run: Opened, rows: Sequence[Sequence[int]], found: Sequence[Sequence[Hypothesis]], aligned: bool
) -> list[list[Candidate]]:
    flat = [(row, said) for row, several in zip(rows, found, strict=True) for said in several]
    maps: Sequence[Alignment | None] = [None] * len(flat)
    if aligned:
        maps = alignments(run, [row for row, _ in flat], [said.ids for _, said in flat])
    made = iter(
        Candidate(
            run.tokenizer.decode(said.ids), said.score, said.log_probability, one, "length" if said.cut else "end"
        )
        for (_, said), one in zip(flat, maps, strict=True)
    )
    return [[next(made) for _ in several] for several in found]
