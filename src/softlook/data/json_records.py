"""JSON: one object per line, or one list of objects in a whole file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from softlook.base.errors import DataError
from softlook.data.lines import Line, line_error, read_lines
from softlook.data.streams import find_invalid_char

MAX_DOCUMENT_CHARS = 1 << 30
"""Characters of a JSON document, which is read as a whole."""
RECORDS_KEY = "data"
"""The key of the list of records, where the top level is an object."""
TO_JSON_LINES = "convert it to JSON Lines: jq -c '.[]' OLD.json > NEW.jsonl"
RENAME = "name it .json, and its list of objects is read; .jsonl has one object per line"
DECODER = json.JSONDecoder()
KINDS = {list: "a list", dict: "an object", str: "a string", bool: "a boolean", type(None): "null"}


class JsonRecord(NamedTuple):
    """The values of one object."""

    line: int
    values: dict[str, Any]
    error: DataError | None = None
    """What is wrong with it; there are no values then."""


def is_json_document(path: Path) -> bool:
    r"""Whether a .json file is one list of objects, or an object that contains one, and not JSON Lines.

    >>> _ = Path("a.json").write_text('[\n{"text": "fine"}\n]')
    >>> _ = Path("b.json").write_text('{"text": "fine"}\n{"text": "poor"}\n')
    >>> is_json_document(Path("a.json")), is_json_document(Path("b.json"))
    (True, False)
    """
    texts = (text for line in read_lines(path, split_long=True) if (text := line.text.strip()))
    first = next(texts, "")
    if not first.startswith("{"):
        return first.startswith("[")
    try:
        content = DECODER.decode(first)
    except json.JSONDecodeError as error:
        is_incomplete = error.pos >= len(first) or error.msg.startswith("Unterminated")
        return is_incomplete and next(texts, None) is not None
    except (RecursionError, ValueError):
        return False
    is_document = isinstance(content.get(RECORDS_KEY), list) or _is_by_column(content)
    return is_document and next(texts, None) is None


def read_json_document(path: Path) -> Iterator[JsonRecord]:
    r"""The objects of a JSON document, each with the line on which it begins.

    >>> _ = Path("a.json").write_text('{"version": 1, "data": [\n{"text": "fine"},\n{"text": "poor"}\n]}')
    >>> [(record.line, record.values) for record in read_json_document(Path("a.json"))]
    [(2, {'text': 'fine'}), (3, {'text': 'poor'})]
    """
    return iter(_DocumentReader(path))


class _DocumentReader:
    """One pass over a document: its text is in memory, its objects are decoded one by one."""

    def __init__(self, path: Path) -> None:
        self.path, self.text = path, _read_text(path)

    def __iter__(self) -> Iterator[JsonRecord]:
        index, number, counted = self._find_records(), 1, 0
        while self.text[index] != "]":
            number, counted = number + self.text.count("\n", counted, index), index
            _, end = self._decode(index)
            yield self._parse(Line(number, self.text[index:end]))
            index = self._skip_space(end)
            if self.text[index] not in ",]":
                raise self._error(index, "expected a comma or a closing bracket after this object")
            index = self._skip_space(index + (self.text[index] == ","))

    def _parse(self, line: Line) -> JsonRecord:
        try:
            return JsonRecord(line.number, parse_json_object(line, self.path))
        except DataError as error:
            error.column = None  # it counts from the start of the object, which may span lines
            return JsonRecord(line.number, {}, error)

    def _find_records(self) -> int:
        """The index of the first object in the list of records."""
        index = self._skip_space(0)
        if self.text[index] == "[":
            return self._skip_space(index + 1)
        if self.text[index] != "{":
            raise self._error(index, f"expected a list of objects, got {_kind(self._decode(index)[0])}")
        keys: dict[str, Any] = {}
        index = self._skip_space(index + 1)
        while self.text[index] == '"':
            key, end = self._decode(index)
            index = self._skip_space(end)
            if self.text[index] != ":":
                raise self._error(index, "expected a colon after this key")
            index = self._skip_space(index + 1)
            if key == RECORDS_KEY and self.text[index] == "[":
                return self._skip_space(index + 1)
            keys[key], end = self._decode(index)
            index = self._skip_space(end)
            index = self._skip_space(index + (self.text[index] == ","))
        raise self._no_records_error(keys)

    def _skip_space(self, index: int) -> int:
        while index < len(self.text) and self.text[index].isspace():
            index += 1
        if index == len(self.text):
            raise self._error(max(index - 1, 0), "the JSON ends too early", help="was the file truncated?")
        return index

    def _decode(self, index: int) -> tuple[Any, int]:
        """The value at an index, and the index after it."""
        try:
            return DECODER.raw_decode(self.text, index)
        except json.JSONDecodeError as error:
            raise self._error(error.pos, f"invalid JSON: {_reason(error)}") from None
        except RecursionError:
            raise self._error(index, "the values are nested too deeply") from None
        except ValueError as error:  # a number with thousands of digits
            raise self._error(index, f"cannot parse this value: {str(error):.100}") from None

    def _error(self, index: int, what: str, *, help: str = "") -> DataError:
        start, end = self.text.rfind("\n", 0, index) + 1, self.text.find("\n", index)
        excerpt = self.text[start : len(self.text) if end < 0 else end]
        number = self.text.count("\n", 0, index) + 1
        return DataError(what, file=self.path, line=number, column=index - start + 1, excerpt=excerpt, help=help)

    def _no_records_error(self, keys: dict[str, Any]) -> DataError:
        listed = ", ".join(f"{key!r:.40}" for key in list(keys)[:8]) or "none"
        by_column = _is_by_column(keys)
        return DataError(
            f"expected a list of objects, or an object with such a list under {RECORDS_KEY!r}; got the keys: {listed}",
            file=self.path,
            why="this looks like a table by columns, as pandas writes it" if by_column else "",
            help='df.to_json(path, orient="records")' if by_column else 'write [{"text": ...}, {"text": ...}]',
        )


def _read_text(path: Path) -> str:
    parts: list[str] = []
    length = 0
    for line in read_lines(path, split_long=True):
        if line.error is not None:
            raise line.error
        parts.append(line.text + "\n" * line.ends_line)
        length += len(parts[-1])
        if length > MAX_DOCUMENT_CHARS:
            what = f"expected at most {MAX_DOCUMENT_CHARS:,} characters in a JSON document, got more"
            raise DataError(what, file=path, why="it is read as a whole, not line by line", help=TO_JSON_LINES)
    return "".join(parts)


def _is_by_column(content: dict[str, Any]) -> bool:
    """Whether each key is a column and each value an object with row numbers, as pandas writes by default."""
    columns = list(content.values())
    return bool(columns) and all(isinstance(rows, dict) and rows and all(map(str.isdecimal, rows)) for rows in columns)


def _kind(content: Any) -> str:
    return KINDS.get(type(content), "a number")


def parse_json_object(line: Line, path: Path) -> dict[str, Any]:
    """The values of one JSON line; those of a nested object also under names like translation.en.

    NaN and infinity, which are not JSON but which other programs write, count as missing.

    >>> parse_json_object(Line(1, '{"id": 7, "translation": {"en": "yes", "de": "ja"}}'), Path("a.jsonl"))
    {'id': 7, 'translation': {'en': 'yes', 'de': 'ja'}, 'translation.en': 'yes', 'translation.de': 'ja'}
    """
    try:
        content = json.loads(line.text, object_pairs_hook=_check_unique, parse_constant=lambda name: None)
    except json.JSONDecodeError as error:
        raise _syntax_error(line, path, error) from None
    except _DuplicateKeyError as error:
        column = line.text.rfind(json.dumps(str(error), ensure_ascii=False)) + 1
        raise line_error(line, path, f"duplicate key {str(error)!r:.80}", column or None) from None
    except RecursionError:
        raise line_error(line, path, "the values are nested too deeply") from None
    except ValueError as error:  # a number with thousands of digits
        raise line_error(line, path, f"cannot parse this line: {str(error):.100}") from None
    if not isinstance(content, dict):
        raise _not_an_object_error(line, path, content)
    values = _flatten(content)
    if "\\u" in line.text:
        _check_escapes(values, line, path)
    return values


class _DuplicateKeyError(Exception):
    pass


def _check_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        seen: set[str] = set()
        raise _DuplicateKeyError(next(key for key, _ in pairs if key in seen or seen.add(key)))
    return content


def _flatten(content: dict[str, Any]) -> dict[str, Any]:
    nested = {key: value for key, value in content.items() if isinstance(value, dict)}
    return content | {f"{key}.{name}": inner for key, value in nested.items() for name, inner in value.items()}


def _check_escapes(values: dict[str, Any], line: Line, path: Path) -> None:
    r"""Reject NUL and surrogates from \u escapes."""
    for key, value in values.items():
        index = find_invalid_char(value) if isinstance(value, str) else None
        if index is not None:
            kind = "a NUL character" if value[index] == "\0" else "a lone surrogate"
            what = f"{key!r:.80} has {kind}, {ascii(value[index])[1:-1]}, at character {index + 1:,}"
            raise line_error(line, path, what, why="text has none: was it cut in the middle of a character?")


def _syntax_error(line: Line, path: Path, error: json.JSONDecodeError) -> DataError:
    if line.number == 1 and line.text.lstrip().startswith("[") or line.text.strip() == "{":
        what = "this file is one JSON value over several lines, not JSON Lines"
        return DataError(what, file=path, line=line.number, column=1, help=RENAME)
    at_end = error.pos >= len(line.text.rstrip()) or error.msg.startswith("Unterminated")
    why = "the line ends too early: was the file truncated?" if at_end else ""
    return line_error(line, path, f"invalid JSON: {_reason(error)}", error.pos + 1, why=why)


def _reason(error: json.JSONDecodeError) -> str:
    return error.msg[:1].lower() + error.msg[1:].removesuffix(" at").removesuffix(" starting")


def _not_an_object_error(line: Line, path: Path, content: Any) -> DataError:
    if isinstance(content, list) and line.number == 1 and content and isinstance(content[0], dict):
        help = RENAME
    else:
        help = 'write each object as {"name": value, ...}'
    return line_error(line, path, f"expected an object, got {_kind(content)}", 1, help=help)
