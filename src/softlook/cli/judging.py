"""What `softlook classify` and `softlook embed` do."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from softlook.cli.asking import Block
from softlook.cli.talk import Result
from softlook.cli.vector_files import as_object, vector_file
from softlook.cli.voice import Voice, counting
from softlook.recipes.answering import Judgement, Opened, classify, embed
from softlook.recipes.reading import Pooling

DIGITS = 4
"""Of a probability, as it is shown; of a very small or large number, those that count."""


def judge(run: Opened, blocks: Iterator[Block], *, all_classes: bool) -> None:
    """The class of each text on its line; an empty text has none."""
    voice = Voice()
    with counting(voice) as counted:
        for block in blocks:
            full = iter(classify(run, [one for one in block if one.text.strip()]))
            for one in block:
                _said(voice, next(full) if one.text.strip() else None, one.text, Shown(all_classes, score_name(run)))
            voice.flush()
            counted.add(len(block))


@dataclass(frozen=True)
class Shown:
    """What is shown of a judgement."""

    all_classes: bool
    name: Literal["probability", "value"]
    """What its number is called in JSON."""


def score_name(run: Opened) -> Literal["probability", "value"]:
    return "value" if run.model.config.problem == "regression" else "probability"


def _said(voice: Voice, made: Judgement | None, text: str, shown: Shown) -> None:
    if voice.json:
        voice.object(_content(made, text, shown))
    elif made is None:
        voice.line("")
    else:
        classes = list(made.classes.items()) if shown.all_classes else [(made.label, made.probability)]
        voice.line(*(cell for label, score in classes for cell in (label, _written(score))))


def _written(score: float) -> str:
    """
    >>> _written(0.12345), _written(0.0), _written(-2.5), _written(1.2345e-7)
    ('0.1235', '0.0000', '-2.5000', '1.235e-07')
    """
    return f"{score:.{DIGITS}f}" if score == 0 or 1e-3 <= abs(score) < 1e6 else f"{score:.{DIGITS}g}"


def _content(made: Judgement | None, text: str, shown: Shown) -> dict[str, Any]:
    if made is None:
        return {"text": text, "label": None, shown.name: None}
    pair = {} if made.pair is None else {"text_pair": made.pair}
    content = {"text": text, **pair, "label": made.label, shown.name: _rounded(made.probability)}
    rounded = {label: _rounded(score) for label, score in made.classes.items()}
    return {**content, "classes": rounded} if shown.all_classes else content


def _rounded(score: float) -> float:
    """Six digits that count: a reranker tells texts apart by very small probabilities too."""
    return float(f"{score:.6g}")


@dataclass(frozen=True)
class Placing:
    """How texts get their vectors."""

    run: Opened
    pooling: Pooling | None = None
    unit: bool = False
    prompt: str | None = None

    def tell(self, blocks: Iterator[Block]) -> None:
        """An object of JSON a line."""
        voice = Voice()
        with counting(voice) as counted:
            for block in blocks:
                for one, vector in zip(block, self._vectors(block), strict=True):
                    voice.object(as_object(one.text, vector))
                voice.flush()
                counted.add(len(block))

    def write(self, blocks: Iterator[Block], path: Path) -> Result:
        """All of them to a file."""
        count = width = 0
        with vector_file(path) as file, counting(Voice()) as counted:
            for block in blocks:
                vectors = self._vectors(block)
                file.add([one.text for one in block], vectors)
                count, width = count + len(block), vectors.shape[1]
                counted.add(len(block))
        return Result(path, {"vectors": count, "width": width})

    def _vectors(self, block: Block) -> Any:
        return embed(self.run, block, pooling=self.pooling, unit=self.unit, prompt=self.prompt)
