"""Lines end at line feeds only, do not depend on the block size, and are bounded in memory."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softlook.data import lines as module
from softlook.data import streams
from softlook.data.lines import MAX_LINE_CHARS, Line, read_lines
from softlook.data.streams import detect_encoding

WORDS = st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=("Cs",)))
VALID_TEXT = st.lists(WORDS, min_size=1).map("\n".join)


def lines_of(path: Path, content: bytes, max_chars: int = MAX_LINE_CHARS) -> list[Line]:
    path.write_bytes(content)
    return list(read_lines(path, max_chars=max_chars))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lines") / "a.txt"


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BLOCK", 7)


@given(text=VALID_TEXT, block=st.integers(4, 40), encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
def test_lines_do_not_depend_on_block_size(path: Path, text: str, block: int, encoding: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BLOCK", block)
        text = text.removeprefix("\ufeff")
        found = lines_of(path, text.encode(encoding))
    expected = text.split("\n")
    expected = expected[:-1] if expected[-1] == "" else expected
    assert [line.text for line in found] == expected
    assert [line.number for line in found] == list(range(1, len(expected) + 1))


@given(text=VALID_TEXT, max_chars=st.integers(1, 20))
def test_long_lines_are_split_without_loss(path: Path, text: str, max_chars: int) -> None:
    path.write_bytes(text.encode())
    text = text.removeprefix("\ufeff")
    parts = list(read_lines(path, max_chars=max_chars, split_long=True))
    assert "".join(part.text + "\n" * part.ends_line for part in parts) == text
    assert all(len(part.text) <= max_chars for part in parts)
    rows = text.split("\n")
    assert all(rows[part.number - 1][part.column - 1 :].startswith(part.text) for part in parts)


@given(st.binary(max_size=200), st.integers(1, 9))
def test_any_bytes_give_lines_or_errors_with_line_numbers(path: Path, content: bytes, max_chars: int) -> None:
    content = b"a\nb\n" + content.replace(b"\r", b"").replace(b"\0", b"\xff")
    found = lines_of(path, content, max_chars=max_chars)
    rows = content.split(b"\n")
    assert [line.number for line in found] == list(range(1, len(rows) + (rows[-1] != b"")))
    for line in found:
        raw = rows[line.number - 1]
        if line.error is None:
            assert line.text.encode() == raw
        else:
            assert line.error.line == line.number


def test_an_error_has_byte_line_and_column(path: Path) -> None:
    content = "eins\nzwei ä\ndrei ".encode() + b"\xfc\nvier\n"
    [_, _, bad, good] = lines_of(path, content)
    assert bad.error is not None and (bad.error.line, bad.error.column) == (3, 6)
    assert f"byte offset {content.index(0xFC)}" in bad.error.what
    assert good == Line(4, "vier")


@pytest.mark.usefixtures("small_blocks")
def test_byte_offsets_do_not_depend_on_block_size(path: Path) -> None:
    content = b"\xef\xbb\xbfone\n" + "zwölf\n".encode() * 20 + b"ok \xff\n"
    [*_, bad] = lines_of(path, content)
    assert bad.error is not None and f"byte offset {content.index(0xFF)}" in bad.error.what


def test_a_windows_line_end_does_not_count_as_a_character(path: Path) -> None:
    assert lines_of(path, b"x" * 10 + b"\r\n", max_chars=10) == [Line(1, "x" * 10)]


def test_a_long_line_costs_only_itself(path: Path) -> None:
    found = lines_of(path, b"one\n" + b"x" * 50 + b"\nthree\n", max_chars=10)
    assert [(line.number, line.text, line.error is None) for line in found] == [
        (1, "one", True),
        (2, "", False),
        (3, "three", True),
    ]


@pytest.mark.usefixtures("small_blocks")
def test_a_long_line_is_never_held_in_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    real = module.decode_block

    def spy(block: bytes) -> tuple[str, bool]:
        held.append(len(block))
        return real(block)

    monkeypatch.setattr(module, "decode_block", spy)
    found = lines_of(path, b"one\n" + b"x" * 100_000 + b"\ntwo\n", max_chars=10)
    assert [line.number for line in found] == [1, 2, 3]
    assert max(held) < 100


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"words", "UTF-8"),
        (b"", "UTF-8"),
        (b"\xef\xbb\xbfwords", "UTF-8 with a byte order mark"),
        ("words".encode("utf-16"), "UTF-16LE"),
        ("words".encode("utf-32"), "UTF-32"),
        ("слова и слова".encode("utf-16-be"), "UTF-8"),
        ("слова, and words".encode("utf-16-be"), "UTF-16BE without a byte order mark"),
    ],
)
def test_the_encoding_is_detected_by_the_first_bytes(content: bytes, name: str, path: Path) -> None:
    path.write_bytes(content)
    assert detect_encoding(path) == name
