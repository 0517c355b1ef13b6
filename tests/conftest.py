"""What every test can count on: a fixed seed, one thread per worker, and a profile for hypothesis.

Nothing here imports softlook: the shape checks that pytest switches on must see its modules before anyone else does.
"""

import os

import hypothesis
import pytest
import torch


class TorchRandom:
    """Torch's generator in the form hypothesis knows, so that a failing example fails again when it is replayed."""

    seed = staticmethod(torch.manual_seed)
    getstate = staticmethod(torch.get_rng_state)
    setstate = staticmethod(torch.set_rng_state)


TORCH_RANDOM = TorchRandom()  # hypothesis holds it weakly, so somebody else has to hold it too
hypothesis.register_random(TORCH_RANDOM)

SLOW_IS_FINE = [hypothesis.HealthCheck.too_slow]  # shape checks and busy machines are slow; laws are worth the wait
hypothesis.settings.register_profile(
    "ci", max_examples=200, deadline=None, derandomize=True, suppress_health_check=SLOW_IS_FINE
)
hypothesis.settings.register_profile("hunt", max_examples=5000, deadline=None, suppress_health_check=SLOW_IS_FINE)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # the workers share the cores among themselves


@pytest.fixture(autouse=True)
def _the_same_seed_for_every_test() -> None:
    torch.manual_seed(0)
