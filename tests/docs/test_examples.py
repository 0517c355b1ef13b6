"""The examples of the README, of the pages under docs/ and of all docstrings run."""

import doctest
import importlib
import inspect
import pkgutil
import re
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

import softlook

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.relative_to(ROOT) for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")) if path.exists())
MODULES = ["softlook", *sorted(found.name for found in pkgutil.walk_packages(softlook.__path__, "softlook."))]
PUBLIC = [name for name in softlook.__all__ if inspect.isroutine(o := getattr(softlook, name)) or inspect.isclass(o)]

FENCE = re.compile(
    r"^(?P<indent> *)```python(?P<rest>[^\n]*)\n(?P<code>.*?)^(?P=indent)``` *$", re.MULTILINE | re.DOTALL
)
PROMPT = re.compile(r"^\s*>>> ", re.MULTILINE)


class Finder(doctest.DocTestFinder):
    """A finder that also finds the examples of functions wrapped by the shape checks."""

    def _from_module(self, module: ModuleType, object: object) -> bool:
        # a property has no __module__, but is found only in its own module
        return getattr(object, "__module__", module.__name__) == module.__name__


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_python_block_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # examples may write files
    text = (ROOT / page).read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "__main__"}
    for block in FENCE.finditer(text):
        line = text.count("\n", 0, block.start("code"))
        assert not block["rest"].strip(), f"{page}:{line}: every block runs, so it must be plain ```python"
        code = "\n" * line + textwrap.dedent(block["code"])  # tracebacks then have the line numbers of the page
        exec(compile(code, str(ROOT / page), "exec"), names)


@pytest.mark.parametrize("name", MODULES)
def test_every_docstring_example_runs_and_prints_its_output(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    for example in Finder().find(module, name):
        runner.run(example, out=report.append)
    assert not runner.failures, "".join(report)
    prompts = PROMPT.findall(Path(str(module.__file__)).read_text(encoding="utf-8"))
    assert runner.tries == len(prompts), f"{name} has {len(prompts)} examples, and {runner.tries} were run"


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example(name: str) -> None:
    text = inspect.getdoc(getattr(softlook, name)) or ""
    assert ">>> " in text, f"softlook.{name} has no example in its docstring"
