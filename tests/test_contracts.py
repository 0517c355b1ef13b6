"""The import contracts in pyproject.toml cover every package that exists."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_contracts_name_existing_packages_without_a_wildcard() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = {path.parent.name for path in (ROOT / "src/softlook").glob("*/__init__.py")}
    for contract in config["tool"]["importlinter"]["contracts"]:
        modules = {*contract.get("source_modules", ()), *contract.get("forbidden_modules", ())}
        wildcards = sorted(name for name in packages if f"softlook.{name}.*" in modules)
        assert not wildcards, (
            f"{contract['name']!r} skips the __init__ of {wildcards}: write softlook.name, not softlook.name.*"
        )
