"""The manifest detects every changed bit of a checkpoint."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from softlook.base.errors import WeightsError
from softlook.weights import load
from softlook.weights.manifest import MANIFEST_FILE, verify_manifest
from tests.weights.folders import checkpoint

EVERY_BIT, SOME_BITS = ("manifest.json", "softlook.json", "tokenizer.json"), "model.safetensors"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("manifest") / "softlook")


def flip(path: Path, bit: int) -> None:
    """Flip a bit in place; a second call restores it."""
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def is_detected(folder: Path, name: str) -> bool:
    """Whether the change of this file is detected."""
    try:
        verify_manifest(folder)
    except WeightsError as error:
        return name in str(error)
    return False


def flip_is_detected(folder: Path, name: str, bit: int) -> bool:
    flip(folder / name, bit)
    try:
        return is_detected(folder, name)
    finally:
        flip(folder / name, bit)


def content_is_detected(folder: Path, name: str, content: bytes) -> bool:
    before = (folder / name).read_bytes()
    (folder / name).write_bytes(content)
    try:
        return is_detected(folder, name)
    finally:
        (folder / name).write_bytes(before)


@pytest.mark.parametrize("name", EVERY_BIT)
def test_every_flipped_bit_is_detected(name: str, folder: Path) -> None:
    bits = range(8 * (folder / name).stat().st_size)
    assert not [bit for bit in bits if not flip_is_detected(folder, name, bit)]
    verify_manifest(folder)


def test_flipped_bits_in_the_weights_are_detected(folder: Path) -> None:
    everywhere, header = range(8 * (folder / SOME_BITS).stat().st_size), range(8 * 200)
    bits = [*random.Random(0).sample(everywhere, 1500), *random.Random(1).sample(header, 500)]
    assert not [bit for bit in bits if not flip_is_detected(folder, SOME_BITS, bit)]
    verify_manifest(folder)


@pytest.mark.parametrize("name", [*EVERY_BIT, SOME_BITS])
def test_a_truncated_file_is_detected(name: str, folder: Path) -> None:
    content = (folder / name).read_bytes()
    lengths = random.Random(0).sample(range(len(content)), min(len(content), 150))
    assert all(content_is_detected(folder, name, content[:length]) for length in lengths)


def test_loading_a_model_with_a_flipped_bit_raises_an_error(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "softlook")
    flip(folder / SOME_BITS, 8 * 5000)
    digests = r"Expected SHA-256 [0-9a-f]{64}, got [0-9a-f]{64}. Use another copy."
    with pytest.raises(WeightsError, match=rf"model.safetensors is not what was saved: .*{digests}"):
        load(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text + " ",
        lambda text: text.replace('"format": 2,', '"format": 2, "format": 2,'),
        lambda text: text.replace('  "files"', '  "note": "hello",\n  "files"'),
        lambda text: text.replace("model.safetensors", "model.safetensorz"),
    ],
    ids=["other line endings", "extra space", "duplicate key", "extra key", "another name"],
)
def test_a_rewritten_manifest_is_detected(change: Callable[[str], str], folder: Path) -> None:
    text = (folder / MANIFEST_FILE).read_text(encoding="utf-8")
    assert change(text) != text
    assert content_is_detected(folder, MANIFEST_FILE, change(text).encode())


def test_swapped_files_are_detected(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "softlook")
    one, other = folder / "softlook.json", folder / "tokenizer.json"
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    with pytest.raises(WeightsError, match=r"softlook.json is not what was saved"):
        load(folder)


def test_extra_files_in_a_checkpoint_are_ignored(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "softlook")
    (folder / "README.md").write_text("Trained on a Tuesday.", encoding="utf-8")
    load(folder)
