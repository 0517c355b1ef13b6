"""Training examples, iterated from files, with read statistics."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from softlook.base.errors import DataError
from softlook.data.records import Origin


class TextPair(NamedTuple):
    """A source text and its target, such as a translation."""

    source: str
    target: str
    origin: Origin | None = None

    @property
    def texts(self) -> dict[str, str]:
        """Each text by its name."""
        return {"source": self.source, "target": self.target}

    @property
    def key(self) -> str:
        """What decides the side of a split: equal inputs are always on the same side."""
        return self.source


class TextExample(NamedTuple):
    """A text, or a part of a document. Parts with the same document number belong together, in order."""

    text: str
    document: int = 0
    origin: Origin | None = None

    @property
    def texts(self) -> dict[str, str]:
        """The text by its name."""
        return {"text": self.text}

    @property
    def key(self) -> str:
        """What decides the side of a split."""
        return self.text


class LabeledText(NamedTuple):
    """A text, or a pair of texts, with a label."""

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
        """What decides the side of a split: equal inputs are always on the same side."""
        return self.text if self.pair is None else f"{self.text}\n{self.pair}"


Example = TypeVar("Example", TextPair, TextExample, LabeledText)


class ReadStats:
    """Counts of examples read, empty and bad. Raises when there are too many bad ones.

    >>> stats = ReadStats(max_bad_rows=1)
    >>> stats.count_example("a text"), stats.count_example("a text", " ")
    (True, False)
    >>> stats.skip_bad_row(DataError("not a text"))
    >>> stats.read, stats.empty, stats.bad
    (1, 1, 1)
    """

    def __init__(self, max_bad_rows: int = 0) -> None:
        self.max_bad_rows = max_bad_rows
        self.read = self.empty = self.bad = 0
        self.first_errors: list[str] = []

    def count_example(self, *texts: str) -> bool:
        """Count an example as read, or as empty if one of its texts is blank. False if it is to be skipped."""
        for text in texts:
            if not text or text.isspace():
                self.empty += 1
                return False
        self.read += 1
        return True

    def skip_bad_row(self, error: DataError) -> None:
        """Count a bad row, or raise its error if there were too many."""
        if self.bad >= self.max_bad_rows:
            if self.bad:
                error.why = f"{error.why}. {self.bad:,} bad rows before it were skipped".lstrip(". ")
            skip = "skip such rows: --max-bad-rows 100"
            error.help = f"{error.help}; or {skip}" if error.help else skip
            raise error
        self.bad += 1
        if len(self.first_errors) < 5:
            self.first_errors.append(str(error))


@dataclass
class Examples(Generic[Example]):
    """Examples in files, read anew in every iteration; never all in memory.

    >>> from softlook.data.readers import read_sentences
    >>> _ = Path("a.txt").write_text("one\\n\\ntwo\\n")
    >>> examples = read_sentences("a.txt")
    >>> [example.text for example in examples], examples.read_stats.empty
    (['one', 'two'], 1)
    """

    files: tuple[Path, ...]
    reader: Callable[[ReadStats], Iterator[Example]]
    """Starts one pass over the files."""
    notes: tuple[str, ...] = ()
    """What was inferred about the files, in sentences."""
    max_bad_rows: int = 0
    """Bad rows to skip before it is an error."""
    read_stats: ReadStats = field(default_factory=ReadStats)
    """Of the last pass."""
    is_plain_text: bool = False
    """Whether the files are running text, in which blank lines separate documents."""

    def __iter__(self) -> Iterator[Example]:
        self.read_stats = stats = ReadStats(self.max_bad_rows)
        yield from self.reader(stats)
        if not stats.read:
            raise _no_examples_error(self.files, stats)


def _no_examples_error(files: tuple[Path, ...], stats: ReadStats) -> DataError:
    skipped = [f"{stats.empty:,} empty"] * bool(stats.empty) + [f"{stats.bad:,} bad"] * bool(stats.bad)
    is_empty = bool(files) and not files[0].stat().st_size
    why = f"skipped: {' and '.join(skipped)}" if skipped else "it is empty" if is_empty else "it has no rows"
    why += f"; the first bad one: {stats.first_errors[0].splitlines()[0]}" if stats.first_errors else ""
    others = f", nor in the {len(files) - 1:,} others" if len(files) > 1 else ""
    return DataError(f"there are no examples in this file{others}", file=next(iter(files), None), why=why)
