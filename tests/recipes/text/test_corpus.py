"""Training and validation data are disjoint."""

from pathlib import Path

from softlook.data import read_documents, read_pairs, read_sentences
from softlook.recipes.run_dir.layout import data_name
from softlook.recipes.text.corpus import CorpusSplit, contiguous_texts, make_validation_split, read_corpus
from tests.recipes.small import digits, sentences


def test_the_split_is_disjoint_and_complete(tmp_path: Path) -> None:
    corpus = read_corpus(read_pairs, (digits(tmp_path / "digits.tsv"),), ())
    train, valid = ({pair.source for pair in part} for part in (corpus.train, corpus.valid))
    assert not train & valid
    assert train | valid == {pair.source for pair in read_pairs(tmp_path / "digits.tsv")}
    assert corpus.counts[1] == len(valid)


def test_few_distinct_examples_are_not_all_held_out(tmp_path: Path) -> None:
    path = tmp_path / "few.tsv"
    path.write_text("".join(f"word {number % 20}\ta thing\n" for number in range(1000)), encoding="utf-8")
    assert make_validation_split(read_pairs(path)).held_out == 4


def test_given_validation_data_is_used_and_part_of_the_digest(tmp_path: Path) -> None:
    data, valid = digits(tmp_path / "a.tsv"), digits(tmp_path / "b.tsv", 30)
    corpus = read_corpus(read_pairs, (data,), (valid,))
    assert corpus.counts == (400, 30)
    assert corpus.digest != read_corpus(read_pairs, (data,), ()).digest


def test_contiguous_texts_reassemble_documents_without_held_out_parts(tmp_path: Path) -> None:
    path = sentences(tmp_path / "words.txt")
    examples = read_documents(path, chunk_chars=50)
    split = make_validation_split(examples)
    splits = CorpusSplit(examples, split), CorpusSplit(examples, split, is_held_out=True)
    chunks = [["".join(text.text for text in texts) for texts, _, _ in contiguous_texts(side)] for side in splits]
    text_of_file = path.read_text(encoding="utf-8")
    assert sum(len(text) for side in chunks for text in side) == len(text_of_file)
    assert all(text in text_of_file for side in chunks for text in side)
    assert len(chunks[0]) > 1
    (_, starts, ends), *_ = contiguous_texts(CorpusSplit(examples))
    assert starts and ends


def test_contiguous_texts_contain_one_document(tmp_path: Path) -> None:
    found = list(contiguous_texts(CorpusSplit(read_sentences(sentences(tmp_path / "words.txt")))))
    assert len(found) == 40
    assert all(len({text.document for text in texts}) == 1 and starts and ends for texts, starts, ends in found)


def test_a_generic_file_name_is_prefixed_with_its_folder() -> None:
    assert data_name((Path("multi30k/train.en.gz"),)) == "multi30k-train"
    assert data_name((Path("my reviews.csv"),)) == "my reviews"


def test_validation_data_is_subsampled_independently_of_its_order(tmp_path: Path) -> None:
    data, valid = digits(tmp_path / "a.tsv"), digits(tmp_path / "b.tsv", 90)
    reordered = tmp_path / "c.tsv"
    reordered.write_text("\n".join(reversed(valid.read_text(encoding="utf-8").splitlines())) + "\n", encoding="utf-8")
    first, second = (read_corpus(read_pairs, (data,), (path,), max_valid=20) for path in (valid, reordered))
    assert first.counts == second.counts == (400, 20)
    assert {pair.source for pair in first.valid} == {pair.source for pair in second.valid}
    assert first.messages[-1] == "Evaluating on 20 of the 90 validation examples, sampled by content."
    assert read_corpus(read_pairs, (data,), (valid,), max_valid=90).counts == (400, 90)
