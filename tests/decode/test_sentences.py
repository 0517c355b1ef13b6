"""Sentence splitting loses nothing and knows common abbreviations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softlook.decode.sentences import join_translations, split_sentences, split_to_fit

TEXTS = st.text(alphabet="aB1é。！,，.!?…\"') \n", max_size=60) | st.text(max_size=60)
SENTENCES = {
    "plain": ["One two. ", "Three!  ", "Four?"],
    "quotes": ['"No!" ', "She left (today.) ", "“Yes.” ", "End"],
    "lower case": ['"Really?" he asked. ', "Tea, sugar, etc. and milk... but no cup. ", "End."],
    "abbreviations": ["Mr. Smith met Prof. J. R. Tolkien in St. Louis, U.S. Army, at No. 7. "[:-1]],
    "dates": ["Am 25. Dezember 1999. ", "Neu."],
    "a year": ["It was 1998. ", "He left."],
    "names with periods": ["See example.com. ", "It is new in version 1.2.3. ", "Good."],
    "Chinese": ["你好。", "再见！", "“是吗？”", "是"],
    "Hindi": ["नमस्ते। ", "आप कैसे हैं? ", "ठीक।"],
    "Arabic": ["كيف حالك؟ ", "بخير."],
    "Spanish": ["¿Qué? ", "¡No! ", "Sí."],
    "blank lines": ["A heading\n\n", "a line\nand its end"],
}


@pytest.mark.parametrize("name", SENTENCES)
def test_sentences_end_at_punctuation(name: str) -> None:
    assert split_sentences("".join(SENTENCES[name])) == SENTENCES[name]


@given(TEXTS, st.integers(1, 20))
def test_the_parts_of_a_text_are_the_text(text: str, size: int) -> None:
    assert "".join(split_sentences(text)) == text
    parts = split_to_fit(text, lambda part: len(part) <= size)
    assert "".join(parts) == text and all(len(part.strip()) <= size for part in parts)
    assert len(parts) == 1 or all(part.strip() for part in parts if part != parts[0]) or not text.strip()
    assert join_translations(parts, parts).split() or not text.split()


@given(TEXTS)
def test_a_text_that_fits_is_not_split(text: str) -> None:
    assert split_to_fit(text, lambda part: True) == [text]


def test_long_sentences_are_split_at_commas_then_at_spaces_then_anywhere() -> None:
    def fits(part: str) -> bool:
        return len(part) <= 10

    assert split_to_fit("one two, three four five", fits) == ["one two, ", "three ", "four five"]
    assert split_to_fit("一二三四五，六七八九十一二", fits) == ["一二三四五，", "六七八九十一二"]
    assert split_to_fit("x" * 25, fits) == ["x" * 6, "x" * 6, "x" * 6, "x" * 7]
    assert split_to_fit("e\N{COMBINING ACUTE ACCENT}" * 6, fits) == ["e\N{COMBINING ACUTE ACCENT}" * 3] * 2


@pytest.mark.parametrize("repeated", [".", "?)", "\n ", ". ", "a, ", "x", "。"])
def test_time_grows_almost_linearly_with_the_length(repeated: str) -> None:
    calls = 0

    def fits(part: str) -> bool:
        nonlocal calls
        calls += len(part)
        return len(part) <= 50

    text = repeated * 50_000
    assert "".join(split_to_fit(text, fits)) == text
    assert calls <= 20 * len(text)


def test_whitespace_between_parts_is_kept() -> None:
    assert join_translations(["A.\n\n", "b, ", "c"], ["X.", "y,", "z"]) == "X.\n\ny, z"
    assert join_translations(["你好，", "你。", "好"], ["Hi,", "you.", "good"]) == "Hi, you. good"
    assert join_translations(["Hi. ", "You."], ["你好。", "你。"]) == "你好。 你。"
