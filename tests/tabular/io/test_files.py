"""Files give the table they hold, piece by piece, with types that stay."""

import gzip
import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from softlook.base.errors import DataError
from softlook.tabular.io.files import read_table
from softlook.tabular.preprocessing.table_encoder import TableEncoder
from tests.tabular.tables import same


def table(rows: int = 300) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "n": [float(row) if row % 7 else None for row in range(rows)],
            "c": [["red", "blue", 'a, "b"'][row % 3] for row in range(rows)],
            "d": pd.to_datetime("2024-01-01") + pd.to_timedelta(list(range(rows)), unit="h"),
        }
    )


def written(folder: Path) -> list[Path]:
    frame, whole = table(), pa.Table.from_pandas(table(), preserve_index=False)
    frame.to_csv(folder / "a.csv", index=False)
    frame.to_csv(folder / "b.csv.gz", index=False)
    frame.to_csv(folder / "c.csv", index=False, sep=";")
    frame.to_csv(folder / "d.tsv", index=False, sep="\t")
    frame.to_json(folder / "e.jsonl", orient="records", lines=True, date_format="iso")
    (folder / "f.jsonl.gz").write_bytes(gzip.compress((folder / "e.jsonl").read_bytes()))
    pq.write_table(whole, folder / "g.parquet", row_group_size=50)
    feather.write_feather(whole, str(folder / "h.arrow"), chunksize=50)
    with pa.ipc.new_stream(str(folder / "i.arrow"), whole.schema) as stream:
        stream.write_table(whole, max_chunksize=40)
    return sorted(folder.iterdir())


def test_every_format_gives_the_same_table(tmp_path: Path) -> None:
    files = written(tmp_path)
    columns = TableEncoder.fit(table())
    for file in files:
        pieces = list(read_table(file, chunk_bytes=2000))
        found = TableEncoder.fit_chunks(pieces)
        whole = pa.concat_tables(pieces)
        assert found.column_types == columns.column_types, file.name
        assert whole.num_rows == 300
        if not file.name.startswith(("e", "f")):  # pandas writes the dates of JSON with a time zone of its own
            assert same(columns.encode(whole), columns.encode(table())), file.name
    assert len(list(read_table(tmp_path / "a.csv", chunk_bytes=2000))) > 3


def test_several_files_are_one_table(tmp_path: Path) -> None:
    for place in range(3):
        table().iloc[100 * place : 100 * place + 100].to_csv(tmp_path / f"{place}.csv", index=False)
    whole = pa.concat_tables(read_table(tmp_path))
    assert same(TableEncoder.fit(whole).encode(whole), TableEncoder.fit(table()).encode(table()))


def test_types_stay_as_the_first_piece_had_them(tmp_path: Path) -> None:
    rows = ["whole,empty,day", *["1,,2024-01-01"] * 100, "2.5,late,2024-01-01 12:30:00.5"]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    pieces = list(read_table(tmp_path / "a.csv", chunk_bytes=64))
    assert len(pieces) > 5
    assert {str(chunk_bytes.schema) for chunk_bytes in pieces} == {"whole: double\nempty: string\nday: timestamp[us]"}
    assert pieces[-1].to_pylist()[-1]["whole"] == 2.5


