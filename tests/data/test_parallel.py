"""Parallel files stay aligned line by line, even if a line of one file is bad."""

from pathlib import Path

import pytest

from softlook import data
from softlook.base.errors import DataError
from softlook.data.parallel import pair_files


def write(folder: Path, **files: str | bytes) -> list[Path]:
    paths = []
    for name, content in files.items():
        paths.append(folder / name.replace("_", "."))
        paths[-1].write_bytes(content.encode() if isinstance(content, str) else content)
    return paths


def sides(examples: data.Examples[data.TextPair]) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in examples]


def test_lines_are_paired_and_blank_ones_skipped(tmp_path: Path) -> None:
    examples = data.read_pairs(write(tmp_path, a_en="yes\n\nno\nwell\n", a_de="ja\nnein\nnicht\n \n"))
    assert sides(examples) == [("yes", "ja"), ("no", "nicht")]
    assert (examples.read_stats.read, examples.read_stats.empty) == (2, 2)


def test_a_pair_has_the_origin_of_its_source(tmp_path: Path) -> None:
    files = write(tmp_path, a_en="\nyes\n", a_de="\nja\n")
    [pair] = data.read_pairs(files)
    assert pair.origin == (files[0], 2)


def test_a_bad_line_costs_one_pair(tmp_path: Path) -> None:
    files = write(tmp_path, a_en=b"1\n\xff\n3\n4\n", a_de="1\n2\n3\0\n4\n")
    examples = data.read_pairs(files, max_bad_rows=2)
    assert sides(examples) == [("1", "1"), ("4", "4")]
    assert examples.read_stats.bad == 2
    with pytest.raises(DataError) as caught:
        list(data.read_pairs(files, max_bad_rows=1))
    assert caught.value.location == f"{files[1]}:3:2"
    assert "1 bad rows before it were skipped" in str(caught.value)


@pytest.mark.parametrize(("source", "target", "short"), [("1\n2\n3\n", "1\n2\n", 1), ("1\n", "1\n2\n", 0)])
def test_files_of_different_lengths_raise(source: str, target: str, short: int, tmp_path: Path) -> None:
    files = write(tmp_path, a_en=source, a_de=target)
    with pytest.raises(DataError, match="this file ends here") as caught:
        sides(data.read_pairs(files))
    assert caught.value.file == str(files[short])


def test_the_direction_follows_the_file_names(tmp_path: Path) -> None:
    files = write(tmp_path, a_en="yes\n", a_de="ja\n")
    assert sides(data.read_pairs(files)) == [("yes", "ja")]
    assert sides(data.read_pairs(files, source="de")) == [("ja", "yes")]
    assert sides(data.read_pairs(files, target="en")) == [("ja", "yes")]
    assert sides(data.read_pairs(files, source="en", target="de")) == [("yes", "ja")]
    with pytest.raises(DataError, match="neither file name has the language 'fr'"):
        data.read_pairs(files, source="fr")


def test_several_file_pairs_are_read_in_order(tmp_path: Path) -> None:
    files = write(tmp_path, a_en="1\n", b_en="2\n", b_de="zwei\n", a_de="eins\n")
    examples = data.read_pairs(files)
    assert sides(examples) == [("1", "eins"), ("2", "zwei")]
    assert examples.notes == (
        "source is 'a.en' and target is 'a.de', line by line",
        "source is 'b.en' and target is 'b.de', line by line",
    )


@pytest.mark.parametrize(
    "names", [("a.en", "a.de", "a.fr"), ("a.en", "b.de", "c.fr", "d.es"), ("a.txt", "b.txt", "c.txt")]
)
def test_files_that_cannot_be_paired_raise(names: tuple[str, ...]) -> None:
    with pytest.raises(DataError, match="which files belong together"):
        pair_files([Path(name) for name in names])


def test_a_single_file_raises() -> None:
    with pytest.raises(DataError, match="needs two"):
        pair_files([Path("a.en")])
