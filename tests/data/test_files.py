"""Paths and folders resolve to data files, or raise an error that names the path."""

import os
import sys
from pathlib import Path

import pytest

from softlook.base.errors import DataError
from softlook.data.files import compression_of, find_files, format_of

needs_symlinks = pytest.mark.skipif(sys.platform == "win32", reason="creating a link needs extra rights on Windows")


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("words\n")


def names(paths: object, below: Path) -> list[str]:
    return [path.relative_to(below).as_posix() for path in find_files(paths)]  # type: ignore[arg-type]


def error_message(paths: object) -> str:
    with pytest.raises(DataError) as caught:
        find_files(paths)  # type: ignore[arg-type]
    assert all(row.isprintable() for row in str(caught.value).split("\n"))
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "format", "compression"),
    [
        ("a.txt", "text", None),
        ("a.CSV", "csv", None),
        ("a.tsv.gz", "tsv", "gzip"),
        ("a.jsonl.zst", "jsonl", "zstd"),
        ("a.parquet", "parquet", None),
        ("train.en", "text", None),
        ("enwik8.gz", "text", "gzip"),
        ("noending", "text", None),
    ],
)
def test_the_suffix_gives_format_and_compression(name: str, format: str, compression: str | None) -> None:
    assert (format_of(Path(name)), compression_of(Path(name))) == (format, compression)


def test_a_folder_gives_its_files_recursively_sorted(tmp_path: Path) -> None:
    make(tmp_path, "b.txt", "a/z.csv", "a/b/c.jsonl.gz", "c.doc", ".hidden.txt", ".git/x.txt")
    assert names(tmp_path, tmp_path) == ["a/b/c.jsonl.gz", "a/z.csv", "b.txt"]


def test_explicit_files_keep_their_order_and_any_suffix(tmp_path: Path) -> None:
    make(tmp_path, "b.en", "a.de")
    assert names([tmp_path / "b.en", str(tmp_path / "a.de")], tmp_path) == ["b.en", "a.de"]


def test_a_missing_file_suggests_similar_names(tmp_path: Path) -> None:
    make(tmp_path, "reviews.csv", "other.txt")
    assert f"did you mean {tmp_path / 'reviews.csv'}?" in error_message(tmp_path / "review.csv")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    make(tmp_path, "corpus/a.txt")
    message = error_message(tmp_path / "corpsu" / "a.txt")
    assert f"{tmp_path / 'corpsu'} does not exist" in message and f"mean {tmp_path / 'corpus'}?" in message


def test_no_similar_name_gives_no_suggestion(tmp_path: Path) -> None:
    assert "help" not in error_message(tmp_path / "zzz.csv")


def test_a_file_used_as_a_folder_raises(tmp_path: Path) -> None:
    make(tmp_path, "a.txt")
    assert "no such file" in error_message(tmp_path / "a.txt" / "b.txt")


def test_no_paths_raise() -> None:
    assert "--data" in error_message([])


def test_an_empty_folder_raises(tmp_path: Path) -> None:
    assert "has no files" in error_message(tmp_path)


def test_a_folder_without_known_suffixes_raises(tmp_path: Path) -> None:
    make(tmp_path, "a.en", "a.de")
    assert "has 2 files" in error_message(tmp_path) and ".jsonl" in error_message(tmp_path)


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, ""])
def test_an_invalid_file_name_raises(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert error_message(name)


@needs_symlinks
def test_cyclic_links_are_followed_once(tmp_path: Path) -> None:
    make(tmp_path, "a/b.txt")
    (tmp_path / "a/up").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "a/self").symlink_to(tmp_path / "a/self")
    (tmp_path / "a/nowhere.txt").symlink_to(tmp_path / "gone")
    assert names(tmp_path, tmp_path) == ["a/b.txt"]


@needs_symlinks
def test_a_file_with_two_names_in_a_folder_counts_once(tmp_path: Path) -> None:
    make(tmp_path, "b.txt")
    (tmp_path / "a.txt").symlink_to(tmp_path / "b.txt")
    assert names(tmp_path, tmp_path) == ["a.txt"]


@needs_symlinks
def test_a_dangling_link_raises(tmp_path: Path) -> None:
    (tmp_path / "a.txt").symlink_to(tmp_path / "gone.txt")
    (tmp_path / "b.txt").symlink_to(tmp_path / "b.txt")
    assert "gone.txt, which does not exist" in error_message(tmp_path / "a.txt")
    assert "points to itself" in error_message(tmp_path / "b.txt")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes in folders")
def test_a_pipe_raises_before_it_is_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    assert "more than once" in error_message(tmp_path / "pipe.txt")
    assert "has no files" in error_message(tmp_path)


def test_an_unreadable_folder_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "closed/a.txt")

    def deny(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", deny)
    assert "Permission denied" in error_message(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not allow such long paths")
def test_deep_folders_are_read(tmp_path: Path) -> None:
    deep = Path(*"d" * 200)
    make(tmp_path, str(deep / "a.txt"))
    assert names(tmp_path, tmp_path) == [(deep / "a.txt").as_posix()]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not allow such names")
def test_control_characters_in_names_are_escaped(tmp_path: Path) -> None:
    make(tmp_path, "\x1b[2Ja.txt", "bad\udcff.txt")
    assert "\\x1b[2Ja.txt" in error_message(tmp_path / "\x1b[2Jb.txt")
    assert len(find_files(tmp_path)) == 2
