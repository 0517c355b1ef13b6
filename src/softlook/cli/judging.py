"""What `softlook classify` and `softlook embed` do."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softlook.cli.asking import Block
from softlook.cli.talk import Result
from softlook.cli.vector_files import as_object, vector_file
from softlook.cli.voice import Voice, counting
from softlook.recipes.answering import Judgement, Opened, classify, embed
from softlook.recipes.reading import Pooling

DIGITS = 4
"""Of a probability, as it is shown."""


def judge(run: Opened, blocks: Iterator[Block], *, all_classes: bool) -> None:
    """The class of each text on its line; an empty text has none."""
    voice = Voice()
    with counting(voice) as counted:
        for block in blocks:
            full = iter(classify(run, [one for one in block if one.text.strip()]))
            for one in block:
                _said(voice, next(full) if one.text.strip() else None, one.text, all_classes)
            voice.flush()
            counted.add(len(block))


def _said(voice: Voice, made: Judgement | None, text: str, all_classes: bool) -> None:
    if voice.json:
        voice.object(_content(made, text, all_classes))
    elif made is None:
        voice.line("")
    else:
        shown = list(made.classes.items()) if all_classes else [(made.label, made.probability)]
        voice.line(*(cell for label, chance in shown for cell in (label, f"{chance:.{DIGITS}f}")))


def _content(made: Judgement | None, text: str, all_classes: bool) -> dict[str, Any]:
    if made is None:
        return {"text": text, "label": None, "probability": None}
    pair = {} if made.pair is None else {"text_pair": made.pair}
    content = {"text": text, **pair, "label": made.label, "probability": round(made.probability, 6)}
    rounded = {label: round(chance, 6) for label, chance in made.classes.items()}
    return {**content, "classes": rounded} if all_classes else content


@dataclass(frozen=True)
class Placing:
    """How texts get their vectors."""

    run: Opened
    pooling: Pooling | None = None
    unit: bool = False

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
        return embed(self.run, block, pooling=self.pooling, unit=self.unit)