def test_a_column_may_be_read_as_words(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("zip,n\n0123,1\n0456,2\n")
    (tmp_path / "a.jsonl").write_text('{"zip": "0123", "n": 1}\n')
    assert pa.concat_tables(read_table(tmp_path / "a.csv", string_columns=["zip"]))["zip"].to_pylist() == [
        "0123",
        "0456",
    ]
    assert pa.concat_tables(read_table(tmp_path / "a.jsonl", string_columns=["zip"]))["zip"].to_pylist() == ["0123"]


def test_numbers_and_truths_of_json_may_be_read_as_words(tmp_path: Path) -> None:
    rows = [{"n": 1, "is": True, "day": "2024-01-01"}, {"n": None, "is": False, "day": None}, {"n": 2.5}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for chunk_bytes in (20, 1000):
        found = pa.concat_tables(
            read_table(tmp_path / "a.jsonl", string_columns=["n", "is", "day"], chunk_bytes=chunk_bytes)
        )
        assert found["n"].to_pylist() == ["1", None, "2.5"]
        assert found["is"].to_pylist() == ["true", "false", None]
        assert found["day"].to_pylist() == ["2024-01-01", None, None]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_a_comma_may_be_the_decimal_point_where_it_parts_no_cells(delimiter: str, tmp_path: Path) -> None:
    plain = "n,word,whole\n1.5,Rome,3\n-2.25,a b,4\n,.5,5\n"
    (tmp_path / "plain.csv").write_text(plain)
    (tmp_path / "points.csv").write_text(plain.replace(",", delimiter))
    (tmp_path / "commas.csv").write_text(plain.replace(",", delimiter).replace(".", ","))
    for string_columns in ((), ("n", "word")):
        tables = [
            pa.concat_tables(read_table(tmp_path / f"{name}.csv", string_columns=string_columns))
            for name in ("plain", "points")
        ]
        tables.append(pa.concat_tables(read_table(tmp_path / "commas.csv", string_columns=("word", *string_columns))))
        assert tables[0].equals(tables[1]) and tables[0].equals(tables[2])


def test_words_with_commas_are_left_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n;word\n1,5;Rome, Italy\n2,5;1,2,3\n")
    found = pa.concat_tables(read_table(tmp_path / "a.csv", string_columns=["word"]))
    assert found.to_pydict() == {"n": [1.5, 2.5], "word": ["Rome, Italy", "1,2,3"]}


def test_a_number_among_words_is_spelled_alike_whoever_asks_for_words(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n;odd\n1,5;1,5\n2,5;unknown\n")
    for string_columns in ((), ("odd",)):
        assert pa.concat_tables(read_table(tmp_path / "a.csv", string_columns=string_columns))["odd"].to_pylist() == [
            "1.5",
            "unknown",
        ]


def test_a_packed_file_that_unpacks_to_more_than_any_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("softlook.data.streams.HARMLESS", 1000)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"1,1\n" * 500_000))
    with pytest.raises(DataError, match="unpack to"):
        list(read_table(tmp_path / "a.csv.gz"))


def test_utf_16_is_told_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n", encoding="utf-16")
    with pytest.raises(DataError, match="this is UTF-16, and tables are read as UTF-8"):
        list(read_table(tmp_path / "a.csv"))


def test_a_line_of_too_few_cells_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(DataError, match="give every line as many cells as the first one has"):
        list(read_table(tmp_path / "a.csv"))


def test_a_cell_that_does_not_fit_is_told_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,c\n" + "1,a\n" * 50 + "x,b\n")
    with pytest.raises(DataError, match=r"a.csv:52: .* column 'n' held numbers, and 'x' came\n.*--kinds n=category"):
        list(read_table(tmp_path / "a.csv", chunk_bytes=40))
    (tmp_path / "a.csv").write_text("n,c\n" + '1,"two\nlines"\n\n' * 50 + "x,b\n")
    with pytest.raises(DataError, match="a.csv:152: "):
        list(read_table(tmp_path / "a.csv", chunk_bytes=40))
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n' * 50 + '{"n": "x"}\n')
    with pytest.raises(DataError, match=r"a.jsonl:51: this does not fit .*changed from number to string"):
        list(read_table(tmp_path / "a.jsonl", chunk_bytes=40))
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n\n' * 50 + '{"n": "x"}\n')
    with pytest.raises(DataError, match=r"a.jsonl:101: "):
        list(read_table(tmp_path / "a.jsonl", chunk_bytes=40))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "a,b\n1,2\n3\n", r"a.csv:3: this does not fit .*Expected 2 columns, got 1"),
        ("a.csv", "a,a\n1,2\n", "more than one column is named 'a'"),
        ("a.csv", "", "this file is empty"),
        ("a.csv", "a\n\xff\xfe\n", r"a.csv:2: this is not written in UTF-8"),
        ("a.jsonl", json.dumps({"a": 1}) + "\n{", r"a.jsonl:2: "),
        ("a.parquet", "no parquet", "this file is damaged, or not what its name says"),
        ("a.arrow", "no arrow, and nothing like it", "this file is damaged, or not what its name says"),
        ("a.csv.gz", "not packed", "by its name this is gzip"),
    ],
    ids=range(8),
)
def test_a_bad_file_is_told_by_its_name(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=message) as told:
        list(read_table(tmp_path / name))
    assert str(told.value).startswith(str(tmp_path / name))


