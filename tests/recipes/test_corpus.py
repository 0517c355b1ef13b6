"""What is learned from and what is held out never meet."""

from pathlib import Path

from softlook.data import documents, pairs
from softlook.data import sentences as lines
from softlook.recipes.corpus import Part, read_corpus, split_of, stem_of, unbroken
from tests.recipes.small import digits, sentences


def test_nothing_is_on_both_sides_and_nothing_is_lost(tmp_path: Path) -> None:
    corpus = read_corpus(pairs, (digits(tmp_path / "digits.tsv"),), ())
    train, valid = ({pair.source for pair in part} for part in (corpus.train, corpus.valid))
    assert not train & valid
    assert train | valid == {pair.source for pair in pairs(tmp_path / "digits.tsv")}
    assert corpus.counts[1] == len(valid)


def test_few_different_examples_are_not_all_held_out(tmp_path: Path) -> None:
    path = tmp_path / "few.tsv"
    path.write_text("".join(f"word {number % 20}\ta thing\n" for number in range(1000)), encoding="utf-8")
    assert split_of(pairs(path)).held_out == 2


def test_given_held_out_data_are_taken_and_count_for_the_digest(tmp_path: Path) -> None:
    data, valid = digits(tmp_path / "a.tsv"), digits(tmp_path / "b.tsv", 30)
    corpus = read_corpus(pairs, (data,), (valid,))
    assert corpus.counts == (400, 30)
    assert corpus.digest != read_corpus(pairs, (data,), ()).digest


def test_text_is_put_together_again_but_for_what_is_held_out(tmp_path: Path) -> None:
    path = sentences(tmp_path / "words.txt")
    examples = documents(path, piece=50)
    split = split_of(examples)
    parts = Part(examples, split), Part(examples, split, is_held_out=True)
    stretches = [["".join(text.text for text in texts) for texts, _, _ in unbroken(part)] for part in parts]
    whole = path.read_text(encoding="utf-8")
    assert sum(len(text) for side in stretches for text in side) == len(whole)
    assert all(text in whole for side in stretches for text in side)
    assert len(stretches[0]) > 1
    (_, begins, ends), *_ = unbroken(Part(examples))
    assert begins and ends


def test_a_stretch_holds_one_document(tmp_path: Path) -> None:
    found = list(unbroken(Part(lines(sentences(tmp_path / "words.txt")))))
    assert len(found) == 40
    assert all(len({text.document for text in texts}) == 1 and begins and ends for texts, begins, ends in found)


def test_a_file_that_says_little_is_named_with_its_folder() -> None:
    assert stem_of((Path("multi30k/train.en.gz"),)) == "multi30k-train"
    assert stem_of((Path("my reviews.csv"),)) == "my reviews"


def test_of_many_held_out_examples_some_are_looked_at_whatever_their_order(tmp_path: Path) -> None:
    data, valid = digits(tmp_path / "a.tsv"), digits(tmp_path / "b.tsv", 90)
    turned = tmp_path / "c.tsv"
    turned.write_text("\n".join(reversed(valid.read_text(encoding="utf-8").splitlines())) + "\n", encoding="utf-8")
    ones, others = (read_corpus(pairs, (data,), (path,), most=20) for path in (valid, turned))
    assert ones.counts == others.counts == (400, 20)
    assert {pair.source for pair in ones.valid} == {pair.source for pair in others.valid}
    assert ones.said[-1] == "Of the 90 held-out examples 20 are looked at, chosen by what they say."
    assert read_corpus(pairs, (data,), (valid,), most=90).counts == (400, 90)
