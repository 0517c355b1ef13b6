"""Digests identify the content of files and examples, and are stable across machines and releases."""

from pathlib import Path

import pytest

from softlook.base.errors import DataError
from softlook.data import data_digest, file_digests
from softlook.data.digest import content_digest, exact_digest


def test_digests_are_stable_across_releases() -> None:
    # The split depends on these digests: if they changed, held-out examples would be trained on.
    assert content_digest("Hello  World") == content_digest("hello world") == EXPECTED
    assert exact_digest("hello world") == EXPECTED != exact_digest("Hello world")


EXPECTED = 9765549648086544720


def test_the_digest_depends_on_content_not_on_names(tmp_path: Path) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_bytes(b"words\n")
    second.write_bytes(b"words\n")
    same = data_digest([first])
    assert data_digest([second]) == same
    second.write_bytes(b"Words\n")
    assert data_digest([second]) != same


def test_the_data_digest_depends_on_the_order(tmp_path: Path) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_bytes(b"1")
    second.write_bytes(b"2")
    assert data_digest([first, second]) != data_digest([second, first])
    assert list(file_digests([first, second])) == [str(first), str(second)]


def test_a_missing_file_raises_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        file_digests([tmp_path / "a.txt"])
