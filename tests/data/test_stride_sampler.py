"""A sample is spread evenly over the data and bounded in size."""

from pathlib import Path

import pytest

from softlook.data import read_sentences
from softlook.data.split import StrideSampler


@pytest.mark.parametrize("count", [1, 10, 100, 1000])
def test_the_sample_is_spread_evenly(count: int, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{number:04}\n" for number in range(count)), encoding="utf-8")
    sampler = StrideSampler(read_sentences(path), max_chars=400)
    read = [int(example.text) for example in sampler.iterate()]
    kept = [int(example.text) for example in sampler.sample()]
    assert read == list(range(count))
    assert kept == read[:: sampler.stride]
    assert sampler.characters == 4 * len(kept) <= 400
    assert count <= 100 or sampler.characters >= 200
    assert [int(example.text) for example in sampler.sample()] == kept


def test_one_long_text_is_a_valid_sample(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("long " * 100 + "\nshort\n", encoding="utf-8")
    sampler = StrideSampler(read_sentences(tmp_path / "a.txt"), max_chars=10)
    assert len(list(sampler.iterate())) == 2
    assert len(list(sampler.sample())) == 1
    assert sampler.sample().read_stats.bad == 0
