"""The trees in the documentation are the tree on the disk, and their glosses are short."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TREE = re.compile(r"^```text\nsrc/softlook/\n(?P<tree>.*?)^```$", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"^(?P<indent> +)(?P<name>[\w.]+/?)(?: +(?P<gloss>.+))?$")


def written_tree() -> dict[str, str]:
    """Path -> gloss, for every file that docs/tree.md lists."""
    found = TREE.search((ROOT / "docs/tree.md").read_text(encoding="utf-8"))
    assert found, "docs/tree.md shows no tree of src/softlook"
    glosses: dict[str, str] = {}
    folders: list[str] = []
    for line in found["tree"].splitlines():
        part = LINE.match(line)
        assert part, f"this line of the tree cannot be read: {line!r}"
        depth = len(part["indent"]) // 2 - 1
        folders = folders[:depth]
        if part["name"].endswith("/"):
            folders.append(part["name"])
        else:
            glosses["".join(folders) + part["name"]] = part["gloss"] or ""
    return glosses


def test_the_tree_in_the_documentation_is_true() -> None:
    source = ROOT / "src/softlook"
    files = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    written = written_tree().keys()
    assert files - written == set(), "add these files to docs/tree.md, with a gloss"
    assert written - files == set(), "these files are gone: take them out of docs/tree.md"


def test_every_file_of_the_tree_has_a_gloss_of_a_few_words() -> None:
    for path, gloss in written_tree().items():
        assert 2 <= len(gloss.split()) <= 6, f"{path}: a gloss has about five words, {gloss!r} came"


def test_the_readme_names_every_package() -> None:
    found = TREE.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found, "the README shows no tree of src/softlook"
    named = {line.split()[0].rstrip("/") for line in found["tree"].splitlines()}
    assert named == {path.parent.name for path in (ROOT / "src/softlook").glob("*/__init__.py")}
