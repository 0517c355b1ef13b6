"""Unusual characters are reported, ordinary text is not."""

import pytest

from softlook.data.data_report import QUALITY_ISSUES, quality_issues, script_of

SAMPLES = {
    "control characters": "a\x1b[31m",
    "carriage returns inside": "a\rb",
    "replacement characters (U+FFFD)": "caf\ufffd",
    "invisible characters": "a\u200bb",
    "private-use characters": "\ue000",
    "UTF-8 decoded as Latin-1 (mojibake)": "Ã¤hnlich",
    "HTML": "Tom &amp; Jerry",
    "combining accents": "cafe\u0301",
    "a missing value in words": "NaN",
    "CSV quotes in a TSV": '"He said ""hi"" to me"',
}


@pytest.mark.parametrize("issue", QUALITY_ISSUES, ids=lambda issue: issue.name)
def test_each_issue_is_found(issue) -> None:
    assert issue.name in quality_issues(SAMPLES[issue.name])


@pytest.mark.parametrize("issue", QUALITY_ISSUES, ids=lambda issue: issue.name)
def test_the_fast_check_misses_nothing(issue) -> None:
    for text in (SAMPLES[issue.name], " \t" + SAMPLES[issue.name] if issue.name != "CSV quotes in a TSV" else '""""'):
        assert (issue.name in quality_issues(text)) is (issue.pattern.search(text) is not None)


@pytest.mark.parametrize(
    "text",
    ["Grüße aus Köln", "a < b & c > d", "naïve café", "می‌خواهم", "👩‍👩‍👧", "日本語", '"Quoted."', "none of it", "x"],
)
def test_ordinary_text_has_no_issues(text: str) -> None:
    assert quality_issues(text) == []


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("word", "Latin"),
        ("¿qué?", "Latin"),
        ("слово", "Cyrillic"),
        ("言葉", "Han"),
        ("ことば", "Hiragana"),
        ("12!", "none"),
        ("", "none"),
    ],
)
def test_the_script_is_that_of_the_first_letter(text: str, script: str) -> None:
    assert script_of(text) == script
