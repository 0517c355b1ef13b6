"""Laws are tried on small tensors, and must hold for the kernels that large ones meet."""

import pytest

from softlook.ops import cpu


@pytest.fixture(autouse=True)
def the_fused_kernel_answers_small_questions_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "FEW", 0)
    monkeypatch.setattr(cpu, "SHORT", 0)
