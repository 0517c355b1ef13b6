"""JSON lines: one object to a line."""

import json
from pathlib import Path
from typing import Any

from softlook.base.errors import DataError
from softlook.data.encoding import unfit
from softlook.data.lines import Line


def parse_object(line: Line, path: Path) -> dict[str, Any]:
    """The values of one line, those of an object inside it also under names like translation.en.

    NaN and infinity, which JSON does not have but other programs write, count as missing.

    >>> parse_object(Line(1, '{"id": 7, "translation": {"en": "yes", "de": "ja"}}'), Path("a.jsonl"))
    {'id': 7, 'translation': {'en': 'yes', 'de': 'ja'}, 'translation.en': 'yes', 'translation.de': 'ja'}
    """
    try:
        content = json.loads(line.text, object_pairs_hook=_unique, parse_constant=lambda name: None)
    except json.JSONDecodeError as fault:
        raise _no_json(line, path, fault) from None
    except _TwiceError as fault:
        column = line.text.rfind(json.dumps(str(fault), ensure_ascii=False)) + 1
        raise _fault(line, path, f"the key {str(fault)!r:.80} stands twice", column or None) from None
    except RecursionError:
        raise _fault(line, path, "the values are nested too deeply") from None
    except ValueError as fault:  # a number of thousands of digits
        raise _fault(line, path, f"this cannot be read: {str(fault):.100}") from None
    if not isinstance(content, dict):
        raise _no_object(line, path, content)
    values = _flat(content)
    if "\\u" in line.text:
        _check(values, line, path)
    return values


class _TwiceError(Exception):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        raise _TwiceError(next(key for key, _ in pairs if key in seen or seen.add(key)))
    return made


def _flat(content: dict[str, Any]) -> dict[str, Any]:
    inner = {key: value for key, value in content.items() if isinstance(value, dict)}
    return content | {f"{key}.{name}": part for key, value in inner.items() for name, part in value.items()}


def _check(values: dict[str, Any], line: Line, path: Path) -> None:
    """An escape can smuggle in what no text holds."""
    for key, value in values.items():
        place = unfit(value) if isinstance(value, str) else None
        if place is not None:
            kind = "a NUL character" if value[place] == "\0" else "half a character"
            what = f"{key!r:.80} holds {kind}, {ascii(value[place])[1:-1]}, as its character {place + 1:,}"
            raise _fault(line, path, what, why="text holds none: was it cut off in the middle of a character?")


def _no_json(line: Line, path: Path, fault: json.JSONDecodeError) -> DataError:
    if line.number == 1 and line.text.lstrip().startswith("[") or line.text.strip() == "{":
        return DataError(
            "this file is one JSON value over several lines, and not JSON lines",
            file=path,
            line=line.number,
            column=1,
            why="JSON lines, with one object to a line, can be read without holding them all",
            help="jq -c '.[]' OLD.json > NEW.jsonl",
        )
    at_end = fault.pos >= len(line.text.rstrip()) or fault.msg.startswith("Unterminated")
    why = "the line ends too early: was the file cut off?" if at_end else ""
    said = fault.msg[:1].lower() + fault.msg[1:].removesuffix(" at").removesuffix(" starting")
    return _fault(line, path, f"this is not JSON: {said}", fault.pos + 1, why=why)


def _no_object(line: Line, path: Path, content: Any) -> DataError:
    if isinstance(content, list) and line.number == 1 and content and isinstance(content[0], dict):
        help = "jq -c '.[]' OLD.json > NEW.jsonl"
    else:
        help = 'write each line as {"name": value, ...}'
    kind = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}.get(type(content), "a number")
    return _fault(line, path, f"an object was wanted, {kind} came", 1, help=help)


def _fault(line: Line, path: Path, what: str, column: int | None = None, *, why: str = "", help: str = "") -> DataError:
    return DataError(what, file=path, line=line.number, column=column, excerpt=line.text, why=why, help=help)
