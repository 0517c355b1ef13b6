"""Stop strings."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import ConfigError
from softlook.decode import GeneratedToken, StopStrings, stream_text
from tests.decode.tokenizers import TOKENIZERS

WORDS = st.text("ab€", max_size=12)
STRINGS = st.lists(st.text("ab€", min_size=1, max_size=4), max_size=3).map(tuple)


def cut(text: str, strings: tuple[str, ...]) -> str:
    """Up to the string that is whole first, and begins first of those: looked for one character after the other."""
    for end in range(1, len(text) + 1):
        found = [end - len(string) for string in strings if text[:end].endswith(string)]
        if found:
            return text[: min(found)]
    return text


@given(WORDS, STRINGS)
def test_first_stop_string_ends_the_text(text: str, strings: tuple[str, ...]) -> None:
    for name in ("bytes", "bpe"):
        heard, shown = StopStrings(TOKENIZERS[name], strings).checker(), ""
        for id in TOKENIZERS[name].encode([text])[0]:
            shown += heard.push(id)
            assert cut(text, strings).startswith(shown)  # nothing is ever shown that has to be taken back
        shown += heard.finish()
        assert shown == heard.text == cut(text, strings)
        assert heard.stopped == any(string in text for string in strings)


def test_only_partial_matches_are_held_back() -> None:
    tokenizer = TOKENIZERS["bytes"]
    heard = StopStrings(tokenizer, ("\n\n",)).checker()
    assert [heard.push(id) for id in tokenizer.encode(["a\nb\n\nc"])[0]] == ["a", "", "\nb", "", "", ""]
    assert heard.stopped and heard.finish() == ""


def test_stop_strings_in_the_prompt_do_not_count() -> None:
    tokenizer = TOKENIZERS["bytes"]
    prompt, words = tokenizer.encode(["stop st", "op"])
    heard = StopStrings(tokenizer, ("stop",)).checker(prompt)
    assert "".join(heard.push(id) for id in words) == "op" and not heard.stopped


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
