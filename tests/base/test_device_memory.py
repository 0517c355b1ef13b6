"""Out-of-memory errors are recognized, and models larger than the memory raise an error before they are built."""

import pytest
import torch

from softlook.base.device import check_trainable, total_memory
from softlook.base.errors import ConfigError, is_out_of_memory
from softlook.cli.console import FAILED, INTERNAL, error_message, exit_code


def test_a_failed_allocation_is_not_an_internal_error() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)
    assert is_out_of_memory(caught.value) and exit_code(caught.value) is FAILED
    assert "Choose a smaller model" in error_message(caught.value)
    assert exit_code(MemoryError()) is FAILED and exit_code(torch.OutOfMemoryError("x")) is FAILED
    assert exit_code(RuntimeError("something else")) is INTERNAL


def test_a_model_larger_than_the_memory_raises_an_error() -> None:
    cpu = torch.device("cpu")
    check_trainable(total_memory(cpu) // 32, cpu)
    with pytest.raises(ConfigError, match=r"parameters takes at least .* GB, and cpu has"):
        check_trainable(total_memory(cpu) // 8, cpu)
