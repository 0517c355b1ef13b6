"""Texts at which there is enough said."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import ConfigError
from softlook.decode import Stop, Token, spoken
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
def test_text_ends_at_the_first_stop_string_however_it_is_cut_into_tokens(text: str, strings: tuple[str, ...]) -> None:
    for name in ("bytes", "bpe"):
        heard, shown = Stop(TOKENIZERS[name], strings).listen(), ""
        for id in TOKENIZERS[name].encode([text])[0]:
            shown += heard.push(id)
            assert cut(text, strings).startswith(shown)  # nothing is ever shown that has to be taken back
        shown += heard.finish()
        assert shown == heard.shown == cut(text, strings)
        assert heard.stopped == any(string in text for string in strings)


def test_only_what_may_become_a_stop_string_is_kept_back() -> None:
    tokenizer = TOKENIZERS["bytes"]
    heard = Stop(tokenizer, ("\n\n",)).listen()
    assert [heard.push(id) for id in tokenizer.encode(["a\nb\n\nc"])[0]] == ["a", "", "\nb", "", "", ""]
    assert heard.stopped and heard.finish() == ""


def test_a_stop_string_is_heard_in_the_answer_not_in_the_prompt() -> None:
    tokenizer = TOKENIZERS["bytes"]
    prompt, words = tokenizer.encode(["stop st", "op"])
    heard = Stop(tokenizer, ("stop",)).listen(prompt)
    assert "".join(heard.push(id) for id in words) == "op" and not heard.stopped


def test_at_a_stop_string_the_tokens_are_closed() -> None:
    tokenizer, closed = TOKENIZERS["bytes"], []

    def tokens() -> Iterator[Token]:
        try:
            for id in tokenizer.encode(["one. two."])[0]:
                yield Token(id, 0.0, 1)
        finally:
            closed.append(True)

    assert "".join(spoken(tokens(), Stop(tokenizer, (". ",)))) == "one"
    assert closed == [True]


@pytest.mark.parametrize("strings", ["stop", ("",), ("a", "")], ids=str)
def test_an_empty_stop_string_is_refused(strings: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="stop strings are a tuple of texts that are not empty"):
        Stop(TOKENIZERS["bytes"], strings)
