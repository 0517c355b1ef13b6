"""Laws are tried on small tensors, and must hold for the kernels that large ones meet."""

import pytest

from softlook.ops.backends import sdpa_cpu


@pytest.fixture(autouse=True)
def the_fused_kernel_answers_small_questions_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdpa_cpu, "MATH_MAX_QUERIES", 0)
    monkeypatch.setattr(sdpa_cpu, "MATH_MAX_LENGTH_WITH_GRAD", 0)
