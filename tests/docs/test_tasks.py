"""The guides by task: every command is one that exists, and what is cheap runs from the first block to the last."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from softlook.cli.main import app, main

FOLDER = Path(__file__).parents[2] / "docs/guide/tasks"
PAGES = sorted(path.name for path in FOLDER.glob("*.md") if path.name != "index.md")
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHORT = {
    "table": ("--training.epochs", "1", "--no-baseline", "--ensemble", "single"),
    "images": ("--max-steps", "2", "--no-baseline"),
}
"""Options that make training short; `--max-steps 2 --no-baseline` for other tasks."""
NOT_RUN = ("check", "serve")
CHEAP = ("heads.md", "images.md", "write.md")


def commands(block: str) -> list[list[str]]:
    """The arguments of the softlook commands of a block."""
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    return [line[1:] for line in lines if line[:1] == ["softlook"]]


def blocks(page: str) -> list[tuple[str, str]]:
    return BLOCK.findall((FOLDER / page).read_text(encoding="utf-8"))


def shortened(arguments: list[str]) -> list[str]:
    """The same command with a few training steps and no time limit, which would measure the machine."""
    if arguments[0] != "train":
        return arguments
    if "--max-minutes" in arguments:
        at = arguments.index("--max-minutes")
        arguments = arguments[:at] + arguments[at + 2 :]
    small = [] if arguments[1] == "table" else ["--model.dim", "16", "--model.depth", "1", "--model.heads", "2"]
    small = [] if "--init-from" in arguments else small
    return [*arguments, *small, *SHORT.get(arguments[1], ("--max-steps", "2", "--no-baseline"))]


def test_every_page_is_in_the_list() -> None:
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert all(f"]({page})" in index and f"\n{page.removesuffix('.md')}\n" in index for page in PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_option_exists(page: str) -> None:
    found = [one for kind, block in blocks(page) if kind == "bash" for one in commands(block)]
    assert found
    for arguments in found:
        app.parse_args(arguments, exit_on_error=False, print_error=False)


@pytest.mark.parametrize(
    "page", [page if page in CHEAP else pytest.param(page, marks=pytest.mark.slow) for page in PAGES]
)
def test_a_page_runs_from_the_first_block_to_the_last(page: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for kind, block in blocks(page):
        if kind == "python":
            exec(compile(block, str(FOLDER / page), "exec"), names)
            continue
        for arguments in commands(block):
            if arguments[0] in NOT_RUN or "--devices" in arguments:
                continue
            with pytest.raises(SystemExit) as exited:
                main(tuple(shortened(arguments)))
            assert not exited.value.code, f"softlook {shlex.join(arguments)} ended with {exited.value.code}"
