"""Table files are read in chunks, with one schema for all chunks."""

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
from tests.tabular.tables import bitwise_equal


def table(rows: int = 300) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "n": [float(row) if row % 7 else None for row in range(rows)],
            "c": [["red", "blue", 'a, "b"'][row % 3] for row in range(rows)],
            "d": pd.to_datetime("2024-01-01") + pd.to_timedelta(list(range(rows)), unit="h"),
        }
    )


def write_all_formats(folder: Path) -> list[Path]:
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
    frame.to_excel(folder / "j.xlsx", index=False)
    return sorted(folder.iterdir())


def test_every_format_gives_the_same_table(tmp_path: Path) -> None:
    files = write_all_formats(tmp_path)
    encoder = TableEncoder.fit(table())
    for file in files:
        chunks = list(read_table(file, chunk_bytes=2000))
        whole = pa.concat_tables(chunks)
        assert TableEncoder.fit_chunks(chunks).column_types == encoder.column_types, file.name
        assert whole.num_rows == 300
        if not file.name.startswith(("e", "f")):  # pandas adds a time zone to the dates of JSON
            assert bitwise_equal(encoder.encode(whole), encoder.encode(table())), file.name
    assert len(list(read_table(tmp_path / "a.csv", chunk_bytes=2000))) > 3


def test_several_files_are_one_table(tmp_path: Path) -> None:
    for index in range(3):
        table().iloc[100 * index : 100 * index + 100].to_csv(tmp_path / f"{index}.csv", index=False)
    whole = pa.concat_tables(read_table(tmp_path))
    assert bitwise_equal(TableEncoder.fit(whole).encode(whole), TableEncoder.fit(table()).encode(table()))


def test_all_chunks_have_the_types_of_the_first(tmp_path: Path) -> None:
    rows = ["whole,empty,day", *["1,,2024-01-01"] * 100, "2.5,late,2024-01-01 12:30:00.5"]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    chunks = list(read_table(tmp_path / "a.csv", chunk_bytes=64))
    assert len(chunks) > 5
    assert {str(chunk.schema) for chunk in chunks} == {"whole: double\nempty: string\nday: timestamp[us]"}
    assert chunks[-1].to_pylist()[-1]["whole"] == 2.5


