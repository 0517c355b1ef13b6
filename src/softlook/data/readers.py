"""Readers: files to pairs, labeled texts, sentences, documents."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from softlook.base.errors import DataError
from softlook.data.class_folders import ClassFolders, find_class_folders, read_whole_text
from softlook.data.columns import (
    ColumnRoles,
    TableSample,
    infer_labeled_columns,
    infer_pair_columns,
    infer_text_column,
    resolve_column,
)
from softlook.data.examples import Examples, LabeledText, ReadStats, TextExample, TextPair
from softlook.data.files import PathOrPaths, find_files
from softlook.data.labels import Label, LabelFormat, Problem, as_text, infer_label_format
from softlook.data.lines import MAX_LINE_CHARS, read_lines
from softlook.data.parallel import pair_files, read_parallel
from softlook.data.records import Layout, Origin, read_records
from softlook.data.sniffing import record_size, sniff_layout, take_sample

SAMPLE_RECORDS = 1000
"""Records read to infer columns."""
CHUNK_CHARS = 1 << 16
"""Characters of a chunk of a long document."""
TextRow = tuple[tuple[str, ...], Origin]
ParseCell = Callable[[Any, str, Origin], Any]
"""The value of a cell, its column and its origin -> what the cell means."""


@dataclass(frozen=True)
class InputFile:
    """A file, its layout and the columns to read."""

    path: Path
    layout: Layout
    columns: ColumnRoles


def read_pairs(
    paths: PathOrPaths,
    *,
    source: str | None = None,
    target: str | None = None,
    header: bool | None = None,
    max_bad_rows: int = 0,
    max_line_chars: int = MAX_LINE_CHARS,
) -> Examples[TextPair]:
    r"""Translation pairs: two columns of a table, or two text files with corresponding lines.

    >>> _ = Path("a.en").write_text("yes\nno\n")
    >>> _ = Path("a.de").write_text("ja\nnein\n")
    >>> examples = read_pairs(["a.en", "a.de"])
    >>> [(pair.source, pair.target) for pair in examples], *examples.notes
    ([('yes', 'ja'), ('no', 'nein')], "source is 'a.en' and target is 'a.de', line by line")
    """
    files = find_files(paths)
    layouts = [sniff_layout(path, is_table=True, header=header, max_line_chars=max_line_chars) for path in files]
    if all(layout.format == "text" for layout in layouts):
        pairs = pair_files(files, source, target)
        notes = tuple(f"source is {a.name!r} and target is {b.name!r}, line by line" for a, b in pairs)
        rows = partial(_parallel_rows, pairs, max_line_chars)
    else:
        inputs = _resolve_columns(files, layouts, partial(infer_pair_columns, source=source, target=target))
        notes = _notes(inputs)
        rows = partial(_table_rows, inputs, ("source", "target"), max_line_chars)
    return Examples(tuple(files), partial(_iterate_pairs, rows), notes, max_bad_rows)


def read_labeled(
    paths: PathOrPaths,
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    problem: Problem | None = None,
    label_separator: str | None = None,
    header: bool | None = None,
    max_bad_rows: int = 0,
    max_line_chars: int = MAX_LINE_CHARS,
) -> Examples[LabeledText]:
    r"""Labeled texts, from tables, or from folders: one folder of text files per class.

    With `problem="multi_label"` a cell holds any number of labels between separators, by default the most frequent of
    `;`, `|` and `,`; lists in JSON are multi-label data by themselves. With `"regression"` a label is a number.

    >>> _ = Path("a.csv").write_text("review,stars\nfine,4\npoor,1\n")
    >>> examples = read_labeled("a.csv")
    >>> [(example.text, example.label) for example in examples], *examples.notes
    ([('fine', '4'), ('poor', '1')], "text is 'review' and label is 'stars', by name")
    """
    classes = find_class_folders(paths)
    if classes:
        if problem not in (None, "single_label") or label_separator:
            raise DataError(f"--problem {problem or 'multi_label'} needs a table with a column of labels, got folders")
        return _read_class_folders(classes, max_bad_rows, max_line_chars)
    files = find_files(paths)
    layouts = [sniff_layout(path, is_table=True, header=header, max_line_chars=max_line_chars) for path in files]
    inputs = _resolve_columns(files, layouts, partial(infer_labeled_columns, text=text, pair=pair, label=label))
    sample = _sample(files[0], layouts[0]).values(inputs[0].columns["label"])
    format = infer_label_format(problem, label_separator, sample)
    notes = (*_notes(inputs), *([format.note] if format.note else []))
    reader = partial(_iterate_labeled, inputs, format, max_line_chars)
    return Examples(tuple(files), reader, notes, max_bad_rows, inferred=format.inferred)


def read_sentences(
    paths: PathOrPaths, *, text: str | None = None, max_bad_rows: int = 0, max_line_chars: int = MAX_LINE_CHARS
) -> Examples[TextExample]:
    r"""Every line of text as an example; a blank line starts a new document. In a table, each row is a document.

    >>> _ = Path("a.txt").write_text("one\ntwo\n\nthree\n")
    >>> [(text, document) for text, document, *_ in read_sentences("a.txt")]
    [('one', 0), ('two', 0), ('three', 1)]
    """
    inputs = _text_inputs(paths, text, max_line_chars)
    notes = _notes(inputs, "plain text, each line an example")
    reader = partial(_iterate_sentences, inputs, max_line_chars)
    return Examples(tuple(file.path for file in inputs), reader, notes, max_bad_rows)


def read_documents(
    paths: PathOrPaths,
    *,
    text: str | None = None,
    label: str | None = None,
    max_bad_rows: int = 0,
    max_line_chars: int = MAX_LINE_CHARS,
    chunk_chars: int = CHUNK_CHARS,
) -> Examples[TextExample]:
    r"""Text with its line ends. A text file is one document, in chunks split at line ends: no line is too long. In a
    table, each row is a document, with a label if `label` names a column.

    >>> _ = Path("a.txt").write_text("one\n\ntwo\n")
    >>> [(one.text, one.document) for one in read_documents("a.txt", chunk_chars=4)]
    [('one\n', 0), ('\ntwo\n', 0)]
    """
    inputs = _text_inputs(paths, text, max_line_chars, label)
    notes = _notes(inputs, "plain text, each file a document")
    reader = partial(_iterate_documents, inputs, max_line_chars, chunk_chars)
    return Examples(tuple(file.path for file in inputs), reader, notes, max_bad_rows)


def _text_inputs(
    paths: PathOrPaths, text: str | None, max_line_chars: int, label: str | None = None
) -> tuple[InputFile, ...]:
    """Columns are inferred per file: a folder may hold both plain text and tables."""
    inputs: list[InputFile] = []
    for path in find_files(paths):
        layout = sniff_layout(path, max_line_chars=max_line_chars)
        if layout.format == "text":
            if label is not None:
                raise DataError(f"plain text has no column {label!r:.80} of labels", file=path, help="use a table")
            inputs.append(InputFile(path, layout, ColumnRoles({"text": "text"}, {})))
        else:
            inputs.extend(_resolve_columns([path], [layout], partial(infer_text_column, text=text, label=label)))
    return tuple(inputs)


def _resolve_columns(
    files: list[Path], layouts: list[Layout], infer: Callable[[TableSample], ColumnRoles]
) -> tuple[InputFile, ...]:
    """Infer the columns from the first file; the others must have them too."""
    columns = infer(_sample(files[0], layouts[0]))
    inputs = []
    for path, layout in zip(files, layouts, strict=True):
        table = TableSample(path, layout.columns, unsupported=layout.unsupported)
        roles = {role: resolve_column(table, name) for role, name in columns.roles.items()}
        inputs.append(InputFile(path, layout, ColumnRoles(roles, columns.found_by, columns.unused)))
    return tuple(inputs)


def _sample(path: Path, layout: Layout) -> TableSample:
    records = take_sample(read_records(path, layout), record_size, SAMPLE_RECORDS)
    sample = [record for record in records if not record.error]
    return TableSample(path, layout.columns, sample, layout.unsupported)


def _notes(inputs: tuple[InputFile, ...], plain: str = "") -> tuple[str, ...]:
    notes = (plain if file.layout.format == "text" else str(file.columns) for file in inputs)
    layouts = (file.layout.note for file in inputs if file.layout.note)
    return tuple(dict.fromkeys((*layouts, *notes)))


def _iterate_pairs(rows: Callable[[ReadStats], Iterable[TextRow]], stats: ReadStats) -> Iterator[TextPair]:
    for (source, target), origin in rows(stats):
        if stats.count_example(source=source, target=target):
            yield TextPair(source.strip(), target.strip(), origin)


def _parallel_rows(pairs: list[tuple[Path, Path]], max_line_chars: int, stats: ReadStats) -> Iterator[TextRow]:
    for source, target in pairs:
        yield from read_parallel(source, target, max_line_chars, stats)


def _read_class_folders(classes: ClassFolders, max_bad_rows: int, max_line_chars: int) -> Examples[LabeledText]:
    files = tuple(path for paths in classes.files.values() for path in paths)
    reader = partial(_iterate_class_folders, classes, max_line_chars)
    return Examples(files, reader, classes.notes(), max_bad_rows)


def _iterate_class_folders(classes: ClassFolders, max_chars: int, stats: ReadStats) -> Iterator[LabeledText]:
    for label, paths in classes.files.items():
        for path in paths:
            try:
                text = read_whole_text(path, max_chars=max_chars).strip()
            except DataError as error:
                stats.skip_bad_row(error)
                continue
            if stats.count_example(text=text):
                yield LabeledText(text, None, label, Origin(path, 1))


def _iterate_labeled(
    inputs: tuple[InputFile, ...], format: LabelFormat, max_line_chars: int, stats: ReadStats
) -> Iterator[LabeledText]:
    parse = {"label": format.parse}
    for (label, *values), origin in _table_rows(inputs, ("label", "text", "text pair"), max_line_chars, stats, parse):
        text, *pair = (value.strip() for value in values)
        if stats.count_example(text=text, **_required(label), **({"text_pair": pair[0]} if pair else {})):
            yield LabeledText(text, pair[0] if pair else None, label.text, origin, label.labels, label.value)


def _required(label: Label) -> dict[str, str]:
    """The label, unless a text may have none."""
    return {"label": label.text} if label.labels is None else {}


def _iterate_sentences(inputs: tuple[InputFile, ...], max_line_chars: int, stats: ReadStats) -> Iterator[TextExample]:
    document = 0
    for file in inputs:
        is_table = file.layout.format != "text"
        for (text,), origin in _table_rows((file,), ("text",), max_line_chars, stats):
            if stats.count_example(text=text) if is_table else stats.count_line(text):
                yield TextExample(text.strip(), document, origin)
                document += is_table
            else:
                document += 1
        document += 1


def _iterate_documents(
    inputs: tuple[InputFile, ...], max_line_chars: int, chunk_chars: int, stats: ReadStats
) -> Iterator[TextExample]:
    document = 0
    for file in inputs:
        if file.layout.format == "text":
            for text, line in _iterate_chunks(file.path, chunk_chars, stats):
                if stats.count_line(text):
                    yield TextExample(text, document, Origin(file.path, line))
            document += 1
        else:
            for (text, *label), origin in _table_rows((file,), ("text", "label"), max_line_chars, stats):
                if stats.count_example(text=text, **({"label": label[0]} if label else {})):
                    yield TextExample(text, document, origin, label[0].strip() if label else None)
                    document += 1


def _iterate_chunks(path: Path, chunk_chars: int, stats: ReadStats) -> Iterator[tuple[str, int]]:
    """Chunks of a text file with their first line numbers."""
    lines, length, first = [], 0, 1
    for line in read_lines(path, max_chars=chunk_chars, split_long=True):
        if line.error:
            stats.skip_bad_row(line.error)
            continue
        first = first if lines else line.number
        lines.append(line.text + "\n" * line.ends_line)
        length += len(lines[-1])
        if length >= chunk_chars:
            yield "".join(lines), first
            lines, length = [], 0
    if lines:
        yield "".join(lines), first


def _table_rows(
    inputs: tuple[InputFile, ...],
    roles: tuple[str, ...],
    max_line_chars: int,
    stats: ReadStats,
    parse: Mapping[str, ParseCell] | None = None,
) -> Iterator[tuple[tuple[Any, ...], Origin]]:
    """The texts of some roles, where the files have them, in valid records; bad ones are counted, or raise.

    `parse` has functions for the roles that are not plain text.
    """
    for file in inputs:
        parsers = {file.columns[role]: (parse or {}).get(role, as_text) for role in roles if role in file.columns.roles}
        columns = tuple(parsers)
        for values, origin, error in read_records(file.path, file.layout, columns, max_line_chars=max_line_chars):
            if error is None:
                try:
                    cells = tuple(parser(values.get(name), name, origin) for name, parser in parsers.items())
                except DataError as invalid:
                    error = invalid
                else:
                    yield cells, origin
            if error is not None:
                stats.skip_bad_row(error)
