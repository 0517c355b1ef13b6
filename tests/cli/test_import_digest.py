"""A GGUF file has no checksum: `softlook import` reports its digest, and rejects a file with another one."""

import hashlib
from pathlib import Path

import pytest
import torch

from softlook.base.errors import WeightsError
from softlook.cli.commands.import_weights import import_weights
from softlook.weights import load
from tests.weights.formats.test_gguf import IDS, small, write_model


def test_the_digest_of_a_gguf_file_is_reported_and_checked(tmp_path: Path) -> None:
    model = small()
    path = write_model(model, tmp_path / "m.gguf")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    result = import_weights(path, tmp_path / "one", sha256=digest.upper())
    assert result.details["sha256"] == digest
    torch.testing.assert_close(load(tmp_path / "one")(IDS), model(IDS), rtol=0, atol=1e-6)
    flipped = bytearray(path.read_bytes())
    flipped[-5] ^= 1
    path.write_bytes(flipped)
    with pytest.raises(WeightsError, match=f"expected {digest}"):
        import_weights(path, tmp_path / "two", sha256=digest)
    assert not (tmp_path / "two").exists()


def test_a_folder_has_no_single_digest(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="--sha256 is for GGUF files"):
        import_weights(tmp_path, tmp_path / "out", sha256="0" * 64)
