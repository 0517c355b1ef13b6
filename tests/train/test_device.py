"""What to compute on, and with which numbers."""

import pytest
import torch

from softlook.base.errors import ConfigError
from softlook.train.device import choose_device, choose_precision, working_in
from softlook.train.ranks import is_first, local_rank


def test_cuda_comes_before_mps_and_both_before_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for cuda, mps, chosen in ((True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda cuda=cuda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda mps=mps: mps)
        assert choose_device().type == chosen


def test_among_several_processes_each_takes_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert choose_device() == torch.device("cuda:2")


@pytest.mark.parametrize(("rank", "local"), [(0, 0), (5, 1)])
def test_of_several_processes_the_first_one_writes(rank: int, local: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_first()
    for name, value in (("WORLD_SIZE", 8), ("RANK", rank), ("LOCAL_RANK", local)):
        monkeypatch.setenv(name, str(value))
    assert is_first() == (rank == 0)
    assert local_rank() == local


@pytest.mark.parametrize("wanted", ["tpu", "xla:0", "cuda:99"])
def test_a_device_that_is_not_there_is_told(wanted: str) -> None:
    with pytest.raises(ConfigError, match=rf"there is no device '{wanted}' here: .*Leave it out, or try cpu"):
        choose_device(wanted)


def test_a_name_that_is_no_device_is_told_some_that_are() -> None:
    with pytest.raises(ConfigError, match="there is no device 'gpu' here: cpu, cuda, cuda:1 or mps are some. Leave"):
        choose_device("gpu")


def test_half_the_bits_are_for_gpus() -> None:
    assert choose_precision("auto", torch.device("cuda")) == torch.bfloat16
    assert choose_precision("auto", torch.device("cpu")) == torch.float32
    assert choose_precision("float16", torch.device("cpu")) == torch.float16


def test_one_works_in_the_kind_that_was_chosen() -> None:
    cpu, matrix = torch.device("cpu"), torch.ones(2, 2)
    with working_in(torch.bfloat16, cpu):
        assert (matrix @ matrix).dtype == torch.bfloat16
    with working_in(torch.float32, cpu):
        assert (matrix @ matrix).dtype == torch.float32
