"""Odd characters are found, ordinary ones are left in peace."""

import pytest

from softlook.data.odd import ODDITIES, oddities, script_of

SAMPLES = {
    "control characters": "a\x1b[31m",
    "carriage returns inside": "a\rb",
    "lost characters (U+FFFD)": "caf\ufffd",
    "unseen marks": "a\u200bb",
    "private characters": "\ue000",
    "UTF-8 that was read as Latin-1": "Ã¤hnlich",
    "HTML": "Tom &amp; Jerry",
    "loose accents": "cafe\u0301",
    "a missing value in words": "NaN",
    "CSV quotes in a TSV": '"He said ""hi"" to me"',
}


@pytest.mark.parametrize("kind", ODDITIES, ids=lambda kind: kind.name)
def test_each_kind_is_found_in_its_sample(kind) -> None:
    assert kind.name in oddities(SAMPLES[kind.name])


@pytest.mark.parametrize("kind", ODDITIES, ids=lambda kind: kind.name)
def test_the_quick_look_misses_nothing(kind) -> None:
    for text in (SAMPLES[kind.name], " \t" + SAMPLES[kind.name] if kind.name != "CSV quotes in a TSV" else '""""'):
        assert (kind.name in oddities(text)) is (kind.pattern.search(text) is not None)


@pytest.mark.parametrize(
    "text",
    ["Grüße aus Köln", "a < b & c > d", "naïve café", "می‌خواهم", "👩‍👩‍👧", "日本語", '"Quoted."', "none of it", "x"],
)
def test_ordinary_text_of_any_language_is_not_odd(text: str) -> None:
    assert oddities(text) == []


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
