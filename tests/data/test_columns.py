"""Columns are found by name, position or content, and the note says by which."""

from pathlib import Path

import pytest

from softlook.base.errors import DataError
from softlook.data.columns import (
    ColumnRoles,
    FoundBy,
    TableSample,
    infer_labeled_columns,
    infer_pair_columns,
    infer_text_column,
    resolve_column,
)
from softlook.data.records import Origin, Record

PATH = Path("a.csv")


def table(**columns: list[object]) -> TableSample:
    """A table from its columns."""
    names = tuple(columns)
    rows = zip(*columns.values(), strict=True)
    sample = [Record(dict(zip(names, row, strict=True)), Origin(PATH, n)) for n, row in enumerate(rows, 1)]
    return TableSample(PATH, names, sample)


def header_only(*names: str) -> TableSample:
    return TableSample(PATH, names)


SENTENCES: list[object] = [f"a sentence number {n}, long enough" for n in range(40)]
OTHERS: list[object] = [f"ein Satz Nummer {n}" for n in range(40)]
CATEGORIES: list[object] = ["good", "bad"] * 20
NUMBERS: list[object] = list(range(1000, 1040))


@pytest.mark.parametrize(
    ("names", "source", "target"),
    [
        (("source", "target"), "source", "target"),
        (("tgt", "src"), "src", "tgt"),
        (("Source", "Target", "id"), "Source", "Target"),
        (("id", "en", "de"), "en", "de"),
        (("de_DE", "en_GB"), "de_DE", "en_GB"),
        (("translation.fr", "translation.en"), "translation.fr", "translation.en"),
        (("english", "german", "score"), "english", "german"),
        (("input", "output"), "input", "output"),
    ],
)
def test_pair_columns_are_found_by_name(names: tuple[str, ...], source: str, target: str) -> None:
    found = infer_pair_columns(header_only(*names))
    assert found.roles == {"source": source, "target": target}
    assert ", by name" in str(found)


def test_pair_columns_are_found_by_position() -> None:
    found = infer_pair_columns(table(one=NUMBERS, two=SENTENCES, three=OTHERS, four=OTHERS))
    assert str(found) == "source is 'two' and target is 'three', by position; unused: 'one', 'four'"


def test_requested_columns_are_used_and_the_rest_inferred() -> None:
    found = infer_pair_columns(table(a=SENTENCES, b=OTHERS), source="b")
    assert found.roles == {"source": "b", "target": "a"}
    assert str(found) == "source is 'b' (as requested) and target is 'a' (by position)"
    assert "as requested" in str(infer_pair_columns(header_only("x", "y"), source="y", target="x"))


def test_text_is_found_by_name_or_length() -> None:
    assert infer_text_column(header_only("url", "Content", "title"))["text"] == "Content"
    found = infer_text_column(table(a=CATEGORIES, b=SENTENCES, c=NUMBERS))
    assert str(found) == "text is 'b', longest texts; unused: 'a', 'c'"


@pytest.mark.parametrize(
    ("names", "roles"),
    [
        (("review", "stars"), {"text": "review", "label": "stars"}),
        (("label", "sentence"), {"text": "sentence", "label": "label"}),
        (("sentence1", "sentence2", "label"), {"text": "sentence1", "text pair": "sentence2", "label": "label"}),
        (
            ("premise", "hypothesis", "gold_label"),
            {"text": "premise", "text pair": "hypothesis", "label": "gold_label"},
        ),
        (("Class_Index", "Title", "Description"), {"text": "Description", "label": "Class_Index"}),
        (("text", "target"), {"text": "text", "label": "target"}),
    ],
)
def test_labeled_columns_are_found_by_name(names: tuple[str, ...], roles: dict[str, str]) -> None:
    assert infer_labeled_columns(header_only(*names)).roles == roles


def test_a_label_column_has_few_values() -> None:
    found = infer_labeled_columns(table(key=NUMBERS, a=SENTENCES, b=CATEGORIES))
    assert found.roles == {"text": "a", "label": "b"}
    assert "few values" in str(found)


def test_a_column_named_text_is_not_a_label() -> None:
    assert infer_labeled_columns(table(text=CATEGORIES, kind=list(map(str, CATEGORIES[::-1])))).roles == {
        "text": "text",
        "label": "kind",
    }


def test_numbered_columns_are_a_pair() -> None:
    strings = table(Quality=[0, 1] * 20, **{"#1 ID": NUMBERS, "#1 String": SENTENCES, "#2 String": SENTENCES})
    assert infer_labeled_columns(strings).roles == {"text": "#1 String", "text pair": "#2 String", "label": "Quality"}


@pytest.mark.parametrize("name", ["stars", "STARS", "2"])
def test_columns_are_resolved_ignoring_case_or_by_number(name: str) -> None:
    assert resolve_column(header_only("review", "Stars"), name) == "Stars"


def test_an_unknown_column_suggests_a_similar_one() -> None:
    with pytest.raises(DataError, match="there is no column 'reveiw'") as caught:
        infer_labeled_columns(table(review=SENTENCES, stars=CATEGORIES), text="reveiw")
    assert "did you mean 'review'?" in str(caught.value)
    assert "'stars' (such as 'good')" in str(caught.value)


def test_unsupported_columns_are_listed_with_their_type() -> None:
    with pytest.raises(DataError, match=r"image \(binary\), neither text"):
        resolve_column(TableSample(PATH, ("a",), unsupported=("image (binary)",)), "image")


def test_one_column_cannot_have_two_roles() -> None:
    with pytest.raises(DataError, match="two roles"):
        infer_pair_columns(header_only("a", "b"), source="a", target="1")


@pytest.mark.parametrize(
    ("infer", "sample", "message"),
    [
        (infer_pair_columns, table(a=NUMBERS, b=NUMBERS), "two columns of text"),
        (infer_pair_columns, table(a=SENTENCES), "put a tab"),
        (infer_text_column, table(a=NUMBERS, b=NUMBERS), "a column of text"),
        (infer_labeled_columns, table(a=SENTENCES, b=OTHERS), "a column of labels"),
        (infer_labeled_columns, table(label=CATEGORIES, b=NUMBERS), "a column of text"),
        (infer_text_column, header_only(), "columns: none"),
    ],
)
def test_columns_that_cannot_be_inferred_raise_and_list_columns(infer, sample: TableSample, message: str) -> None:
    with pytest.raises(DataError, match=message):
        infer(sample)


def test_long_column_lists_are_truncated() -> None:
    many = header_only(*(f"column{n}" for n in range(100)))
    with pytest.raises(DataError, match="and 80 more") as caught:
        resolve_column(many, "nothing like it")
    assert len(str(caught.value)) < 1000
    assert str(ColumnRoles({"text": "a"}, {"text": FoundBy.NAME}, many.columns)).endswith("...")
