"""Fixtures for the tests of attention."""

from collections.abc import Iterator

import jaxtyping
import pytest


@pytest.fixture
def no_shape_checks() -> Iterator[None]:
    """Disable the shape checks: they raise before softlook's own errors, and torch.compile cannot trace them."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
