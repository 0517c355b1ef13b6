"""From files to the examples of a task: what is guessed on the way is said in `Examples.said`."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from softlook.base.errors import DataError
from softlook.data.columns import Columns, Table, labelled_columns, named, pair_columns, text_column
from softlook.data.examples import Examples, Labelled, Pair, Text
from softlook.data.files import Given, find
from softlook.data.layouts import beginning, layout_of, record_size
from softlook.data.lines import LONGEST, read_lines
from softlook.data.parallel import paired_files, read_parallel
from softlook.data.records import Layout, Origin, read
from softlook.data.tally import Tally

SAMPLE = 1000
"""Records that are looked at before the columns are guessed."""
PIECE = 1 << 16
"""Characters of a piece of a long document."""


@dataclass(frozen=True)
class Part:
    """One file, and which of its columns are read."""

    path: Path
    layout: Layout
    columns: Columns


def pairs(
    given: Given,
    *,
    source: str | None = None,
    target: str | None = None,
    header: bool | None = None,
    bad_rows: int = 0,
    longest: int = LONGEST,
) -> Examples[Pair]:
    r"""Translations: two columns of a table, or two text files whose lines belong together.

    >>> _ = Path("a.en").write_text("yes\nno\n")
    >>> _ = Path("a.de").write_text("ja\nnein\n")
    >>> examples = pairs(["a.en", "a.de"])
    >>> [(pair.source, pair.target) for pair in examples], *examples.said
    ([('yes', 'ja'), ('no', 'nein')], "source is 'a.en' and target is 'a.de', line by line")
    """
    files = find(given)
    layouts = [layout_of(path, is_table=True, header=header, longest=longest) for path in files]
    if all(layout.format == "text" for layout in layouts):
        couples = paired_files(files, source, target)
        said = [f"source is {a.name!r} and target is {b.name!r}, line by line" for a, b in couples]
        return Examples(tuple(files), partial(_parallel, tuple(couples), longest), tuple(said), bad_rows)
    parts = _parts(files, layouts, partial(pair_columns, source=source, target=target))
    return Examples(tuple(files), partial(_pairs, parts, longest), _said(parts), bad_rows)


def labelled(
    given: Given,
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    header: bool | None = None,
    bad_rows: int = 0,
    longest: int = LONGEST,
) -> Examples[Labelled]:
    r"""Texts with labels, from tables.

    >>> _ = Path("a.csv").write_text("review,stars\nfine,4\npoor,1\n")
    >>> examples = labelled("a.csv")
    >>> [(example.text, example.label) for example in examples], *examples.said
    ([('fine', '4'), ('poor', '1')], "text is 'review' and label is 'stars', by name")
    """
    files = find(given)
    layouts = [layout_of(path, is_table=True, header=header, longest=longest) for path in files]
    parts = _parts(files, layouts, partial(labelled_columns, text=text, pair=pair, label=label))
    return Examples(tuple(files), partial(_labelled, parts, longest), _said(parts), bad_rows)


def sentences(given: Given, *, text: str | None = None, bad_rows: int = 0, longest: int = LONGEST) -> Examples[Text]:
    r"""Every line of text as an example; a blank line begins a new document. In a table, each row is a document.

    >>> _ = Path("a.txt").write_text("one\ntwo\n\nthree\n")
    >>> [(text, document) for text, document, _ in sentences("a.txt")]
    [('one', 0), ('two', 0), ('three', 1)]
    """
    parts = _text_parts(given, text, longest)
    said = _said(parts, "plain text, each line an example")
    return Examples(tuple(part.path for part in parts), partial(_sentences, parts, longest), said, bad_rows)


def documents(
    given: Given, *, text: str | None = None, bad_rows: int = 0, longest: int = LONGEST, piece: int = PIECE
) -> Examples[Text]:
    r"""Text as it stands, with its line ends. A text file is one document, cut into pieces at line ends; so no line
    is too long. In a table, each row is a document.

    >>> _ = Path("a.txt").write_text("one\n\ntwo\n")
    >>> [(text, document) for text, document, _ in documents("a.txt", piece=4)]
    [('one\n', 0), ('\ntwo\n', 0)]
    """
    parts = _text_parts(given, text, longest)
    begin = partial(_documents, parts, longest, piece)
    said = _said(parts, "plain text, each file a document")
    return Examples(tuple(part.path for part in parts), begin, said, bad_rows)


def _text_parts(given: Given, text: str | None, longest: int) -> tuple[Part, ...]:
    """Each file's own guess: a folder may hold plain text beside tables."""
    parts = []
    for path in find(given):
        layout = layout_of(path, longest=longest)
        if layout.format == "text":
            parts.append(Part(path, layout, Columns({"text": "text"}, {})))
        else:
            parts.extend(_parts([path], [layout], partial(text_column, text=text)))
    return tuple(parts)


