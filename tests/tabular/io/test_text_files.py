"""Tables that are text: what parts their cells, and on which line a row lies."""

import csv
from pathlib import Path

from softlook.tabular.io.text_files import detect_delimiter, line_of_record, read_rows


def test_a_row_lies_on_the_line_where_it_begins_as_an_editor_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('note,age\r\n"two\nlines",31\r\n\r\nfine,old\r\n'.encode("utf-8-sig"))
    assert [line_of_record(path, record) for record in range(4)] == [1, 2, 5, None]
    assert [(line, row["age"]) for line, row in read_rows(path)] == [(2, "31"), (5, "old")]


def test_a_line_that_cannot_be_made_out_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age\n" + "9" * (csv.field_size_limit() + 1) + "\n3\n")  # more than csv takes
    assert line_of_record(tmp_path / "a.csv", 2) is None


def test_what_stands_in_quotes_parts_no_cells(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"last, first, other";"two\nlines";age\n"Lee, Ann, ";x;3\n')
    assert detect_delimiter(tmp_path / "a.csv") == ";"
