"""Lines are what a person sees as lines, wherever a block ends, and no line fills the memory."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softlook.data import lines as module
from softlook.data import opening
from softlook.data.encoding import encoding_of
from softlook.data.lines import LONGEST, Line, read_lines

WORDS = st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=("Cs",)))
FITTING = st.lists(WORDS, min_size=1).map("\n".join)


def lines_of(path: Path, content: bytes, longest: int = LONGEST) -> list[Line]:
    path.write_bytes(content)
    return list(read_lines(path, longest=longest))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lines") / "a.txt"


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "BLOCK", 7)


@given(text=FITTING, block=st.integers(4, 40), encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
def test_wherever_blocks_end_the_lines_are_the_same(path: Path, text: str, block: int, encoding: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "BLOCK", block)
        text = text.removeprefix("\ufeff")
        found = lines_of(path, text.encode(encoding))
    expected = text.split("\n")
    expected = expected[:-1] if expected[-1] == "" else expected
    assert [line.text for line in found] == expected
    assert [line.number for line in found] == list(range(1, len(expected) + 1))


@given(text=FITTING, longest=st.integers(1, 20))
def test_long_lines_are_split_without_losing_a_character(path: Path, text: str, longest: int) -> None:
    path.write_bytes(text.encode())
    text = text.removeprefix("\ufeff")
    parts = list(read_lines(path, longest=longest, split_long=True))
    assert "".join(part.text + "\n" * part.ends for part in parts) == text
    assert all(len(part.text) <= longest for part in parts)
    rows = text.split("\n")
    assert all(rows[part.number - 1][part.column - 1 :].startswith(part.text) for part in parts)


@given(st.binary(max_size=200), st.integers(1, 9))
def test_any_bytes_give_lines_or_faults_with_the_right_numbers(path: Path, content: bytes, longest: int) -> None:
    content = b"a\nb\n" + content.replace(b"\r", b"").replace(b"\0", b"\xff")
    found = lines_of(path, content, longest=longest)
    rows = content.split(b"\n")
    assert [line.number for line in found] == list(range(1, len(rows) + (rows[-1] != b"")))
    for line in found:
        raw = rows[line.number - 1]
        if line.fault is None:
            assert line.text.encode() == raw
        else:
            assert line.fault.line == line.number


def test_a_fault_says_the_byte_the_line_and_the_column(path: Path) -> None:
    content = "eins\nzwei ä\ndrei ".encode() + b"\xfc\nvier\n"
    [_, _, bad, good] = lines_of(path, content)
    assert bad.fault is not None and (bad.fault.line, bad.fault.column) == (3, 6)
    assert f"byte offset {content.index(0xFC)}" in bad.fault.what
    assert good == Line(4, "vier")


@pytest.mark.usefixtures("small_blocks")
def test_the_byte_offset_is_right_however_the_file_is_cut_into_blocks(path: Path) -> None:
    content = b"\xef\xbb\xbfone\n" + "zwölf\n".encode() * 20 + b"ok \xff\n"
    [*_, bad] = lines_of(path, content)
    assert bad.fault is not None and f"byte offset {content.index(0xFF)}" in bad.fault.what


def test_a_windows_line_end_does_not_count(path: Path) -> None:
    assert lines_of(path, b"x" * 10 + b"\r\n", longest=10) == [Line(1, "x" * 10)]


def test_a_line_that_is_too_long_costs_only_itself(path: Path) -> None:
    found = lines_of(path, b"one\n" + b"x" * 50 + b"\nthree\n", longest=10)
    assert [(line.number, line.text, line.fault is None) for line in found] == [
        (1, "one", True),
        (2, "", False),
        (3, "three", True),
    ]


@pytest.mark.usefixtures("small_blocks")
def test_a_long_line_is_never_held_as_a_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    real = module.decoded

    def spy(block: bytes) -> tuple[str, bool]:
        held.append(len(block))
        return real(block)

    monkeypatch.setattr(module, "decoded", spy)
    found = lines_of(path, b"one\n" + b"x" * 100_000 + b"\ntwo\n", longest=10)
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
def test_the_first_bytes_say_the_encoding(content: bytes, name: str, path: Path) -> None:
    path.write_bytes(content)
    assert encoding_of(path) == name
