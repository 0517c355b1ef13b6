"""Rows of ids: what is written is read, from memory and from disk alike, and damage is found."""

import errno
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import TrainingError
from softlook.train import store as module
from softlook.train.store import Store, gathered, write_store
from softlook.weights.folders import DiskError

ids = st.lists(st.integers(0, 99), max_size=5)
Written = list[tuple[list[int], list[int]]]
SOME: Written = [([5, 6], [7]), ([], []), ([99], [1, 2, 3]), ([0], [])]


@given(st.lists(st.tuples(ids, ids), max_size=12))
def test_what_is_gathered_is_given_back_row_by_row(written: Written) -> None:
    store = gathered(written, vocab=100, rows=2)
    assert list(store) == written
    assert store[1:3] == written[1:3]
    for row in (0, 1):
        assert store.lengths(row).tolist() == [len(example[row]) for example in written]
    with pytest.raises(IndexError):
        store[len(written)]


@pytest.mark.parametrize(("vocab", "width"), [(65_536, 2), (65_537, 4)])
def test_on_disk_it_is_as_in_memory(vocab: int, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PORTION", 3)  # so that there are several portions
    written = [*SOME, ([vocab - 1], [])]
    folder = write_store(iter(written), tmp_path / "store", vocab=vocab, rows=2)
    opened, memory = Store.open(folder), gathered(written, vocab=vocab, rows=2)
    assert list(opened) == list(memory) == written
    assert [
        torch.equal(one.long(), other.long()) for one, other in zip(opened.tensors(), memory.tensors(), strict=True)
    ]
    assert torch.equal(opened.lengths(1), memory.lengths(1))
    assert (folder / "ids.bin").stat().st_size == 9 * width


def test_ids_that_are_none_and_examples_of_another_kind_are_refused(tmp_path: Path) -> None:
    for row, came in (([3, 10], "3 to 10"), ([-1], "-1 to -1")):
        with pytest.raises(TrainingError, match=f"ids go from 0 to 9; {came} came"):
            write_store([(row,)], tmp_path / "a", vocab=10)
    with pytest.raises(TrainingError, match="every example of this store has 2 rows; one of 1 came"):
        gathered([([3],)], vocab=10, rows=2)
    with pytest.raises(TrainingError, match="nothing to learn from: no examples came"):
        write_store([], tmp_path / "a", vocab=10)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["ids.bin", "edges.bin", "store.json"])
def test_every_flipped_bit_and_every_cut_is_found(name: str, tmp_path: Path) -> None:
    path = write_store(SOME, tmp_path / "store", vocab=100, rows=2) / name
    content = path.read_bytes()
    damaged = [content[:-1], content + b"\0", b""]
    for place in range(0, len(content), 7):
        damaged.append(bytes(byte ^ (at == place) for at, byte in enumerate(content)))
    found = []
    for bad in damaged:
        path.write_bytes(bad)
        found.append(_read(path.parent))
    path.write_bytes(content)
    assert _read(path.parent) == SOME
    if name == "store.json":  # some of it is space, and says nothing
        found = [each for each in found if each != SOME]
        assert found
    assert all(isinstance(each, TrainingError) for each in found)
    path.unlink()
    assert name in str(_read(path.parent))


def _read(folder: Path) -> Any:
    try:
        return list(Store.open(folder))
    except TrainingError as fault:
        return fault


def test_a_full_disk_is_told_in_bytes_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module._Writing, "put", full)  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(DiskError, match=r"cannot write .*store: No space left on device\. [\d,]+ bytes are free there"):
        write_store(SOME, tmp_path / "store", vocab=100, rows=2)
    assert not list(tmp_path.iterdir())
