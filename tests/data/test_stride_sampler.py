"""A sample is spread evenly over the data, and small."""

from pathlib import Path

import pytest

from softlook.data import read_sentences
from softlook.data.split import StrideSampler


@pytest.mark.parametrize("count", [1, 10, 100, 1000])
def test_the_sample_is_spread_evenly(count: int, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{number:04}\n" for number in range(count)), encoding="utf-8")
    sampling = StrideSampler(read_sentences(path), max_chars=400)
    read = [int(example.text) for example in sampling.iterate()]
    kept = [int(example.text) for example in sampling.sample()]
    assert read == list(range(count))
    assert kept == read[:: sampling.stride]
    assert sampling.characters == 4 * len(kept) <= 400
    assert count <= 100 or sampling.characters >= 200
    assert [int(example.text) for example in sampling.sample()] == kept


def test_one_long_text_is_a_valid_sample(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("long " * 100 + "\nshort\n", encoding="utf-8")
    sampling = StrideSampler(read_sentences(tmp_path / "a.txt"), max_chars=10)
    assert len(list(sampling.iterate())) == 2
    assert len(list(sampling.sample())) == 1
    assert sampling.sample().read_stats.bad == 0
