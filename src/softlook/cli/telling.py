"""What `softlook generate` and `softlook translate` do."""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from softlook.base.errors import ConfigError, DataError
from softlook.cli.asking import Block
from softlook.cli.voice import Voice, counting
from softlook.data.lines import read_lines
from softlook.recipes.answering import (
    Candidate,
    Continued,
    Manner,
    Opened,
    Question,
    Translation,
    generate,
    pharaoh,
    stream,
    translate,
)

log = logging.getLogger("softlook.cli")
DIGITS = 4
"""Of weights and scores, as they are shown."""


def schema_in(path: Path | None) -> dict[str, Any] | None:
    """The JSON schema in a file."""
    if path is None:
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as fault:
        raise DataError(f"this is no JSON: {fault}", file=path) from None
    if not isinstance(content, dict):
        raise DataError("a JSON schema is an object", file=path, help='for example {"type": "object"}')
    return content


@dataclass(frozen=True)
class Tale:
    """How texts are to go on."""

    run: Opened
    manner: Manner
    count: int = 1
    log_probabilities: bool = False

    def tell(self, blocks: Iterator[Block]) -> None:
        """Go on with each. One that comes alone is heard word by word; where none comes, a text is begun."""
        voice, number = Voice(), 0
        is_plain = self.count == 1 and not (voice.json or self.log_probabilities)
        for block in chain([next(blocks, None) or [Question("")]], blocks):
            if is_plain and len(block) == 1:
                self._one(voice, block[0], number)
            else:
                self._several(voice, block, number)
            voice.flush()
            number += len(block)

    def _one(self, voice: Voice, prompt: Question, number: int) -> None:
        last = ""
        self._part(voice, number == 0)
        try:
            for piece in stream(self.run, prompt, self.manner, number=number):
                voice.piece(piece)
                last = piece
        finally:  # also where somebody has heard enough
            if not last.endswith("\n"):
                voice.piece("\n")

    def _several(self, voice: Voice, block: Block, number: int) -> None:
        made = generate(self.run, block, self.manner, count=self.count, first=number)
        for place, one in enumerate(made):
            if voice.json:
                voice.object(self._content(one))
            else:
                self._part(voice, number + place == 0)
                self._said(voice, one)

    def _part(self, voice: Voice, is_first: bool) -> None:
        if not is_first:
            voice.piece("\n")  # an answer may have lines: what parts two of them is an empty one

    def _said(self, voice: Voice, made: Continued) -> None:
        if self.log_probabilities:
            for token, piece in zip(made.tokens, made.pieces, strict=True):
                chance, words = f"{token.log_probability:.{DIGITS}f}", json.dumps(piece, ensure_ascii=False)
                voice.line(chance, str(token.rank), words)
        else:
            voice.piece(made.text if made.text.endswith("\n") else made.text + "\n")

    def _content(self, made: Continued) -> dict[str, Any]:
        content: dict[str, Any] = {
            "prompt": made.prompt,
            "text": made.text,
            "reason": made.reason,
            "log_probability": round(made.log_probability, DIGITS),
            "tokens": len(made.tokens),
            "seed": made.seed,
        }
        if self.log_probabilities:
            content["log_probabilities"] = [
                {"id": token.id, "text": piece, "log_probability": round(token.log_probability, 6), "rank": token.rank}
                for token, piece in zip(made.tokens, made.pieces, strict=True)
            ]
        return content


@dataclass(frozen=True)
class Rendering:
    """How texts are to be translated, and what is to be shown of it."""

    run: Opened
    beams: int | None = None
    penalty: float | None = None
    n_best: int = 1
    alignments: bool = False
    pieces: bool = False
    reference: Path | None = None

    def tell(self, blocks: Iterator[Block]) -> None:
        """A line for each line, and at the end what they are worth."""
        voice, number, said, cut = Voice(), 0, list[str](), list[int]()
        aligned = self.alignments or self.pieces
        wanted = None if self.reference is None else _lines_of(self.reference)
        with counting(voice) as counted:
            for block in blocks:
                made = translate(
                    self.run, block, beams=self.beams, penalty=self.penalty, n_best=self.n_best, aligned=aligned
                )
                for one in made:
                    number += 1
                    cut += [number] if one.best and one.best[0].reason == "length" else []
                    self._said(voice, number, one)
                voice.flush()
                counted.add(len(block))
                said += [one.text for one in made] if wanted is not None else []
        if cut:
            log.warning(cut_notice(cut))
        if wanted is not None and self.reference is not None:
            _scored(voice, said, wanted, self.reference)

    def _said(self, voice: Voice, number: int, one: Translation) -> None:
        if voice.json:
            voice.object(self._content(one))
        elif self.n_best > 1:
            for candidate in one.best:
                voice.line(str(number), f"{candidate.score:.{DIGITS}f}", candidate.text, *self._pairs(candidate))
        else:
            voice.line(one.text, *(self._pairs(one.best[0]) if one.best else []))

    def _pairs(self, one: Candidate) -> list[str]:
        if one.alignment is None:
            return []
        return [pharaoh(one.alignment.tokens() if self.pieces else one.alignment.words())]

    def _content(self, one: Translation) -> dict[str, Any]:
        best = [self._candidate(candidate) for candidate in one.best]
        first = best[0] if best else {"translation": "", "score": None, "reason": None}
        return {"source": one.source, **first, **({"n_best": best} if self.n_best > 1 else {})}

    def _candidate(self, one: Candidate) -> dict[str, Any]:
        content: dict[str, Any] = {"translation": one.text, "score": round(one.score, 6), "reason": one.reason}
        if one.alignment is not None:
            weights = [[round(weight, DIGITS) for weight in row] for row in one.alignment.weights.tolist()]
            content["alignment"] = {
                "words": one.alignment.words(),
                "source": one.alignment.source,
                "target": one.alignment.target,
                "weights": weights,
            }
        return content


def cut_notice(lines: Sequence[int]) -> str:
    """What to say of translations that a length limit cut.

    >>> cut_notice([3, 7])
    '2 translations were cut by the length limit, before they came to an end: lines 3, 7'
    """
    which = f"line{'s' * (len(lines) > 1)} {', '.join(map(str, lines[:8]))}{', ...' * (len(lines) > 8)}"
    count = "1 translation was" if len(lines) == 1 else f"{len(lines):,} translations were"
    return f"{count} cut by the length limit, before {'it' if len(lines) == 1 else 'they'} came to an end: {which}"


def _lines_of(path: Path) -> list[str]:
    found = []
    for line in read_lines(path):
        if line.fault:
            raise line.fault
        found.append(line.text)
    return found


def _scored(voice: Voice, said: Sequence[str], wanted: Sequence[str], reference: Path) -> None:
    from softlook.recipes.bleu import scored  # noqa: PLC0415  (only now is it known to be needed)

    if len(said) != len(wanted):
        raise DataError(f"{len(said):,} lines were translated, and the reference has {len(wanted):,}", file=reference)
    if not said:
        raise ConfigError("there is nothing to score: not one line came")
    scores = scored(said, wanted)
    if voice.json:
        voice.object({"scores": scores})
        return
    log.warning(f"BLEU {scores['bleu']:.2f}  {scores['bleu_signature']}")
    log.warning(f"chrF {scores['chrf']:.2f}  {scores['chrf_signature']}")
