"""Incremental detokenization."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softlook.decode import IncrementalDetokenizer
from softlook.decode.detokenizer import REPLACEMENT_CHARACTER
from tests.decode.tokenizers import TOKENIZERS

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


def ids(name: str) -> st.SearchStrategy[list[int]]:
    """Arbitrary ids: of text, of invalid bytes and of special tokens."""
    return st.lists(st.integers(0, TOKENIZERS[name].vocab_size - 1), max_size=14)


def pieces(name: str, tokens: list[int], prompt: list[int] | None = None) -> list[str]:
    stream = IncrementalDetokenizer(TOKENIZERS[name], prompt or [])
    return [*[stream.push(id) for id in tokens], stream.finish()]


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=60)
@given(data=st.data())
def test_pieces_concatenate_to_the_decoded_text(name: str, data: st.DataObject) -> None:
    tokens = data.draw(ids(name))
    assert "".join(pieces(name, tokens)) == TOKENIZERS[name].decode(tokens)


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=60)
@given(data=st.data())
def test_text_continues_the_prompt(name: str, data: st.DataObject) -> None:
    tokenizer, prompt, tokens = TOKENIZERS[name], data.draw(ids(name)), data.draw(ids(name))
    stream = IncrementalDetokenizer(tokenizer, prompt)
    before = stream.text[: stream.emitted]
    kept = tokenizer.decode(prompt)[len(before) :]
    assert (
        set(kept) <= {REPLACEMENT_CHARACTER} or name == "sentencepiece"
    )  # an incomplete character of the prompt is emitted once it is complete
    assert before + "".join(pieces(name, tokens, prompt)) == tokenizer.decode([*prompt, *tokens])


@pytest.mark.parametrize("name", ["bpe", "bytes"])
@given(text=TEXT)
def test_no_incomplete_character_is_emitted(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    tokens = tokenizer.encode([text])[0]
    emitted, whole = "", tokenizer.decode(tokens)
    for piece in pieces(name, tokens):
        emitted += piece
        assert whole.startswith(emitted)


def test_text_is_emitted_as_soon_as_it_is_final() -> None:
    tokenizer = TOKENIZERS["bytes"]
    assert pieces("bytes", tokenizer.encode(["a€b"])[0]) == ["a", "", "", "€", "b", ""]
    vocabulary = TOKENIZERS["sentencepiece"].tokenizer.get_vocab()
    tokens = [vocabulary[token] for token in ("▁sea", "shell", "s")]
    assert pieces("sentencepiece", tokens) == ["sea", "shell", "s", ""]


def test_incomplete_character_at_the_end_becomes_the_replacement_character() -> None:
    tokens = TOKENIZERS["bytes"].encode(["€"])[0][:2]
    assert pieces("bytes", tokens) == ["", "", REPLACEMENT_CHARACTER]


def test_only_recent_tokens_are_decoded_again() -> None:
    stream = IncrementalDetokenizer(TOKENIZERS["bpe"])
    for id in TOKENIZERS["bpe"].encode(["she sells sea shells by the sea shore"])[0] * 20:
        stream.push(id)
        assert len(stream.window) < 8
