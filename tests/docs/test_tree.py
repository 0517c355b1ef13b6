"""docs/tree.md lists the files of the package, each with a short summary."""

from tests.docs.tree import PAGE, SOURCE, page, summary


def test_the_tree_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tests.docs.tree`"


def test_every_module_has_a_short_summary() -> None:
    summaries = {path.relative_to(SOURCE).as_posix(): summary(path) for path in SOURCE.rglob("*.py")}
    assert {path for path, text in summaries.items() if not text} == set(), "write a docstring"
    assert {path: text for path, text in summaries.items() if len(text) > 110} == {}, "shorten the first line"
