"""Files are read a block at a time, and what is wrong with one is told with its name."""

import gzip
import sys
from pathlib import Path

import pytest

from softlook.base.errors import DataError
from softlook.data import opening
from softlook.data.opening import stream
from tests.data.odd_files import zstd

CONTENT = b"".join(b"line %d\n" % n for n in range(300_000))


@pytest.mark.parametrize(("ending", "pack"), [("", bytes), (".gz", gzip.compress), (".zst", zstd)])
def test_a_file_comes_in_blocks_that_make_the_whole(ending: str, pack: type[bytes], tmp_path: Path) -> None:
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(pack(CONTENT))
    blocks = list(stream(path))
    assert b"".join(blocks) == CONTENT
    assert len(blocks) > 2 and max(map(len, blocks)) <= opening.BLOCK


def test_a_file_that_unpacks_to_far_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "HARMLESS", 1 << 21)
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"words and more words\n" * 300_000))
    given = stream(path)
    assert len(next(given)) == opening.BLOCK
    with pytest.raises(DataError, match="unpack to"):
        list(given)


@pytest.mark.parametrize("fault", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")])
def test_what_the_disk_says_is_told_with_the_name(
    fault: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise fault

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=str(fault.strerror)) as caught:
        list(stream(tmp_path / "a.txt"))
    assert caught.value.place == str(tmp_path / "a.txt")


def test_a_file_that_went_away_is_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        list(stream(tmp_path / "a.txt"))


def test_without_pyarrow_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt.zst"
    path.write_bytes(zstd(b"words\n"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "softlook.data.arrow", raising=False)
    monkeypatch.delattr("softlook.data.arrow", raising=False)
    with pytest.raises(DataError, match="pip install pyarrow"):
        list(stream(path))
