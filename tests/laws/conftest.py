"""Invariants are tested on small tensors, and must hold for the kernels that run for large ones."""

import pytest

from softlook.ops.backends import sdpa_cpu


@pytest.fixture(autouse=True)
def fused_kernel_for_small_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdpa_cpu, "MATH_MAX_QUERIES", 0)
    monkeypatch.setattr(sdpa_cpu, "MATH_MAX_LENGTH_WITH_GRAD", 0)
