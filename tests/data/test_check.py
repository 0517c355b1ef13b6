"""`check_data` reports correct statistics, and its findings point at real problems."""

import json
from collections import Counter
from pathlib import Path

import pytest

from softlook import data
from softlook.base.errors import DataError
from softlook.data import check, data_report
from softlook.data.data_report import length_stats


def pairs(folder: Path, *rows: tuple[str, str], name: str = "a.tsv", fill: int = 200) -> data.Examples[data.TextPair]:
    more = [(f"this is sentence number {n}", f"das ist der Satz Nummer {n}") for n in range(fill)]
    (folder / name).write_text("".join(f"{a}\t{b}\n" for a, b in [*more, *rows]), encoding="utf-8", newline="")
    return data.read_pairs(folder / name, header=False)


def labeled(folder: Path, rows: list[tuple[str, str]], name: str = "a.tsv") -> data.Examples[data.LabeledText]:
    (folder / name).write_text("text\tlabel\n" + "".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    return data.read_labeled(folder / name)


def findings_text(report: data.DataReport) -> str:
    return "\n".join(map(str, report.findings))


def test_good_data_give_no_findings(tmp_path: Path) -> None:
    report = data.check_data(pairs(tmp_path))
    assert report.findings == ()
    assert (report.examples, report.duplicates, report.empty, report.bad_rows) == (200, 0, 0, 0)


def test_length_stats_per_column(tmp_path: Path) -> None:
    report = data.check_data(pairs(tmp_path, fill=10))
    source = report.texts["source"]
    assert source.words.median == 5 and source.words.total == 50
    assert source.characters.min == source.characters.max == len("this is sentence number 1")
    assert source.scripts == {"Latin": 10}


@pytest.mark.parametrize("sizes", [[1], [1, 2, 3, 4], [5] * 19 + [100], [5] * 18 + [100, 200], list(range(100))])
def test_length_stats_match_sorted_lengths(sizes: list[int]) -> None:
    found, ordered = length_stats(Counter(sizes)), sorted(sizes)
    assert found.median == ordered[(len(sizes) + 1) // 2 - 1]
    assert found.p95 == ordered[-(-95 * len(sizes) // 100) - 1]
    assert (found.min, found.max, found.total) == (min(sizes), max(sizes), sum(sizes))


def test_the_report_is_json_serializable(tmp_path: Path) -> None:
    report = data.check_data(pairs(tmp_path, ("same", "same")))
    again = json.loads(json.dumps(report.to_json()))
    assert again["examples"] == 201 and again["findings"][0]["severity"] == "note"
    assert again["files"][0]["encoding"] == "UTF-8"


def test_duplicates_are_counted_and_located(tmp_path: Path) -> None:
    report = data.check_data(pairs(tmp_path, ("one", "eins"), ("one", "eins"), ("one", "ein")))
    assert report.duplicates == 1
    assert "a.tsv:202)" in findings_text(report)


def test_leakage_from_held_out_data_is_found(tmp_path: Path) -> None:
    other = pairs(tmp_path, ("THIS is sentence  number 7", "anders"), ("new", "neu"), name="b.tsv", fill=0)
    report = data.check_data(pairs(tmp_path), {"validation": other})
    assert report.leaks == {"validation": 1}
    assert "validation data that are also in the training data: 1" in findings_text(
        report
    ) and "b.tsv:1)" in findings_text(report)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("left as it is", "left as it is"), "the target equals the source"),
        (("short", "viel zu lang " * 9), "over 3 times longer or shorter"),
        (("Tom &amp; Ann", "Tom und Ann"), "1 of 201 source texts have HTML"),
        (("an \x1b[31m escape", "ein Escape"), "control characters"),
        (("long " * 900, "lang " * 900), "the longest text has 4,499 characters"),
    ],
)
def test_one_bad_pair_is_found_and_located(row: tuple[str, str], message: str, tmp_path: Path) -> None:
    report = data.check_data(pairs(tmp_path, row))
    assert message in findings_text(report)
    assert "a.tsv:201)" in findings_text(report)
    assert all(line.isprintable() for line in findings_text(report).split("\n"))


def test_several_scripts_in_one_column_are_reported(tmp_path: Path) -> None:
    report = data.check_data(pairs(tmp_path, *[("yes " + str(n), "да " + str(n)) for n in range(50)]))
    assert "the target texts are in several scripts: Latin 80 %, Cyrillic 20 %" in findings_text(report)
    assert "source" not in findings_text(report)


def test_empty_and_bad_rows_are_reported(tmp_path: Path) -> None:
    examples = pairs(tmp_path, ("", "leer"), ("eins", "zwei\tdrei"))
    examples.max_bad_rows = 5
    report = data.check_data(examples)
    assert (report.empty, report.bad_rows) == (1, 1)
    assert "1 of 202 rows are without a source and are skipped" in findings_text(
        report
    ) and "a.tsv:202: expected 2 cells as in the first row, got 3" in findings_text(report)


def test_labels_are_counted_most_common_first(tmp_path: Path) -> None:
    rows = [(f"text {n}", "yes" if n % 3 else "no") for n in range(120)]
    report = data.check_data(labeled(tmp_path, rows))
    assert list(report.labels.items()) == [("yes", 80), ("no", 40)]
    assert report.findings == ()


@pytest.mark.parametrize(
    ("labels", "severity", "message"),
    [
        (["same"] * 120, "error", "all labels are 'same'"),
        ([str(n) for n in range(120)], "error", "120 different labels"),
        (["often"] * 118 + ["seldom"] * 2, "warning", "118 of 120 labels are 'often', and 2 'seldom'"),
    ],
)
def test_useless_labels_are_found(labels: list[str], severity: str, message: str, tmp_path: Path) -> None:
    report = data.check_data(labeled(tmp_path, [(f"text {n}", label) for n, label in enumerate(labels)]))
    assert report.findings[0].severity == severity
    assert message in report.findings[0].what


def test_conflicting_labels_are_found(tmp_path: Path) -> None:
    rows = [(f"text {n}", str(n % 2)) for n in range(120)]
    report = data.check_data(labeled(tmp_path, [*rows, ("Text 0", "1")]))
    assert "1 texts have different labels in different rows (first in" in findings_text(report)


def test_few_examples_warn_and_none_raise(tmp_path: Path) -> None:
    assert "3 examples are few" in findings_text(data.check_data(pairs(tmp_path, fill=3)))
    with pytest.raises(DataError, match="there are no examples"):
        data.check_data(labeled(tmp_path, []))


def test_one_long_document_is_enough(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Words and more words, on and on.\n" * 3000)
    assert data.check_data(data.read_documents(tmp_path / "a.txt")).findings == ()


def test_an_unusual_encoding_is_noted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words\n", encoding="utf-16")
    assert "encoded in UTF-16LE" in findings_text(data.check_data(data.read_sentences(tmp_path / "a.txt")))


def test_findings_are_sorted_by_severity(tmp_path: Path) -> None:
    order = [f.severity for f in data.check_data(labeled(tmp_path, [("<br>", "a"), ("<br>", "a")])).findings]
    assert order == sorted(order, key=["error", "warning", "note"].index) and order[0] == "error"


def test_duplicate_tracking_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (check, data_report):
        monkeypatch.setattr(module, "MAX_TRACKED", 50)
    assert "among the first 50 examples only" in findings_text(data.check_data(pairs(tmp_path)))


def test_entities_are_counted_and_one_label_is_enough(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("".join(f"Ada{n} B-PER\nLee I-PER\nsings O\n\n" for n in range(120)))
    report = data.check_data(data.read_tagged(tmp_path / "a.conll"))
    assert report.labels == {"PER": 120} and report.findings == ()
