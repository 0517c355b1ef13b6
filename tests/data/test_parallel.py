"""Two files whose lines belong together stay together, whatever is wrong with a line of one."""

from pathlib import Path

import pytest

from softlook import data
from softlook.base.errors import DataError
from softlook.data.parallel import paired_files


def write(folder: Path, **files: str | bytes) -> list[Path]:
    paths = []
    for name, content in files.items():
        paths.append(folder / name.replace("_", "."))
        paths[-1].write_bytes(content.encode() if isinstance(content, str) else content)
    return paths


def both(examples: data.Examples[data.Pair]) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in examples]


def test_lines_are_paired_by_their_numbers_and_blank_ones_are_dropped_together(tmp_path: Path) -> None:
    examples = data.pairs(write(tmp_path, a_en="yes\n\nno\nwell\n", a_de="ja\nnein\nnicht\n \n"))
    assert both(examples) == [("yes", "ja"), ("no", "nicht")]
    assert (examples.tally.read, examples.tally.empty) == (2, 2)


def test_a_pair_knows_the_line_of_its_source(tmp_path: Path) -> None:
    files = write(tmp_path, a_en="\nyes\n", a_de="\nja\n")
    [pair] = data.pairs(files)
    assert pair.origin == (files[0], 2)


def test_a_bad_line_in_either_file_costs_one_pair_and_shifts_nothing(tmp_path: Path) -> None:
    files = write(tmp_path, a_en=b"1\n\xff\n3\n4\n", a_de="1\n2\n3\0\n4\n")
    examples = data.pairs(files, bad_rows=2)
    assert both(examples) == [("1", "1"), ("4", "4")]
    assert examples.tally.bad == 2
    with pytest.raises(DataError) as caught:
        list(data.pairs(files, bad_rows=1))
    assert caught.value.place == f"{files[1]}:3:2"
    assert "1 bad rows before it were left out" in str(caught.value)


@pytest.mark.parametrize(("source", "target", "short"), [("1\n2\n3\n", "1\n2\n", 1), ("1\n", "1\n2\n", 0)])
def test_files_of_different_lengths_are_an_error_at_the_end_of_the_shorter(
    source: str, target: str, short: int, tmp_path: Path
) -> None:
    files = write(tmp_path, a_en=source, a_de=target)
    with pytest.raises(DataError, match="this file ends here") as caught:
        both(data.pairs(files))
    assert caught.value.file == str(files[short])


def test_the_wanted_direction_is_read_off_the_names(tmp_path: Path) -> None:
    files = write(tmp_path, a_en="yes\n", a_de="ja\n")
    assert both(data.pairs(files)) == [("yes", "ja")]
    assert both(data.pairs(files, source="de")) == [("ja", "yes")]
    assert both(data.pairs(files, target="en")) == [("ja", "yes")]
    assert both(data.pairs(files, source="en", target="de")) == [("yes", "ja")]
    with pytest.raises(DataError, match="neither file's name says 'fr'"):
        data.pairs(files, source="fr")


def test_several_couples_are_read_one_after_the_other(tmp_path: Path) -> None:
    files = write(tmp_path, a_en="1\n", b_en="2\n", b_de="zwei\n", a_de="eins\n")
    examples = data.pairs(files)
    assert both(examples) == [("1", "eins"), ("2", "zwei")]
    assert examples.said == (
        "source is 'a.en' and target is 'a.de', line by line",
        "source is 'b.en' and target is 'b.de', line by line",
    )


@pytest.mark.parametrize(
    "names", [("a.en", "a.de", "a.fr"), ("a.en", "b.de", "c.fr", "d.es"), ("a.txt", "b.txt", "c.txt")]
)
def test_files_that_cannot_be_paired_are_an_error(names: tuple[str, ...]) -> None:
    with pytest.raises(DataError, match="which files go together"):
        paired_files([Path(name) for name in names])


def test_one_file_alone_is_no_pair() -> None:
    with pytest.raises(DataError, match="needs two"):
        paired_files([Path("a.en")])
