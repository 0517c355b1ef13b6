"""The layout of a file (format, delimiter, header, columns) is detected by its name and first rows."""

from pathlib import Path

import pytest

from softlook.base.errors import DataError
from softlook.data import sniffing
from softlook.data.columns import is_language
from softlook.data.records import Layout, read_records
from softlook.data.sniffing import has_header, sniff_layout

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
def test_headers_are_detected(first: list[str], rest: list[list[str]], expected: bool) -> None:
    assert has_header([first, *rest]) is expected


def test_the_header_argument_overrides_detection(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\ngood,1\n")
    assert sniff_layout(path).columns == ("text", "label")
    assert sniff_layout(path, header=False).columns == ("1", "2")
    path.write_text("alpha,beta\ngood,bad\n")
    assert sniff_layout(path).columns == ("1", "2")
    assert sniff_layout(path, header=True).columns == ("alpha", "beta")


def test_layouts_are_described() -> None:
    assert str(Layout("csv", ("a",), ";", True)) == "CSV with semicolons, a header"
    assert [str(Layout(name, ())) for name in ("text", "jsonl", "parquet")] == ["plain text", "JSON Lines", "Parquet"]


def test_json_columns_come_from_the_first_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"b": 2, "c": {"d": 3}}\n')
    assert sniff_layout(path).columns == ("a", "b", "c.d")


def test_the_sniffed_sample_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sniffing, "SNIFF_CHARS", 100)
    assert len(sniffing.take_sample(["x" * 60] * 50, len, 20)) == 2
    assert len(sniffing.take_sample(["x"] * 50, len, 20)) == 20


def test_a_first_cell_over_many_lines_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('"' + "line\n" * 500 + '",1\nshort,0\n')
    layout = sniff_layout(path)
    assert [record.values["2"] for record in read_records(path, layout)] == ["1", "0"]


def test_sniffing_respects_max_line_chars(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "x" * 50 + ",1\n")
    with pytest.raises(DataError, match="more than 5 "):
        sniff_layout(path, max_line_chars=5)
    assert sniff_layout(path, max_line_chars=100).columns == ("text", "label")


@pytest.mark.parametrize("name", ["en", "EN", "eng", "english", "pt_BR", "zh-Hans", "translation.de"])
def test_languages_are_recognized_by_code_and_name(name: str) -> None:
    assert is_language(name)


@pytest.mark.parametrize("name", ["", "text", "xx", "e n", "1", "en.text"])
def test_other_words_are_not_languages(name: str) -> None:
    assert not is_language(name)
