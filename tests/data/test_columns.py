"""Columns are found by name, by place or by what they hold; and it is said how."""

from pathlib import Path

import pytest

from softlook.base.errors import DataError
from softlook.data.columns import Columns, Table, labelled_columns, named, pair_columns, text_column
from softlook.data.records import Origin, Record

PATH = Path("a.csv")


def table(**columns: list[object]) -> Table:
    """A table from its columns."""
    names = tuple(columns)
    rows = zip(*columns.values(), strict=True)
    sample = [Record(dict(zip(names, row, strict=True)), Origin(PATH, n)) for n, row in enumerate(rows, 1)]
    return Table(PATH, names, sample)


def headed(*names: str) -> Table:
    return Table(PATH, names)


SENTENCES: list[object] = [f"a sentence number {n}, long enough" for n in range(40)]
OTHERS: list[object] = [f"ein Satz Nummer {n}" for n in range(40)]
FEW: list[object] = ["good", "bad"] * 20
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
def test_a_pair_is_found_by_its_names(names: tuple[str, ...], source: str, target: str) -> None:
    found = pair_columns(headed(*names))
    assert found.roles == {"source": source, "target": target}
    assert ", by name" in str(found)


def test_without_names_the_first_two_columns_of_text_are_the_pair() -> None:
    found = pair_columns(table(one=NUMBERS, two=SENTENCES, three=OTHERS, four=OTHERS))
    assert str(found) == "source is 'two' and target is 'three', by place; left out: 'one', 'four'"


def test_what_is_asked_for_is_taken_and_the_rest_is_guessed() -> None:
    found = pair_columns(table(a=SENTENCES, b=OTHERS), source="b")
    assert found.roles == {"source": "b", "target": "a"}
    assert str(found) == "source is 'b' (as asked for) and target is 'a' (by place)"
    assert "as asked for" in str(pair_columns(headed("x", "y"), source="y", target="x"))


def test_text_is_found_by_name_or_else_by_length() -> None:
    assert text_column(headed("url", "Content", "title"))["text"] == "Content"
    found = text_column(table(a=FEW, b=SENTENCES, c=NUMBERS))
    assert str(found) == "text is 'b', as it holds the longest texts; left out: 'a', 'c'"


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
def test_labels_and_texts_are_found_by_their_names(names: tuple[str, ...], roles: dict[str, str]) -> None:
    assert labelled_columns(headed(*names)).roles == roles


def test_a_label_is_what_has_few_values() -> None:
    found = labelled_columns(table(key=NUMBERS, a=SENTENCES, b=FEW))
    assert found.roles == {"text": "a", "label": "b"}
    assert "as it has few values" in str(found)


def test_texts_that_repeat_are_not_taken_for_labels_when_their_name_says_text() -> None:
    assert labelled_columns(table(text=FEW, kind=list(map(str, FEW[::-1])))).roles == {"text": "text", "label": "kind"}


def test_names_like_text_1_and_text_2_are_a_pair() -> None:
    strings = table(Quality=[0, 1] * 20, **{"#1 ID": NUMBERS, "#1 String": SENTENCES, "#2 String": SENTENCES})
    assert labelled_columns(strings).roles == {"text": "#1 String", "text pair": "#2 String", "label": "Quality"}


@pytest.mark.parametrize("name", ["stars", "STARS", "2"])
def test_a_column_can_be_named_in_any_case_or_by_its_number(name: str) -> None:
    assert named(headed("review", "Stars"), name) == "Stars"


def test_a_wrong_name_is_an_error_with_the_right_one() -> None:
    with pytest.raises(DataError, match="there is no column 'reveiw'") as caught:
        labelled_columns(table(review=SENTENCES, stars=FEW), text="reveiw")
    assert "did you mean 'review'?" in str(caught.value)
    assert "'stars' (such as 'good')" in str(caught.value)


def test_columns_that_cannot_be_used_are_told_with_their_type() -> None:
    with pytest.raises(DataError, match=r"image \(binary\), which hold neither"):
        named(Table(PATH, ("a",), others=("image (binary)",)), "image")


def test_one_column_cannot_play_two_parts() -> None:
    with pytest.raises(DataError, match="two parts"):
        pair_columns(headed("a", "b"), source="a", target="1")


@pytest.mark.parametrize(
    ("guess", "given", "words"),
    [
        (pair_columns, table(a=NUMBERS, b=NUMBERS), "two columns of text"),
        (pair_columns, table(a=SENTENCES), "put a tab"),
        (text_column, table(a=NUMBERS, b=NUMBERS), "a column of text"),
        (labelled_columns, table(a=SENTENCES, b=OTHERS), "a column of labels"),
        (labelled_columns, table(label=FEW, b=NUMBERS), "a column of text"),
        (text_column, headed(), "no columns"),
    ],
)
def test_what_cannot_be_guessed_is_an_error_that_shows_what_there_is(guess, given: Table, words: str) -> None:
    with pytest.raises(DataError, match=words):
        guess(given)


def test_a_long_list_of_columns_is_cut_short() -> None:
    many = headed(*(f"column{n}" for n in range(100)))
    with pytest.raises(DataError, match="and 80 more") as caught:
        named(many, "nothing like it")
    assert len(str(caught.value)) < 1000
    assert str(Columns({"text": "a"}, {"text": "by name"}, many.columns)).endswith("...")
