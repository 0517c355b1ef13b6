"""What a model learns from, one example at a time, each with where it came from."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from softlook.base.errors import DataError
from softlook.data.records import Origin
from softlook.data.tally import Tally


class Pair(NamedTuple):
    """A text and what it is to become."""

    source: str
    target: str
    origin: Origin | None = None

    @property
    def texts(self) -> dict[str, str]:
        """Each side by its name."""
        return {"source": self.source, "target": self.target}

    @property
    def key(self) -> str:
        """What decides on which side of a split the example falls: the same question is never on both."""
        return self.source


class Text(NamedTuple):
    """A text, or a piece of one. Pieces with the same document number belong together, in their order."""

    text: str
    document: int = 0
    origin: Origin | None = None

    @property
    def texts(self) -> dict[str, str]:
        """The text by its name."""
        return {"text": self.text}

    @property
    def key(self) -> str:
        """What decides on which side of a split the example falls."""
        return self.text


class Labelled(NamedTuple):
    """A text, perhaps with a second one, and what it is."""

    text: str
    pair: str | None
    label: str
    origin: Origin | None = None

    @property
    def texts(self) -> dict[str, str]:
        """Each text by its name."""
        return {"text": self.text} if self.pair is None else {"text": self.text, "text pair": self.pair}

    @property
    def key(self) -> str:
        """What decides on which side of a split the example falls: the same question is never on both."""
        return self.text if self.pair is None else f"{self.text}\n{self.pair}"


Example = TypeVar("Example", Pair, Text, Labelled)


@dataclass
class Examples(Generic[Example]):
    """Examples in files, read anew each time one goes through them; never all in memory.

    >>> from softlook.data.tasks import sentences
    >>> _ = Path("a.txt").write_text("one\\n\\ntwo\\n")
    >>> examples = sentences("a.txt")
    >>> [example.text for example in examples], examples.tally.empty
    (['one', 'two'], 1)
    """

    files: tuple[Path, ...]
    begin: Callable[[Tally], Iterator[Example]]
    """Starts one way through the files."""
    said: tuple[str, ...] = ()
    """What was guessed, in sentences."""
    bad_rows: int = 0
    """How many bad rows may be left out before it is an error."""
    tally: Tally = field(default_factory=Tally)
    """Of the last way through."""

    def __iter__(self) -> Iterator[Example]:
        self.tally = tally = Tally(self.bad_rows)
        yield from self.begin(tally)
        if not tally.read:
            raise nothing(self.files, tally)


def nothing(files: tuple[Path, ...], tally: Tally) -> DataError:
    """The error for files without a single example."""
    left = [f"{tally.empty:,} empty"] * bool(tally.empty) + [f"{tally.bad:,} bad"] * bool(tally.bad)
    why = f"left out: {' and '.join(left)}" if left else "there is not one row"
    others = f", nor in the {len(files) - 1:,} others" if len(files) > 1 else ""
    return DataError(f"there is nothing to learn from in this file{others}", file=next(iter(files), None), why=why)