def test_a_column_can_be_read_as_strings(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("zip,n\n0123,1\n0456,2\n")
    (tmp_path / "a.jsonl").write_text('{"zip": "0123", "n": 1}\n')
    csv, json_lines = (
        pa.concat_tables(read_table(tmp_path / name, string_columns=["zip"])) for name in ("a.csv", "a.jsonl")
    )
    assert csv["zip"].to_pylist() == ["0123", "0456"]
    assert json_lines["zip"].to_pylist() == ["0123"]


def test_json_numbers_and_booleans_can_be_read_as_strings(tmp_path: Path) -> None:
    rows = [{"n": 1, "is": True, "day": "2024-01-01"}, {"n": None, "is": False, "day": None}, {"n": 2.5}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for chunk_bytes in (20, 1000):
        strings = pa.concat_tables(
            read_table(tmp_path / "a.jsonl", string_columns=["n", "is", "day"], chunk_bytes=chunk_bytes)
        )
        assert strings["n"].to_pylist() == ["1", None, "2.5"]
        assert strings["is"].to_pylist() == ["true", "false", None]
        assert strings["day"].to_pylist() == ["2024-01-01", None, None]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_a_comma_can_be_the_decimal_point_unless_it_is_the_delimiter(delimiter: str, tmp_path: Path) -> None:
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


def test_strings_with_commas_are_unchanged(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n;word\n1,5;Rome, Italy\n2,5;1,2,3\n")
    rows = pa.concat_tables(read_table(tmp_path / "a.csv", string_columns=["word"]))
    assert rows.to_pydict() == {"n": [1.5, 2.5], "word": ["Rome, Italy", "1,2,3"]}


def test_a_number_in_a_string_column_is_spelled_the_same_with_and_without_string_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n;odd\n1,5;1,5\n2,5;unknown\n")
    for string_columns in ((), ("odd",)):
        rows = pa.concat_tables(read_table(tmp_path / "a.csv", string_columns=string_columns))
        assert rows["odd"].to_pylist() == ["1.5", "unknown"]


def test_a_decompression_bomb_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.data.streams.SAFE_BYTES", 1000)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"1,1\n" * 500_000))
    with pytest.raises(DataError, match="decompress to"):
        list(read_table(tmp_path / "a.csv.gz"))


def test_utf_16_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n", encoding="utf-16")
    with pytest.raises(DataError, match="expected UTF-8, got UTF-16"):
        list(read_table(tmp_path / "a.csv"))


def test_a_line_with_too_few_cells_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(DataError, match="give every line as many cells as the first one"):
        list(read_table(tmp_path / "a.csv"))


def test_an_error_names_the_line_of_an_invalid_cell(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,c\n" + "1,a\n" * 50 + "x,b\n")
    with pytest.raises(
        DataError, match=r"a.csv:52: .* column 'n': expected numbers, got 'x'\n.*--column-types n=category"
    ):
        list(read_table(tmp_path / "a.csv", chunk_bytes=40))
    (tmp_path / "a.csv").write_text("n,c\n" + '1,"two\nlines"\n\n' * 50 + "x,b\n")
    with pytest.raises(DataError, match="a.csv:152: "):
        list(read_table(tmp_path / "a.csv", chunk_bytes=40))
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n' * 50 + '{"n": "x"}\n')
    with pytest.raises(DataError, match=r"a.jsonl:51: this does not match .*changed from number to string"):
        list(read_table(tmp_path / "a.jsonl", chunk_bytes=40))
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n\n' * 50 + '{"n": "x"}\n')
    with pytest.raises(DataError, match=r"a.jsonl:101: "):
        list(read_table(tmp_path / "a.jsonl", chunk_bytes=40))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "a,b\n1,2\n3\n", r"a.csv:3: this does not match .*Expected 2 columns, got 1"),
        ("a.csv", "a,a\n1,2\n", "more than one column is named 'a'"),
        ("a.csv", "", "the file is empty"),
        ("a.csv", "a\n\xff\xfe\n", r"a.csv:2: the file is not UTF-8"),
        ("a.jsonl", json.dumps({"a": 1}) + "\n{", r"a.jsonl:2: "),
        ("a.parquet", "no parquet", "the file is damaged, or its extension does not match"),
        ("a.arrow", "no arrow, and nothing like it", "the file is damaged, or its extension does not match"),
        ("a.csv.gz", "not compressed", "by its suffix this is gzip"),
    ],
    ids=range(8),
)
def test_an_error_starts_with_the_path_of_the_invalid_file(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=message) as error:
        list(read_table(tmp_path / name))
    assert str(error.value).startswith(str(tmp_path / name))


def test_files_with_different_columns_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    pq.write_table(pa.table({"a": [1], "c": [2]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b.parquet: the columns differ .*missing: 'b'; additional: 'c'"):
        list(read_table(tmp_path))


def test_a_missing_file_is_reported_with_the_closest_name(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("a\n1\n")
    with pytest.raises(DataError, match=r"there is no such file(.|\n)*did you mean .*train.csv"):
        list(read_table(tmp_path / "trian.csv"))


def test_a_truncated_compressed_file_is_rejected(tmp_path: Path) -> None:
    compressed = gzip.compress("\n".join(["a,b", *(f"{row},{row * row % 9973}" for row in range(300_000))]).encode())
    (tmp_path / "a.csv.gz").write_bytes(compressed[: len(compressed) // 2])
    with pytest.raises(DataError, match="the compressed file is damaged"):
        list(read_table(tmp_path / "a.csv.gz"))


def test_a_cell_with_line_ends_may_span_chunks(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n" + '1,"two\nlines"\n' * 200)
    rows = pa.concat_tables(read_table(tmp_path / "a.csv", chunk_bytes=100))
    assert rows["b"].to_pylist() == ["two\nlines"] * 200


def test_a_table_that_is_not_utf_8_is_rejected_with_an_iconv_command(tmp_path: Path) -> None:
    path = tmp_path / "towns.csv"
    path.write_bytes("town,age\nKöln,3\nJülich,4\n".encode("latin-1"))
    with pytest.raises(DataError, match="not UTF-8") as error:
        list(read_table(path))
    assert "iconv -f WINDOWS-1252 -t UTF-8 towns.csv" in str(error.value)


def test_column_names_that_are_not_utf_8_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "roads.csv"
    path.write_bytes("Straße;age\nA1;3\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"roads\.csv:1: the file is not UTF-8\nhelp: iconv"):
        list(read_table(path))


def test_an_unclosed_quotation_mark_is_reported_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text('name,note,age\nAnn,"open,3\n' + "Bob,fine,4\n" * 20)
    with pytest.raises(
        DataError, match=r"people\.csv:2: .*\nhelp: a quotation mark is opened here and never closed"
    ) as error:
        list(read_table(path))
    assert len(str(error.value).split("\n")) == 2


def test_a_table_of_thousands_of_columns_is_complete_in_several_chunks(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(3_000)]
    (tmp_path / "wide.csv").write_text("\n".join([",".join(names)] + [",".join(["1"] * 3_000)] * 60))
    chunks = list(read_table(tmp_path / "wide.csv", chunk_bytes=40_000))
    assert len(chunks) > 1 and sum(chunk.num_rows for chunk in chunks) == 60
    assert all(chunk.column_names == names for chunk in chunks)


def test_string_columns_can_keep_their_spelling(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n;odd\n1,5;1,5\n2,5;unknown\n")
    rows = pa.concat_tables(read_table(tmp_path / "a.csv", string_columns=["odd"], keep_spelling=True))
    assert rows.to_pydict() == {"n": [1.5, 2.5], "odd": ["1,5", "unknown"]}
