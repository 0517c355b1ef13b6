"""Serving is an optional extra: tests that need its packages are skipped where they are missing."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

REQUIRED = ("fastapi", "granian", "prometheus_client", "httpx", "openai", "schemathesis")
MISSING = [name for name in REQUIRED if find_spec(name) is None]
INDEPENDENT = {
    "test_admission.py",
    "test_engine.py",
    "test_recovery.py",
    "test_loaded_model.py",
    "test_kv_cache.py",
}
"""Files that do not need them."""


class Skipped(pytest.Module):
    """A file whose imports would fail."""

    def collect(self) -> Any:
        pytest.skip(f"serving requires {', '.join(MISSING)}: pip install softlook[serve]", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> pytest.Module | None:
    skipped = MISSING and module_path.name not in INDEPENDENT
    return Skipped.from_parent(parent, path=module_path) if skipped else None


@pytest.fixture(scope="module")
def registry() -> Iterator[Any]:
    """One model for each route, with an engine each."""
    from softlook.serve.registry import ModelRegistry  # noqa: PLC0415  (jaxtyping's import hook must be installed first)
    from tests.serve.tiny_models import everything  # noqa: PLC0415

    registry = ModelRegistry(everything())
    yield registry
    registry.close()


@pytest.fixture(scope="module")
def client(registry: Any) -> Iterator[Any]:
    """A client of the server, without a socket."""
    from starlette.testclient import TestClient  # noqa: PLC0415

    from softlook.serve.app import create_app  # noqa: PLC0415

    yield TestClient(create_app(registry), base_url="http://localhost", raise_server_exceptions=False)
