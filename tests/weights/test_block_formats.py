"""Dequantization of every block format: the numbers of the gguf package, bit for bit."""

import numpy as np
import pytest
import torch

from softlook.weights.block_formats import BLOCK_FORMATS, dequantize_rows

gguf = pytest.importorskip("gguf")


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_dequantized_numbers_are_those_of_the_gguf_package(name: str) -> None:
    found, kind = BLOCK_FORMATS[name], gguf.GGMLQuantizationType[name]
    assert gguf.GGML_QUANT_SIZES[kind] == (found.size, found.num_bytes)
    rows = np.random.default_rng(0).integers(0, 256, (64, 3 * found.num_bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):  # random bytes include infinite scales
        expected = gguf.dequantize(rows, kind)
    np.testing.assert_array_equal(dequantize_rows(torch.tensor(rows), name).numpy(), expected)
