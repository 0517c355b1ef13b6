"""Choice of device and dtype."""

import pytest
import torch

from softlook.base.device import choose_device, local_rank
from softlook.base.errors import ConfigError
from softlook.train.distributed import is_rank_zero
from softlook.train.mixed_precision import autocast, choose_dtype


def test_auto_prefers_cuda_then_mps_then_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for cuda, mps, expected in ((True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda cuda=cuda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda mps=mps: mps)
        assert choose_device().type == expected


def test_each_local_rank_gets_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert choose_device() == torch.device("cuda:2")


@pytest.mark.parametrize(("rank", "local"), [(0, 0), (5, 1)])
def test_rank_zero_is_known_from_the_environment(rank: int, local: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_rank_zero()
    for name, value in (("WORLD_SIZE", 8), ("RANK", rank), ("LOCAL_RANK", local)):
        monkeypatch.setenv(name, str(value))
    assert is_rank_zero() == (rank == 0)
    assert local_rank() == local


@pytest.mark.parametrize("name", ["tpu", "xla:0", "cuda:99"])
def test_an_unavailable_device_raises(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"device '{name}' is not available: .*Leave it out, or use cpu"):
        choose_device(name)


def test_an_unknown_device_name_lists_known_ones() -> None:
    with pytest.raises(ConfigError, match="device 'gpu' is not available: expected cpu, cuda, cuda:1 or mps. Leave"):
        choose_device("gpu")


def test_auto_precision_is_bfloat16_on_gpus() -> None:
    assert choose_dtype("auto", torch.device("cuda")) == torch.bfloat16
    assert choose_dtype("auto", torch.device("cpu")) == torch.float32
    assert choose_dtype("float16", torch.device("cpu")) == torch.float16


def test_autocast_computes_in_the_chosen_dtype() -> None:
    cpu, matrix = torch.device("cpu"), torch.ones(2, 2)
    with autocast(torch.bfloat16, cpu):
        assert (matrix @ matrix).dtype == torch.bfloat16
    with autocast(torch.float32, cpu):
        assert (matrix @ matrix).dtype == torch.float32
