"""The name and the beginning of a file say how it is laid out."""

from pathlib import Path

import pytest

from softlook.base.errors import DataError
from softlook.data import layouts
from softlook.data.headers import has_header
from softlook.data.layouts import layout_of
from softlook.data.names import is_language
from softlook.data.records import Layout, read

LABELS = [[f"text number {n}", str(n % 2)] for n in range(30)]


@pytest.mark.parametrize(
    ("first", "rest", "expected"),
    [
        (["text", "label"], LABELS, True),
        (["Sentence", "x"], LABELS, True),
        (["en", "de"], [["yes", "ja"]], True),
        (["what", "count"], LABELS, True),
        (["what", "verdict"], [[text, ("good", "bad")[int(label)]] for text, label in LABELS], True),
        (["", "text", "label"], [["0", "a", "1"]], True),
        (["Go.", "Va !"], [["Run!", "Cours !"]], False),
        (["yes", "ja"], [["no", "nein"]] * 30, False),
        (["a fine text", "1"], LABELS, False),
        (["12", "13"], [["14", "15"]], False),
        (["text, which is longer than a name would ever be in a table", "label"], LABELS, False),
        (["", ""], [["a", "b"]], False),
        (["text", "label"], [], True),
    ],
)
def test_a_header_is_known_by_its_words_or_by_standing_out(
    first: list[str], rest: list[list[str]], expected: bool
) -> None:
    assert has_header([first, *rest]) is expected


def test_a_person_has_the_last_word_on_the_header(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\ngood,1\n")
    assert layout_of(path).columns == ("text", "label")
    assert layout_of(path, header=False).columns == ("1", "2")
    path.write_text("alpha,beta\ngood,bad\n")
    assert layout_of(path).columns == ("1", "2")
    assert layout_of(path, header=True).columns == ("alpha", "beta")


def test_a_layout_is_told_in_words() -> None:
    assert str(Layout("csv", ("a",), ";", True)) == "CSV with semicolons, a header"
    assert [str(Layout(name, ())) for name in ("text", "jsonl", "parquet")] == ["plain text", "JSON lines", "Parquet"]


def test_json_columns_are_all_that_the_first_lines_name(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"b": 2, "c": {"d": 3}}\n')
    assert layout_of(path).columns == ("a", "b", "c.d")


def test_the_look_at_the_beginning_is_short_even_where_lines_are_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "ENOUGH", 100)
    assert len(layouts.beginning(["x" * 60] * 50, len, 20)) == 2
    assert len(layouts.beginning(["x"] * 50, len, 20)) == 20


def test_a_first_cell_of_many_lines_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('"' + "line\n" * 500 + '",1\nshort,0\n')
    layout = layout_of(path)
    assert [record.values["2"] for record in read(path, layout)] == ["1", "0"]


def test_a_longer_line_may_be_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "x" * 50 + ",1\n")
    with pytest.raises(DataError, match="more than 5 "):
        layout_of(path, longest=5)
    assert layout_of(path, longest=100).columns == ("text", "label")


@pytest.mark.parametrize("name", ["en", "EN", "eng", "english", "pt_BR", "zh-Hans", "translation.de"])
def test_languages_are_known_by_code_and_by_name(name: str) -> None:
    assert is_language(name)


@pytest.mark.parametrize("name", ["", "text", "xx", "e n", "1", "en.text"])
def test_other_words_are_no_languages(name: str) -> None:
    assert not is_language(name)
