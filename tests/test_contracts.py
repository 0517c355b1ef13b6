"""The import rules in pyproject.toml keep up with the packages that exist."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_a_package_that_exists_is_no_longer_written_as_one_to_come() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = {path.parent.name for path in (ROOT / "src/softlook").glob("*/__init__.py")}
    for contract in config["tool"]["importlinter"]["contracts"]:
        named = {*contract.get("source_modules", ()), *contract.get("forbidden_modules", ())}
        late = sorted(name for name in packages if f"softlook.{name}.*" in named)
        assert not late, f"{contract['name']!r} skips the __init__ of {late}: write softlook.name, not softlook.name.*"
