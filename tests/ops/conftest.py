"""What the tests of the operation share."""

from collections.abc import Iterator

import jaxtyping
import pytest


@pytest.fixture
def no_shape_checks() -> Iterator[None]:
    """Switch off the shape checks: they speak before softlook does, and no compiler sees through them."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