def _parts(files: list[Path], layouts: list[Layout], guess: Callable[[Table], Columns]) -> tuple[Part, ...]:
    """The first file decides which columns are meant; the others must have them too."""
    records = beginning(read(files[0], layouts[0]), record_size, SAMPLE)
    sample = [record for record in records if not record.fault]
    columns = guess(Table(files[0], layouts[0].columns, sample, layouts[0].others))
    parts = []
    for path, layout in zip(files, layouts, strict=True):
        table = Table(path, layout.columns, others=layout.others)
        roles = {role: named(table, name) for role, name in columns.roles.items()}
        parts.append(Part(path, layout, Columns(roles, columns.signs, columns.left)))
    return tuple(parts)


def _said(parts: tuple[Part, ...], plain: str = "") -> tuple[str, ...]:
    told = (plain if part.layout.format == "text" else str(part.columns) for part in parts)
    return tuple(dict.fromkeys(told))


def _parallel(couples: tuple[tuple[Path, Path], ...], longest: int, tally: Tally) -> Iterator[Pair]:
    for couple in couples:
        for source, target, origin in read_parallel(*couple, longest, tally):
            if tally.keeps(source, target):
                yield Pair(source.strip(), target.strip(), origin)


def _pairs(parts: tuple[Part, ...], longest: int, tally: Tally) -> Iterator[Pair]:
    for part in parts:
        columns = part.columns["source"], part.columns["target"]
        for (source, target), origin in _good(part, columns, longest, tally):
            if tally.keeps(source, target):
                yield Pair(source.strip(), target.strip(), origin)


def _labelled(parts: tuple[Part, ...], longest: int, tally: Tally) -> Iterator[Labelled]:
    for part in parts:
        columns = tuple(
            part.columns.roles[role] for role in ("text", "label", "text pair") if role in part.columns.roles
        )
        for values, origin in _good(part, columns, longest, tally):
            if tally.keeps(*values):
                text, label, *pair = (value.strip() for value in values)
                yield Labelled(text, pair[0] if pair else None, label, origin)


def _sentences(parts: tuple[Part, ...], longest: int, tally: Tally) -> Iterator[Text]:
    document = 0
    for part in parts:
        is_table = part.layout.format != "text"
        for (text,), origin in _good(part, (part.columns["text"],), longest, tally):
            if tally.keeps(text):
                yield Text(text.strip(), document, origin)
                document += is_table
            else:
                document += 1
        document += 1


def _documents(parts: tuple[Part, ...], longest: int, piece: int, tally: Tally) -> Iterator[Text]:
    document = 0
    for part in parts:
        if part.layout.format == "text":
            for text, line in _pieces(part.path, piece, tally):
                if tally.keeps(text):
                    yield Text(text, document, Origin(part.path, line))
            document += 1
        else:
            for (text,), origin in _good(part, (part.columns["text"],), longest, tally):
                if tally.keeps(text):
                    yield Text(text, document, origin)
                    document += 1


def _pieces(path: Path, size: int, tally: Tally) -> Iterator[tuple[str, int]]:
    held, length, first = [], 0, 1
    for line in read_lines(path, longest=size, split_long=True):
        if line.fault:
            tally.bear(line.fault)
            continue
        first = first if held else line.number
        held.append(line.text + "\n" * line.ends)
        length += len(held[-1])
        if length >= size:
            yield "".join(held), first
            held, length = [], 0
    if held:
        yield "".join(held), first


def _good(part: Part, columns: tuple[str, ...], longest: int, tally: Tally) -> Iterator[tuple[tuple[str, ...], Origin]]:
    """The records that can be used, the values of some columns as text; the others are counted, or raise."""
    for values, origin, fault in read(part.path, part.layout, columns, longest=longest):
        if fault is None:
            try:
                texts = tuple(_as_text(values.get(name), name, origin) for name in columns)
            except DataError as found:
                fault = found
            else:
                yield texts, origin
        if fault is not None:
            tally.bear(fault)


def _as_text(value: Any, column: str, origin: Origin) -> str:
    if isinstance(value, str):
        return value
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(int(value)) if value == int(value) else str(value)
    kind = {list: "a list", dict: "an object"}.get(type(value), f"a {type(value).__name__}")
    raise origin.fault(f"{column!r:.80} holds {kind} here; a text or a number was wanted", excerpt=str(value)[:200])
