"""Text files of tables: delimiters and line numbers."""

import csv
from pathlib import Path

from softlook.tabular.io.text_files import detect_delimiter, line_of_record, read_rows


def test_the_line_of_a_row_is_where_it_begins_counted_as_in_an_editor(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('note,age\r\n"two\nlines",31\r\n\r\nfine,old\r\n'.encode("utf-8-sig"))
    assert [line_of_record(path, record) for record in range(4)] == [1, 2, 5, None]
    assert [(line, row["age"]) for line, row in read_rows(path)] == [(2, "31"), (5, "old")]


def test_a_line_that_cannot_be_determined_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age\n" + "9" * (csv.field_size_limit() + 1) + "\n3\n")  # beyond csv's field limit
    assert line_of_record(tmp_path / "a.csv", 2) is None


def test_quoted_text_does_not_affect_the_delimiter(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"last, first, other";"two\nlines";age\n"Lee, Ann, ";x;3\n')
    assert detect_delimiter(tmp_path / "a.csv") == ";"
