"""Text of a file cannot control the terminal, and the caret is below its column."""

from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import EXCERPT_WIDTH, escape_control, excerpt_with_caret


@given(st.text(st.characters(exclude_categories=()), max_size=200))
def test_escaped_text_is_printable(text: str) -> None:
    assert escape_control(text).isprintable()


@given(st.text(), st.integers(min_value=1, max_value=300))
def test_an_excerpt_is_short_and_the_caret_is_below_it(text: str, column: int) -> None:
    shown, caret = excerpt_with_caret(text, column).split("\n")
    assert len(shown) <= 10 * EXCERPT_WIDTH + 6
    assert caret.strip() == "^"


def test_the_caret_is_below_the_column() -> None:
    shown, caret = excerpt_with_caret("x" * 500 + "!" + "y" * 500, 501).split("\n")
    assert shown.startswith("...") and shown.endswith("...")
    assert shown[caret.index("^")] == "!"


def test_escaped_characters_shift_the_caret() -> None:
    shown, caret = excerpt_with_caret("\x1b\x00!", 3).split("\n")
    assert shown[caret.index("^")] == "!"


def test_wide_characters_take_two_columns_and_combining_ones_none() -> None:
    assert excerpt_with_caret("日本!", 3).split("\n")[1] == "    ^"
    assert excerpt_with_caret("e\u0301!", 3).split("\n")[1] == " ^"


def test_a_byte_that_cannot_be_decoded_is_shown_in_hex() -> None:
    assert escape_control(b"Gr\xfc".decode("utf-8", "surrogateescape")) == r"Gr\xfc"
