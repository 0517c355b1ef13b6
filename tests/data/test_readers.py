"""Records become examples: empty ones are skipped and counted, and each example has its origin."""

import gzip
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softlook import data
from softlook.base.errors import DataError
from softlook.data import streams

VALID_TEXT = st.text(st.characters(exclude_characters="\0\r", exclude_categories=("Cs",)))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tasks") / "a.txt"


@given(text=VALID_TEXT, chunk=st.integers(4, 50), block=st.integers(4, 50))
def test_document_chunks_concatenate_to_the_file(path: Path, text: str, chunk: int, block: int) -> None:
    text = "x" + text + "x"
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BLOCK", block)
        chunks = list(data.read_documents(path, chunk_chars=chunk))
    whole = "".join(part.text for part in chunks)
    blank = len(text) - len(whole)
    assert whole == text or (blank and "".join(whole.split()) == "".join(text.split()))
    assert {part.document for part in chunks} == {0}


def test_each_file_and_each_row_of_a_table_is_a_document(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    (tmp_path / "b.jsonl").write_text('{"content": "three\\n"}\n{"content": ""}\n{"content": "four"}\n')
    (tmp_path / "c.txt").write_text("five\n")
    examples = data.read_documents(tmp_path)
    assert [(part.text, part.document) for part in examples] == [
        ("one\n\ntwo\n", 0),
        ("three\n", 1),
        ("four", 2),
        ("five\n", 3),
    ]
    assert examples.notes == ("plain text, each file a document", "text is 'content', by name")
    assert examples.read_stats.empty == 1


def test_a_blank_line_or_a_new_file_starts_a_document(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n two \n\nthree\n")
    (tmp_path / "b.csv").write_text("text,more\nfour,x\nfive,y\n")
    found = [(part.text, part.document) for part in data.read_sentences(tmp_path)]
    assert found == [("one", 0), ("two", 0), ("three", 1), ("four", 2), ("five", 3)]


def test_examples_have_their_origin(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('text,label\n"two\nlines",1\n\ngood,0\n')
    assert [str(example.origin) for example in data.read_labeled(path)] == [f"{path}:2", f"{path}:5"]


def test_examples_can_be_iterated_again(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    examples = data.read_sentences(tmp_path / "a.txt")
    assert list(examples) == list(examples)
    assert (examples.read_stats.read, examples.read_stats.empty) == (2, 1)


def test_examples_can_be_pickled(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("yes\tja\n")
    examples = data.read_pairs(tmp_path / "a.tsv")
    assert list(pickle.loads(pickle.dumps(examples))) == list(examples)


def test_all_files_must_have_the_columns_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("review,stars\ngood,5\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"stars,Review\n1,bad\n"))
    files = [tmp_path / "a.csv", tmp_path / "b.csv.gz"]
    assert [(e.text, e.label) for e in data.read_labeled(files)] == [("good", "5"), ("bad", "1")]
    (tmp_path / "c.csv").write_text("text,stars\nfine,4\n")
    with pytest.raises(DataError, match=r"c\.csv: there is no column 'review'"):
        data.read_labeled([*files, tmp_path / "c.csv"])


def test_requested_columns_are_used(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("title,body,topic,author\nT,B,news,x\n")
    [example] = data.read_labeled(tmp_path / "a.csv", text="title", pair="body", label="author")
    assert example[:3] == ("T", "B", "x")


def test_a_text_pair_needs_both_texts(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sentence1,sentence2,label\na,b,1\na,,1\n")
    examples = data.read_labeled(tmp_path / "a.csv")
    assert [example[:3] for example in examples] == [("a", "b", "1")]
    assert examples.read_stats.empty == 1


def test_max_bad_rows_limits_skipped_rows(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n?\n{"text": "b"}\n?\n?\n')
    assert [part.text for part in data.read_sentences(tmp_path / "a.jsonl", max_bad_rows=3)] == ["a", "b"]
    with pytest.raises(DataError, match=r"a\.jsonl:5:1") as caught:
        list(data.read_sentences(tmp_path / "a.jsonl", max_bad_rows=2))
    assert "2 bad rows before it were skipped" in str(caught.value)
    assert "--max-bad-rows" in str(caught.value)


def test_the_first_errors_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n' + "?\n" * 9)
    examples = data.read_sentences(tmp_path / "a.jsonl", max_bad_rows=9)
    list(examples)
    assert examples.read_stats.bad == 9 and len(examples.read_stats.first_errors) == 5
    assert "a.jsonl:2:1" in examples.read_stats.first_errors[0]


def test_max_line_chars_may_be_raised(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * 50)
    with pytest.raises(DataError, match="more than 40"):
        list(data.read_sentences(tmp_path / "a.txt", max_line_chars=40))
    assert len(list(data.read_sentences(tmp_path / "a.txt", max_line_chars=50))) == 1


def test_reading_can_stop_early(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("line\n" * 1000)
    for _ in zip(range(3), data.read_sentences(tmp_path / "a.txt"), strict=False):
        pass  # a file left open would give a ResourceWarning, and warnings are errors here
