"""The server is an optional extra: tests that need its packages are skipped where they are missing."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

MISSING = [name for name in ("fastapi", "granian", "httpx") if find_spec(name) is None]
INDEPENDENT = {"test_frames.py", "test_maps.py"}
"""Files that do not need them."""


class Skipped(pytest.Module):
    """A file whose imports would fail."""

    def collect(self) -> Any:
        pytest.skip(f"the studio requires {', '.join(MISSING)}: pip install softlook[serve]", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> pytest.Module | None:
    skipped = MISSING and module_path.name not in INDEPENDENT
    return Skipped.from_parent(parent, path=module_path) if skipped else None
