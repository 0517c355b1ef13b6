"""Texts that a model is asked about: from the command line, from files, or from a pipe as they come."""

import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softlook.base.errors import ConfigError, DataError
from softlook.data import Origin, find
from softlook.data.columns import Table, named, text_column
from softlook.data.layouts import beginning, layout_of, record_size
from softlook.data.lines import Line, read_lines
from softlook.data.records import read
from softlook.recipes.opened import Question
from softlook.tokens.text import LONGEST

log = logging.getLogger("softlook.cli")
LINES, CHARACTERS = 4096, 1 << 18
"""Texts that are answered together; fewer, where they have so many characters."""
BLOCK = 1 << 16
"""Bytes that a pipe is asked for at a time; it may give fewer."""
PIPE, WORDS = Path("stdin"), Path("argument")
"""What stands in the place of a file's name where something is wrong with a text."""
CONVERT = "iconv -f WINDOWS-1252 -t UTF-8 FILE | softlook ..., if the text is West European"
Block = list[Question]


@dataclass(frozen=True)
class Columns:
    """Which columns of a table hold the texts."""

    text: str | None = None
    pair: str | None = None


def asked(words: Sequence[str], files: Sequence[Path], columns: Columns | None = None) -> Iterator[Block]:
    """What is asked, a block at a time: the words of the command line, else the files, else the lines of stdin.

    Files come in large blocks. Of a pipe it is whatever has come, so that nobody who waits for an answer before
    writing on waits in vain. With `columns`, tables are read as tables.
    """
    if words and files:
        raise ConfigError("both words and files came. Ask about one or the other.")
    if words:
        return iter([[Question(word, None, Origin(WORDS, number)) for number, word in enumerate(words, 1)]])
    if files:
        return _blocks(one for path in find(list(files)) for one in _of_file(path, columns))
    if columns is not None and (columns.text or columns.pair):
        raise ConfigError("columns have names in files. Name one: --file reviews.csv")
    return _coming()


def whole_texts(words: Sequence[str], files: Sequence[Path]) -> Iterator[Block]:
    """All of a file, or of stdin, as one text."""
    if words:
        raise ConfigError("--whole is for files and stdin; what stands in quotes is one text anyway")
    if files:
        sources = [(path, read_lines(path, longest=LONGEST)) for path in find(list(files))]
    else:
        sources = [(PIPE, read_lines(PIPE, longest=LONGEST, blocks=_Coming()))]
    for path, lines in sources:
        held = [_sound(line).text + "\n" * line.ends for line in lines]
        yield [Question("".join(held).removesuffix("\n"), None, Origin(path, 1))]


def _of_file(path: Path, columns: Columns | None) -> Iterator[Question]:
    layout = None if columns is None else layout_of(path, longest=LONGEST)
    if columns is None or layout is None or layout.format == "text":
        for line in read_lines(path, longest=LONGEST):
            yield Question(_sound(line).text, None, Origin(path, line.number))
        return
    sample = [record for record in beginning(read(path, layout), record_size, 1000) if not record.fault]
    table = Table(path, layout.columns, sample, layout.others)
    text = text_column(table, text=columns.text)["text"]
    pair = None if columns.pair is None else named(table, columns.pair)
    if columns.text is None:
        log.info(f"The texts are those of {text!r}; --text names another column.")
    for values, origin, fault in read(path, layout, [text] if pair is None else [text, pair], longest=LONGEST):
        if fault is not None:
            raise fault
        yield Question(_as_text(values.get(text)), None if pair is None else _as_text(values.get(pair)), origin)


def _blocks(questions: Iterator[Question]) -> Iterator[Block]:
    """As many together as is good. What is wrong with one is said once those before it are answered."""
    block: Block = []
    characters = 0
    while True:
        try:
            one = next(questions, None)
        except DataError:
            if block:
                yield block
            raise
        if one is None:
            break
        block.append(one)
        characters += len(one.text)
        if len(block) == LINES or characters >= CHARACTERS:
            yield block
            block, characters = [], 0
    if block:
        yield block


class _Coming:
    """The bytes of stdin as they come, and how many lines were whole so far."""

    def __init__(self) -> None:
        self.whole = 0

    def __iter__(self) -> Iterator[bytes]:
        if sys.stdin is None or sys.stdin.closed:
            return
        while block := sys.stdin.buffer.read1(BLOCK):  # pyright: ignore[reportAttributeAccessIssue]  (buffered: it has)
            self.whole += block.count(b"\n")
            yield block


def _coming() -> Iterator[Block]:
    if sys.stdin is not None and sys.stdin.isatty():
        log.info("Type a text, then Enter. Ctrl-D ends." if sys.platform != "win32" else "Type a text, then Enter.")
    coming, block = _Coming(), Block()
    for line in read_lines(PIPE, longest=LONGEST, blocks=coming):
        if line.fault and block:
            yield block
        block.append(Question(_sound(line).text, None, Origin(PIPE, line.number)))
        if line.number >= coming.whole or len(block) == LINES:  # more is still to come, perhaps much later
            yield block
            block = []
    if block:
        yield block


def _sound(line: Line) -> Line:
    """A line of which nothing is wrong."""
    if line.fault is None:
        return line
    fault = line.fault
    fault.help = CONVERT if fault.file == str(PIPE) else fault.help.replace(", or raise --longest-line", "")
    raise fault


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
