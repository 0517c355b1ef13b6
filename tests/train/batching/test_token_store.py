"""Token stores return what was written, in memory and on disk, and detect damage."""

import errno
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import TrainingError
from softlook.train.batching import token_store as module
from softlook.train.batching.token_store import TokenStore, store_in_memory, write_store
from softlook.weights.atomic_folder import DiskError

ids = st.lists(st.integers(0, 99), max_size=5)
Written = list[tuple[list[int], list[int]]]
EXAMPLES: Written = [([5, 6], [7]), ([], []), ([99], [1, 2, 3]), ([0], [])]


@given(st.lists(st.tuples(ids, ids), max_size=12))
def test_a_store_returns_the_examples_it_was_given(written: Written) -> None:
    store = store_in_memory(written, vocab_size=100, rows=2)
    assert list(store) == written
    assert store[1:3] == written[1:3]
    for row in (0, 1):
        assert store.lengths(row).tolist() == [len(example[row]) for example in written]
    with pytest.raises(IndexError):
        store[len(written)]


@pytest.mark.parametrize(("vocab", "width"), [(65_536, 2), (65_537, 4)])
def test_a_store_on_disk_matches_one_in_memory(
    vocab: int, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 3)  # several chunks
    written = [*EXAMPLES, ([vocab - 1], [])]
    folder = write_store(iter(written), tmp_path / "store", vocab_size=vocab, rows=2)
    on_disk, in_memory = TokenStore.open(folder), store_in_memory(written, vocab_size=vocab, rows=2)
    assert list(on_disk) == list(in_memory) == written
    assert [
        torch.equal(one.long(), other.long()) for one, other in zip(on_disk.tensors(), in_memory.tensors(), strict=True)
    ]
    assert torch.equal(on_disk.lengths(1), in_memory.lengths(1))
    assert (folder / "ids.bin").stat().st_size == 9 * width


def test_invalid_ids_and_row_counts_raise(tmp_path: Path) -> None:
    for row, got in (([3, 10], "3 to 10"), ([-1], "-1 to -1")):
        with pytest.raises(TrainingError, match=f"expected ids from 0 to 9, got {got}"):
            write_store([(row,)], tmp_path / "a", vocab_size=10)
    with pytest.raises(TrainingError, match="every example of this store has 2 rows; got one with 1"):
        store_in_memory([([3],)], vocab_size=10, rows=2)
    with pytest.raises(TrainingError, match="nothing to train on: got no examples"):
        write_store([], tmp_path / "a", vocab_size=10)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["ids.bin", "offsets.bin", "store.json", "manifest.json"])
def test_flipped_bits_and_truncation_are_detected(name: str, tmp_path: Path) -> None:
    path = write_store(EXAMPLES, tmp_path / "store", vocab_size=100, rows=2) / name
    content = path.read_bytes()
    damaged = [content[:-1], content + b"\0", b""]
    for index in range(0, len(content), 7):
        damaged.append(bytes(byte ^ (i == index) for i, byte in enumerate(content)))
    found = []
    for corrupted in damaged:
        path.write_bytes(corrupted)
        found.append(_read(path.parent))
    path.write_bytes(content)
    assert _read(path.parent) == EXAMPLES
    assert all(isinstance(outcome, TrainingError) for outcome in found)
    path.unlink()
    assert name in str(_read(path.parent))


def _read(folder: Path) -> Any:
    try:
        return list(TokenStore.open(folder))
    except TrainingError as error:
        return error


def test_a_full_disk_raises_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.HashingWriter, "write", full)
    with pytest.raises(
        DiskError, match=r"cannot write .*store: No space left on device\. [\d,]+ bytes are free on this disk"
    ):
        write_store(EXAMPLES, tmp_path / "store", vocab_size=100, rows=2)
    assert not list(tmp_path.iterdir())
