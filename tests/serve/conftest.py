"""Serving is an extra; where its packages are missing, the tests that want them say so and are skipped."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

WANTED = ("fastapi", "granian", "prometheus_client", "httpx", "openai", "schemathesis")
MISSING = [name for name in WANTED if find_spec(name) is None]
WITHOUT = {
    "test_admission.py",
    "test_engine.py",
    "test_recovery.py",
    "test_loaded_model.py",
    "test_kv_cache.py",
    "test_chat_template.py",
}
"""Files that do without them."""


class Skipped(pytest.Module):
    """A file whose imports would fail."""

    def collect(self) -> Any:
        pytest.skip(f"serving wants {', '.join(MISSING)}: pip install softlook[serve]", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> pytest.Module | None:
    skipped = MISSING and module_path.name not in WITHOUT
    return Skipped.from_parent(parent, path=module_path) if skipped else None


@pytest.fixture(scope="module")
def registry() -> Iterator[Any]:
    """One model for each page, with a worker each."""
    from softlook.serve.registry import ModelRegistry  # noqa: PLC0415  (the shape checks must see softlook's modules first)
    from tests.serve.tiny_models import everything  # noqa: PLC0415

    made = ModelRegistry(everything())
    yield made
    made.close()


@pytest.fixture(scope="module")
def client(registry: Any) -> Iterator[Any]:
    """Asks the server's pages, without a socket."""
    from starlette.testclient import TestClient  # noqa: PLC0415

    from softlook.serve.app import create_app  # noqa: PLC0415

    yield TestClient(create_app(registry), base_url="http://localhost", raise_server_exceptions=False)
