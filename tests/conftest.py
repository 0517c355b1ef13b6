"""Setup of all tests: a fixed seed, one thread per worker, and the hypothesis profiles.

This module does not import softlook: the jaxtyping import hook that pytest installs must come first.
"""

import os
import sys
from collections.abc import Iterator

import hypothesis
import jaxtyping
import pytest
import torch


class TorchRandom:
    """torch's default generator with the interface that hypothesis seeds, so that failing examples are reproducible."""

    seed = staticmethod(torch.manual_seed)
    getstate = staticmethod(torch.get_rng_state)
    setstate = staticmethod(torch.set_rng_state)


TORCH_RANDOM = TorchRandom()  # hypothesis only keeps a weak reference
hypothesis.register_random(TORCH_RANDOM)

SUPPRESSED = [hypothesis.HealthCheck.too_slow]  # shape checks and loaded machines are slow
hypothesis.settings.register_profile(
    "ci", max_examples=100, deadline=None, derandomize=True, suppress_health_check=SUPPRESSED
)
hypothesis.settings.register_profile("thorough", max_examples=5000, deadline=None, suppress_health_check=SUPPRESSED)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # the workers share the cores


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _clear_kernel_cache() -> None:
    """Tests replace the rules that select kernels: each begins with an empty kernel cache."""
    if kernel_cache := sys.modules.get("softlook.ops.backends.kernel_cache"):
        kernel_cache.clear_kernel_cache()


@pytest.fixture
def no_shape_checks() -> Iterator[None]:
    """Disable the shape checks: they raise before softlook's own errors, and torch.compile cannot trace them."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
