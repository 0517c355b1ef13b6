"""Stop strings."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import ConfigError
from softlook.decode import GeneratedToken, StopStrings, stream_text
from tests.decode.tokenizers import TOKENIZERS

TEXT = st.text("ab€", max_size=12)
STRINGS = st.lists(st.text("ab€", min_size=1, max_size=4), max_size=3).map(tuple)


def truncate(text: str, strings: tuple[str, ...]) -> str:
    """Reference: the text before the stop string that is complete first (of several: that starts first)."""
    for end in range(1, len(text) + 1):
        found = [end - len(string) for string in strings if text[:end].endswith(string)]
        if found:
            return text[: min(found)]
    return text


@given(TEXT, STRINGS)
def test_first_stop_string_ends_the_text(text: str, strings: tuple[str, ...]) -> None:
    for name in ("bytes", "bpe"):
        checker, emitted = StopStrings(TOKENIZERS[name], strings).checker(), ""
        for id in TOKENIZERS[name].encode([text])[0]:
            emitted += checker.push(id)
            assert truncate(text, strings).startswith(emitted)  # emitted text is never retracted
        emitted += checker.finish()
        assert emitted == checker.text == truncate(text, strings)
        assert checker.stopped == any(string in text for string in strings)


def test_only_partial_matches_are_held_back() -> None:
    tokenizer = TOKENIZERS["bytes"]
    checker = StopStrings(tokenizer, ("\n\n",)).checker()
    assert [checker.push(id) for id in tokenizer.encode(["a\nb\n\nc"])[0]] == ["a", "", "\nb", "", "", ""]
    assert checker.stopped and checker.finish() == ""


def test_stop_strings_in_the_prompt_do_not_count() -> None:
    tokenizer = TOKENIZERS["bytes"]
    prompt, ids = tokenizer.encode(["stop st", "op"])
    checker = StopStrings(tokenizer, ("stop",)).checker(prompt)
    assert "".join(checker.push(id) for id in ids) == "op" and not checker.stopped


def test_token_iterator_is_closed_at_a_stop_string() -> None:
    tokenizer, closed = TOKENIZERS["bytes"], []

    def tokens() -> Iterator[GeneratedToken]:
        try:
            for id in tokenizer.encode(["one. two."])[0]:
                yield GeneratedToken(id, 0.0, 1)
        finally:
            closed.append(True)

    assert "".join(stream_text(tokens(), StopStrings(tokenizer, (". ",)))) == "one"
    assert closed == [True]


@pytest.mark.parametrize("strings", ["stop", ("",), ("a", "")], ids=str)
def test_empty_stop_strings_raise_an_error(strings: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="stop strings must be a tuple of non-empty strings"):
        StopStrings(TOKENIZERS["bytes"], strings)