def test_files_with_other_columns_are_no_part_of_the_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    pq.write_table(pa.table({"a": [1], "c": [2]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b.parquet: its columns .*it lacks 'b'; it also has 'c'"):
        list(read_table(tmp_path))


def test_a_file_that_is_not_there_is_told_with_the_one_that_may_be_meant(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("a\n1\n")
    with pytest.raises(DataError, match=r"there is no such file(.|\n)*did you mean .*train.csv"):
        list(read_table(tmp_path / "trian.csv"))


def test_a_packed_file_that_was_cut_off_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    packed = gzip.compress("\n".join(["a,b", *(f"{row},{row * row % 9973}" for row in range(300_000))]).encode())
    (tmp_path / "a.csv.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match="the packed file is damaged"):
        list(read_table(tmp_path / "a.csv.gz"))


def test_a_cell_may_hold_line_ends_where_pieces_meet(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n" + '1,"two\nlines"\n' * 200)
    found = pa.concat_tables(read_table(tmp_path / "a.csv", chunk_bytes=100))
    assert found["b"].to_pylist() == ["two\nlines"] * 200


def test_a_table_that_is_not_in_utf_8_is_told_how_to_become_so(tmp_path: Path) -> None:
    path = tmp_path / "towns.csv"
    path.write_bytes("town,age\nKöln,3\nJülich,4\n".encode("latin-1"))
    with pytest.raises(DataError, match="not written in UTF-8") as told:
        list(read_table(path))
    assert "iconv -f WINDOWS-1252 -t UTF-8 towns.csv" in str(told.value)


def test_names_of_columns_that_are_not_in_utf_8_are_told_so_too(tmp_path: Path) -> None:
    path = tmp_path / "roads.csv"
    path.write_bytes("Straße;age\nA1;3\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"roads\.csv:1: this is not written in UTF-8\nhelp: iconv"):
        list(read_table(path))


def test_a_quotation_mark_that_is_not_closed_is_told_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text('name,note,age\nAnn,"open,3\n' + "Bob,fine,4\n" * 20)
    with pytest.raises(
        DataError, match=r"people\.csv:2: .*\nhelp: a quotation mark is opened here and not closed"
    ) as told:
        list(read_table(path))
    assert len(str(told.value).split("\n")) == 2


def test_a_table_of_thousands_of_columns_comes_whole_in_many_pieces(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(3_000)]
    (tmp_path / "wide.csv").write_text("\n".join([",".join(names)] + [",".join(["1"] * 3_000)] * 60))
    pieces = list(read_table(tmp_path / "wide.csv", chunk_bytes=40_000))
    assert len(pieces) > 1 and sum(table.num_rows for table in pieces) == 60
    assert all(table.column_names == names for table in pieces)


def test_words_may_come_as_they_are_spelled(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n;odd\n1,5;1,5\n2,5;unknown\n")
    found = pa.concat_tables(read_table(tmp_path / "a.csv", string_columns=["odd"], keep_spelling=True))
    assert found.to_pydict() == {"n": [1.5, 2.5], "odd": ["1,5", "unknown"]}
