"""Tensor and context parallelism give the logits and gradients of one process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from softlook.base.errors import ConfigError, MaskError, ShapeError
from softlook.models import GPT, GPTConfig
from softlook.ops import masks
from softlook.train.distributed.context_parallel import parallelize_context, shard_sequence
from softlook.train.distributed.tensor_parallel import parallelize_tensors

ROOT = Path(__file__).parents[3]


class FakeMesh:
    """A mesh without processes, for what is checked before they communicate."""

    def __init__(self, size: int, rank: int = 0) -> None:
        self._size, self._rank = size, rank

    def size(self) -> int:
        return self._size

    def get_local_rank(self) -> int:
        return self._rank


def test_parallel_models_have_the_logits_and_gradients_of_one_process() -> None:
    command = [sys.executable, "-m", "tests.train.distributed.model_parallel", "4"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env, timeout=300, check=False)
    assert not result.returncode, result.stderr


def test_every_process_gets_a_chunk_from_the_front_and_one_from_the_back() -> None:
    parts = [shard_sequence(torch.arange(8), FakeMesh(2, rank), dim=0).tolist() for rank in range(2)]  # pyright: ignore[reportArgumentType]
    assert parts == [[0, 1, 6, 7], [2, 3, 4, 5]]


def test_a_sequence_that_cannot_be_divided_is_an_error() -> None:
    with pytest.raises(ShapeError, match="a sequence of 6 tokens cannot be cut into 4 equal chunks: pad it"):
        shard_sequence(torch.arange(6), FakeMesh(2), dim=0)  # pyright: ignore[reportArgumentType]


def test_heads_that_cannot_be_divided_are_an_error() -> None:
    model = GPT(GPTConfig(vocab_size=5, context=8, dim=24, depth=1, heads=3))
    with pytest.raises(ConfigError, match="3 heads and 3 key/value heads cannot be divided by 2 processes"):
        parallelize_tensors(model, FakeMesh(2))  # pyright: ignore[reportArgumentType]


def test_context_parallelism_refuses_masks_that_depend_on_absolute_positions() -> None:
    model = GPT(GPTConfig(vocab_size=5, context=8, dim=16, depth=1, heads=2))
    parallelize_context(model, FakeMesh(2))  # pyright: ignore[reportArgumentType]
    with pytest.raises(MaskError, match="expects a causal mask, or a causal window"):
        model(torch.zeros(2, 8, dtype=torch.long), mask=masks.padding([8, 4]))
