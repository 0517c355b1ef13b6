"""The first sheet of an .xlsx file that is not empty is read as a table; a damaged file raises an error."""

import sys
import zipfile
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook

from softlook import data
from softlook.base.errors import DataError

REVIEWS = [["review", "stars"], ["good film", 5], ["bad film", 1]]
BOMB = b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + b"".join(
    b'<!ENTITY %c "%s">' % (letter, b"&%c;" % (letter - 1) * 10) for letter in range(ord("b"), ord("j"))
)


def write(path: Path, *sheets: list[list[Any]]) -> Path:
    workbook = Workbook()
    assert workbook.active is not None
    workbook.remove(workbook.active)
    for number, rows in enumerate(sheets, 1):
        sheet = workbook.create_sheet(f"sheet {number}")
        for row in rows:
            sheet.append(row)
    workbook.save(path)
    return path


def labeled(path: Path) -> list[tuple[str, str]]:
    return [(example.text, example.label) for example in data.read_labeled(path)]


def test_every_reader_reads_excel(tmp_path: Path) -> None:
    path = write(tmp_path / "a.xlsx", REVIEWS)
    assert labeled(path) == [("good film", "5"), ("bad film", "1")]
    assert [example.text for example in data.read_sentences(path)] == ["good film", "bad film"]
    assert [example.text for example in data.read_documents(path)] == ["good film", "bad film"]
    pairs = write(tmp_path / "b.xlsx", [["en", "de"], ["yes", "ja"]])
    assert [pair[:2] for pair in data.read_pairs(pairs)] == [("yes", "ja")]


def test_the_first_sheet_that_is_not_empty_is_read(tmp_path: Path) -> None:
    examples = data.read_labeled(write(tmp_path / "a.xlsx", [], REVIEWS, [["other"]]))
    assert [example.label for example in examples] == ["5", "1"]
    assert examples.notes[0] == "sheet 'sheet 2'; 1 more not read"
    assert len(data.read_labeled(write(tmp_path / "b.xlsx", [], REVIEWS)).notes) == 1


def test_a_workbook_without_values_is_empty(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="empty"):
        data.read_labeled(write(tmp_path / "a.xlsx", [], []))


def test_examples_have_the_number_of_their_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.xlsx", [[], REVIEWS[0], [], *REVIEWS[1:]])
    assert [str(example.origin) for example in data.read_labeled(path)] == [f"{path}:4", f"{path}:5"]


def test_missing_cells_and_formula_errors_are_skipped_and_counted(tmp_path: Path) -> None:
    rows = [*REVIEWS, [None, 1], ["no label"], ["  ", 1], ["#N/A", 1]]
    examples = data.read_labeled(write(tmp_path / "a.xlsx", rows))
    assert len(list(examples)) == 2
    assert examples.skipped == Counter({"without a text": 3, "without a label": 1})


def test_dates_numbers_and_booleans_become_text(tmp_path: Path) -> None:
    rows = [["text", "label"], [datetime(2024, 2, 29), 1.5], [datetime(2024, 2, 29, 12, 30), True], [7, 2.0]]
    expected = [("2024-02-29", "1.5"), ("2024-02-29 12:30:00", "true"), ("7", "2")]
    assert labeled(write(tmp_path / "a.xlsx", rows)) == expected


def test_line_ends_in_a_cell_are_line_feeds(tmp_path: Path) -> None:
    rows = [["text", "label"], ["two_x000D_\nlines", "x"]]
    assert labeled(write(tmp_path / "a.xlsx", rows)) == [("two\nlines", "x")]


def test_cells_beside_the_table_are_unused_columns(tmp_path: Path) -> None:
    examples = data.read_labeled(write(tmp_path / "a.xlsx", [REVIEWS[0], [*REVIEWS[1], "a note"], REVIEWS[2]]))
    assert len(list(examples)) == 2
    assert "unused: 'column 3'" in examples.notes[0]


@pytest.mark.parametrize("content", [b"", b"text,label\n", b"PK\x03\x04broken", b"\xd0\xcf\x11\xe0" + b"\0" * 100])
def test_a_file_that_is_not_excel_raises_with_its_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged, or not one") as caught:
        data.read_labeled(path)
    assert str(path) in str(caught.value) and "CSV" in str(caught.value)


def test_an_archive_without_a_workbook_raises(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.xlsx", "w") as archive:
        archive.writestr("notes.txt", "words")
    with pytest.raises(DataError, match="damaged, or not one"):
        data.read_labeled(tmp_path / "a.xlsx")


def test_an_archive_that_grows_too_much_is_rejected(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b"0" * (40 << 20))
    with pytest.raises(DataError, match="decompress to"):
        data.read_labeled(tmp_path / "a.xlsx")


def test_nested_xml_entities_are_rejected(tmp_path: Path) -> None:
    source, path = write(tmp_path / "source.xlsx", REVIEWS), tmp_path / "a.xlsx"
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, BOMB + b"]><x>&i;</x>" if name.startswith("xl/worksheets/") else content)
    with pytest.raises(DataError):
        list(data.read_labeled(path))


def test_without_openpyxl_the_error_has_the_pip_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.xlsx", REVIEWS)
    monkeypatch.setitem(sys.modules, "softlook.data.excel", None)
    monkeypatch.delattr(data, "excel", raising=False)
    with pytest.raises(DataError, match=r"pip install 'softlook\[excel\]'"):
        data.read_labeled(path)


def test_a_report_of_excel_has_no_encoding(tmp_path: Path) -> None:
    report = data.check_data(data.read_labeled(write(tmp_path / "a.xlsx", REVIEWS)))
    assert report.files[0]["format"] == "excel" and "encoding" not in report.files[0]
