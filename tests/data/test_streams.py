"""Files are read in blocks, and an error names the file."""

import gzip
import sys
from pathlib import Path

import pytest

from softlook.base.errors import DataError
from softlook.data import streams
from softlook.data.streams import open_stream
from tests.data.malformed_files import zstd

CONTENT = b"".join(b"line %d\n" % n for n in range(300_000))


@pytest.mark.parametrize(("suffix", "compress"), [("", bytes), (".gz", gzip.compress), (".zst", zstd)])
def test_a_stream_gives_the_file_in_blocks(suffix: str, compress: type[bytes], tmp_path: Path) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(compress(CONTENT))
    blocks = list(open_stream(path))
    assert b"".join(blocks) == CONTENT
    assert len(blocks) > 2 and max(map(len, blocks)) <= streams.BLOCK


def test_a_decompression_bomb_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SAFE_BYTES", 1 << 21)
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"words and more words\n" * 300_000))
    blocks = open_stream(path)
    assert len(next(blocks)) == streams.BLOCK
    with pytest.raises(DataError, match="decompress to"):
        list(blocks)


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")])
def test_disk_errors_name_the_file(error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*_: object) -> None:
        raise error

    monkeypatch.setattr(Path, "open", deny)
    with pytest.raises(DataError, match=str(error.strerror)) as caught:
        list(open_stream(tmp_path / "a.txt"))
    assert caught.value.location == str(tmp_path / "a.txt")


def test_a_missing_file_raises(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        list(open_stream(tmp_path / "a.txt"))


def test_without_pyarrow_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt.zst"
    path.write_bytes(zstd(b"words\n"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "softlook.data.arrow", raising=False)
    monkeypatch.delattr("softlook.data.arrow", raising=False)
    with pytest.raises(DataError, match="pip install pyarrow"):
        list(open_stream(path))
