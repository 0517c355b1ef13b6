"""One folder of text files per class: the label is the name of the folder."""

from collections import Counter
from pathlib import Path

import pytest

from softlook import data
from softlook.base.errors import DataError
from softlook.data.class_folders import find_class_folders


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def test_each_folder_is_a_class_and_each_file_a_text(tmp_path: Path) -> None:
    write(tmp_path, {"pos/1.txt": "good\r\nfilm\r\n", "pos/deep/2.txt": "\ufefffine", "neg/1.txt": " bad "})
    examples = data.read_labeled(tmp_path)
    assert [(example.text, example.label) for example in examples] == [
        ("bad", "neg"),
        ("good\nfilm", "pos"),
        ("fine", "pos"),
    ]
    assert examples.notes == ("each folder is a class, each file a text: 'neg' (1), 'pos' (2)",)
    assert len(examples.files) == 3


def test_several_folders_are_joined_by_class(tmp_path: Path) -> None:
    first = write(tmp_path / "a", {"pos/1.txt": "good", "neg/1.txt": "bad"})
    second = write(tmp_path / "b", {"pos/1.txt": "fine", "neg/1.txt": "poor"})
    found = [(example.text, example.label) for example in data.read_labeled([first, second])]
    assert found == [("bad", "neg"), ("poor", "neg"), ("good", "pos"), ("fine", "pos")]


def test_files_without_a_suffix_are_texts(tmp_path: Path) -> None:
    write(tmp_path, {"alt.atheism/49960": "one", "sci.space/59848": "two", "sci.space/notes.bak": "three"})
    assert [example.label for example in data.read_labeled(tmp_path)] == ["alt.atheism", "sci.space"]


def test_text_files_beside_the_folders_and_unlabeled_folders_are_not_read(tmp_path: Path) -> None:
    write(tmp_path, {"urls.txt": "x", "pos/1.txt": "good", "neg/1.txt": "bad", "unsup/1.txt": "who knows"})
    examples = data.read_labeled(tmp_path)
    assert [example.label for example in examples] == ["neg", "pos"]
    assert examples.notes[1] == f"not read, because its texts have no label: {tmp_path / 'unsup'}"


def test_empty_files_are_skipped_and_counted(tmp_path: Path) -> None:
    write(tmp_path, {"pos/1.txt": "good", "neg/1.txt": "bad", "neg/2.txt": " \n"})
    examples = data.read_labeled(tmp_path)
    assert len(list(examples)) == 2 and examples.skipped == Counter({"without a text": 1})


def test_an_unreadable_file_is_a_bad_row(tmp_path: Path) -> None:
    write(tmp_path, {"pos/1.txt": "good", "neg/1.txt": "bad", "neg/2.txt": b"sch\xf6n"})
    with pytest.raises(DataError, match=r"2\.txt:1:4: the byte 0xf6 is not UTF-8"):
        list(data.read_labeled(tmp_path))
    assert len(list(data.read_labeled(tmp_path, max_bad_rows=1))) == 2


def test_a_file_that_is_too_long_is_a_bad_row(tmp_path: Path) -> None:
    write(tmp_path, {"pos/1.txt": "good", "neg/1.txt": "bad\n" * 10})
    with pytest.raises(DataError, match="more than 20 characters"):
        list(data.read_labeled(tmp_path, max_line_chars=20))
    assert len(list(data.read_labeled(tmp_path, max_line_chars=39))) == 2


@pytest.mark.parametrize(("other", "flag"), [("test", "--test"), ("dev", "--valid")])
def test_train_and_test_folders_are_not_classes(tmp_path: Path, other: str, flag: str) -> None:
    write(tmp_path, {"train/pos/1.txt": "good", "train/neg/1.txt": "bad", f"{other}/pos/1.txt": "good", "README": "x"})
    with pytest.raises(DataError, match="parts of a dataset, not classes") as caught:
        data.read_labeled(tmp_path)
    assert caught.value.help == f"name each of them: --data {tmp_path / 'train'} {flag} {tmp_path / other}"
    assert len(find_class_folders(tmp_path / "train").files) == 2  # pyright: ignore[reportOptionalMemberAccess]


def test_folders_of_tables_are_not_classes(tmp_path: Path) -> None:
    write(tmp_path / "a", {"x/1.csv": "text,label\ngood,1\n", "y/1.csv": "text,label\nbad,0\n"})
    write(tmp_path / "b", {"1.csv": "text,label\ngood,1\nbad,0\n", "x/2.txt": "a", "y/2.txt": "b"})
    assert [example.label for example in data.read_labeled(tmp_path / "a")] == ["1", "0"]
    assert find_class_folders(tmp_path / "b") is None


def test_one_class_or_images_are_not_class_folders(tmp_path: Path) -> None:
    assert find_class_folders(write(tmp_path / "a", {"pos/1.txt": "good"})) is None
    assert find_class_folders(write(tmp_path / "b", {"cats/1.jpg": "x", "dogs/1.jpg": "y"})) is None
    with pytest.raises(DataError, match="none with a known suffix"):
        data.read_labeled(tmp_path / "b")
