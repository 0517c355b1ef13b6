"""A sample is spread evenly over the data, and small."""

from pathlib import Path

import pytest

from softlook.data import sentences
from softlook.data.sampling import Sampling


@pytest.mark.parametrize("count", [1, 10, 100, 1000])
def test_all_are_kept_while_they_are_few_and_some_from_everywhere_when_they_are_many(
    count: int, tmp_path: Path
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{number:04}\n" for number in range(count)), encoding="utf-8")
    sampling = Sampling(sentences(path), most=400)
    read = [int(example.text) for example in sampling.all()]
    kept = [int(example.text) for example in sampling.kept()]
    assert read == list(range(count))
    assert kept == read[:: sampling.stride]
    assert sampling.characters == 4 * len(kept) <= 400
    assert count <= 100 or sampling.characters >= 200
    assert [int(example.text) for example in sampling.kept()] == kept


def test_one_long_text_is_a_sample_too(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("long " * 100 + "\nshort\n", encoding="utf-8")
    sampling = Sampling(sentences(tmp_path / "a.txt"), most=10)
    assert len(list(sampling.all())) == 2
    assert len(list(sampling.kept())) == 1
    assert sampling.kept().tally.bad_rows == 0
