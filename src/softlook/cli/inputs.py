"""Input texts: from arguments, from files, or from stdin as they arrive."""

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softlook.base.errors import ConfigError, DataError
from softlook.data import Origin, find_files
from softlook.data.columns import TableSample, infer_text_column, resolve_column
from softlook.data.lines import Line, read_lines
from softlook.data.records import read_records
from softlook.data.sniffing import record_size, sniff_layout, take_sample
from softlook.recipes.inference.pipeline import TextInput
from softlook.tokens.tokenizer import MAX_TEXT_CHARS

log = logging.getLogger("softlook.cli")
MAX_BATCH_TEXTS, MAX_BATCH_CHARS = 4096, 1 << 18
"""Texts processed together; fewer if they have this many characters."""
READ_BYTES = 1 << 16
"""Bytes read from a pipe at once; it may return fewer."""
STDIN, ARGUMENT = Path("stdin"), Path("argument")
"""File names shown in errors about texts that are not from a file."""
CONVERT_HELP = "iconv -f WINDOWS-1252 -t UTF-8 FILE | softlook ..., if the text is West European"
TextBatch = list[TextInput]


@dataclass(frozen=True)
class TextColumns:
    """Names of the columns that hold the texts of a table."""

    text: str | None = None
    text_pair: str | None = None


def read_texts(texts: Sequence[str], files: Sequence[Path], columns: TextColumns | None = None) -> Iterator[TextBatch]:
    """Batches of texts: the arguments, else the files, else the lines of stdin.

    Files are read in large batches. A pipe yields whatever has arrived, so that a program that waits for an answer
    before it writes more is not blocked. With `columns`, tables are read as tables.
    """
    if texts and files:
        raise ConfigError("texts and files cannot be combined. Give one or the other.")
    if texts:
        return iter([[TextInput(text, None, Origin(ARGUMENT, number)) for number, text in enumerate(texts, 1)]])
    if files:
        return _batches(text for path in find_files(list(files)) for text in _read_file(path, columns))
    if columns is not None and (columns.text or columns.text_pair):
        raise ConfigError("column names require a file: --file reviews.csv")
    return _read_stdin()


def read_whole_files(texts: Sequence[str], files: Sequence[Path]) -> Iterator[TextBatch]:
    """Each file, or all of stdin, as one text."""
    if texts:
        raise ConfigError("--whole-file is for files and stdin; an argument is one text anyway")
    if files:
        sources = [(path, read_lines(path, max_chars=MAX_TEXT_CHARS)) for path in find_files(list(files))]
    else:
        sources = [(STDIN, read_lines(STDIN, max_chars=MAX_TEXT_CHARS, blocks=_StdinBlocks()))]
    for path, lines in sources:
        parts = [_check(line).text + "\n" * line.ends_line for line in lines]
        yield [TextInput("".join(parts).removesuffix("\n"), None, Origin(path, 1))]


def _read_file(path: Path, columns: TextColumns | None) -> Iterator[TextInput]:
    layout = None if columns is None else sniff_layout(path, max_line_chars=MAX_TEXT_CHARS)
    if columns is None or layout is None or layout.format == "text":
        yield from _to_inputs(path, read_lines(path, max_chars=MAX_TEXT_CHARS))
        return
    sample = [record for record in take_sample(read_records(path, layout), record_size, 1000) if not record.error]
    table = TableSample(path, layout.columns, sample, layout.unsupported)
    text = infer_text_column(table, text=columns.text)["text"]
    pair = None if columns.text_pair is None else resolve_column(table, columns.text_pair)
    if columns.text is None:
        log.info(f"Using the text column {text!r}; --text selects another.")
    names = [text] if pair is None else [text, pair]
    for values, origin, error in read_records(path, layout, names, max_line_chars=MAX_TEXT_CHARS):
        if error is not None:
            raise error
        yield TextInput(_to_text(values.get(text)), None if pair is None else _to_text(values.get(pair)), origin)


def _batches(texts: Iterator[TextInput], is_last: Callable[[int], bool] = lambda number: False) -> Iterator[TextBatch]:
    """Group texts; a batch also ends at a number that `is_last`. An invalid text raises after those before it."""
    batch: TextBatch = []
    characters = 0
    try:
        for number, text in enumerate(texts, 1):
            batch.append(text)
            characters += len(text.text)
            if len(batch) == MAX_BATCH_TEXTS or characters >= MAX_BATCH_CHARS or is_last(number):
                yield batch
                batch, characters = [], 0
    except DataError:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


class _StdinBlocks:
    """Blocks of bytes from stdin as they arrive, and the number of complete lines so far."""

    def __init__(self) -> None:
        self.num_lines = 0

    def __iter__(self) -> Iterator[bytes]:
        if sys.stdin is None or sys.stdin.closed:
            return
        while block := sys.stdin.buffer.read1(READ_BYTES):  # pyright: ignore[reportAttributeAccessIssue]  (buffered)
            self.num_lines += block.count(b"\n")
            yield block


def _read_stdin() -> Iterator[TextBatch]:
    if sys.stdin is not None and sys.stdin.isatty():
        log.info("Type a text, then Enter. Ctrl-D ends." if sys.platform != "win32" else "Type a text, then Enter.")
    blocks = _StdinBlocks()
    texts = _to_inputs(STDIN, read_lines(STDIN, max_chars=MAX_TEXT_CHARS, blocks=blocks))
    return _batches(texts, lambda number: number >= blocks.num_lines)  # the next line may arrive much later


def _to_inputs(path: Path, lines: Iterable[Line]) -> Iterator[TextInput]:
    return (TextInput(_check(line).text, None, Origin(path, line.number)) for line in lines)


def _check(line: Line) -> Line:
    """The line, or its error."""
    if line.error is None:
        return line
    error = line.error
    flagless = error.help.partition(", or raise --")[0]  # that flag is not one of these commands
    error.help = CONVERT_HELP if error.file == str(STDIN) else flagless
    raise error


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
