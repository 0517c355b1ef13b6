"""Packages that import their names on first use list them, and each listed name can be imported."""

import importlib
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
LAZY_PACKAGES = sorted(
    ".".join(path.parent.relative_to(SOURCE).parts)
    for path in (SOURCE / "softlook").rglob("__init__.py")
    if "def __getattr__(" in path.read_text(encoding="utf-8")
)


def names_imported_for_type_checkers(package: str) -> set[str]:
    """The names under `if TYPE_CHECKING:`, which every lazy package lists for editors."""
    content = (SOURCE / Path(*package.split(".")) / "__init__.py").read_text(encoding="utf-8")
    return set(re.findall(r"^    from [\w.]+ import \w+ as (\w+)$", content, re.MULTILINE))


def test_the_lazy_packages_are_found() -> None:
    assert {"softlook", "softlook.recipes", "softlook.weights"} <= set(LAZY_PACKAGES)


@pytest.mark.parametrize("package", LAZY_PACKAGES)
def test_a_lazy_package_lists_all_of_its_public_names(package: str) -> None:
    names = names_imported_for_type_checkers(package)
    assert names and names <= set(dir(importlib.import_module(package)))


@pytest.mark.parametrize("package", LAZY_PACKAGES)
def test_each_public_name_of_a_lazy_package_can_be_imported(package: str) -> None:
    module = importlib.import_module(package)
    for name in names_imported_for_type_checkers(package):
        try:
            assert getattr(module, name) is not None
        except ImportError as error:  # an extra is not installed
            assert "pip install" in str(error) or isinstance(error, ModuleNotFoundError)


@pytest.mark.parametrize("package", LAZY_PACKAGES)
def test_a_name_that_a_lazy_package_lacks_is_an_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'no_such_name'"):
        _ = importlib.import_module(package).no_such_name
