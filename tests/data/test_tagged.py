"""CoNLL files and JSON objects become sentences of tokens with tags; a bad line costs its sentence only."""

import json
from pathlib import Path

import pytest

from softlook.base.errors import DataError
from softlook.data import TaggedText, make_validation_split, read_tagged


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def rows(path: Path, **options: int) -> list[list[tuple[str, str]]]:
    return [list(zip(one.tokens, one.tags, strict=True)) for one in read_tagged(path, **options)]


ADA = [("Ada", "B-PER"), ("sings", "O")]


@pytest.mark.parametrize(
    "text",
    [
        "Ada B-PER\nsings O\n\nAda B-PER\nsings O\n",
        "\n\nAda\tB-PER\nsings\tO\n\n\n\nAda\tB-PER\nsings\tO",
        "-DOCSTART- -X- -X- O\n\nAda NNP B-NP B-PER\nsings VB O O\n\n-DOCSTART- O\n\nAda a b B-PER\nsings a b O\n",
        "\ufeffAda B-PER\r\nsings O\r\n\r\nAda B-PER\r\nsings O\r\n",
        "# sent_id = 1\nAda B-PER\nsings O\n \n# sent_id = 2\nAda B-PER\nsings O\n",
    ],
)
def test_sentences_end_at_blank_lines(text: str, tmp_path: Path) -> None:
    assert rows(write(tmp_path / "a.conll", text)) == [ADA, ADA]


def test_a_number_sign_may_be_a_token(tmp_path: Path) -> None:
    assert rows(write(tmp_path / "a.conll", "# O\nAda B-PER\n")) == [[("#", "O"), ("Ada", "B-PER")]]


def test_a_token_may_have_spaces_if_columns_are_separated_by_tabs(tmp_path: Path) -> None:
    assert rows(write(tmp_path / "a.tsv", "New York\tB-LOC\n")) == [[("New York", "B-LOC")]]


def test_sentences_have_the_line_on_which_they_begin(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", "\nAda B-PER\n\n\nBob B-PER\n")
    assert [str(example.origin) for example in read_tagged(path)] == [f"{path}:2", f"{path}:5"]


def test_a_bad_line_costs_its_sentence(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", b"Ada B-PER\nsings O\n\nBob B-PER\nand\nEva\xff B-PER\n\nAda B-PER\nsings O\n")
    with pytest.raises(DataError, match=r"a\.conll:5: expected a token and a tag, got 1 column"):
        rows(path)
    examples = read_tagged(path, max_bad_rows=1)
    assert len(list(examples)) == 2 and examples.skipped["unreadable"] == 1


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
@pytest.mark.parametrize("keys", [("tokens", "tags"), ("words", "ner_tags"), ("tokens", "labels")])
def test_json_objects_have_tokens_and_tags(name: str, keys: tuple[str, str], tmp_path: Path) -> None:
    content = {keys[0]: ["Ada", "sings"], keys[1]: ["B-PER", "O"]}
    text = json.dumps([content]) if name == "a.json" else json.dumps(content) + "\n"
    assert rows(write(tmp_path / name, text)) == [ADA]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"tokens": ["Ada"], "tags": ["O", "O"]}, "got 1 tokens and 2 tags"),
        ({"tokens": ["Ada"], "tags": [3]}, "not their numbers"),
        ({"tokens": "Ada", "tags": ["O"]}, "expected a list of texts"),
        ({"text": "Ada", "tags": ["O"]}, "expected a list under 'tokens'; got the keys 'text', 'tags'"),
    ],
)
def test_an_object_that_does_not_fit_raises_with_its_line(content: dict, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"tokens": ["a"], "tags": ["O"]}\n' + json.dumps(content))
    with pytest.raises(DataError, match=r"a\.jsonl:2: ") as caught:
        rows(path)
    assert message in str(caught.value)
    assert len(rows(path, max_bad_rows=1)) == 1


@pytest.mark.parametrize(("name", "text"), [("a.txt", "plain\nwords\n"), ("a.csv", "token,tag\nAda,B-PER\n")])
def test_a_file_of_another_kind_raises_with_the_format(name: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="write a token and its tag on each line"):
        read_tagged(write(tmp_path / name, text))


def test_tagged_texts_are_split_by_their_tokens() -> None:
    examples = [TaggedText(("Ada", str(number % 50)), ("O", "O")) for number in range(200)]
    split = make_validation_split(examples)
    assert split.held_out == 10
    assert not {example.key for example in split.train(examples)} & {e.key for e in split.validation(examples)}
