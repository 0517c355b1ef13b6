"""Which language a model of many translates from and into: mBART, M2M-100 and NLLB say so by a token."""

from collections.abc import Sequence
from dataclasses import replace

from softlook.base.errors import ConfigError
from softlook.recipes.opened import Opened


def between(run: Opened, source: str | None = None, target: str | None = None) -> Opened:
    """The same model for another pair of languages; what is not told stays as its files have it.

    A language is named as its token is: "en_XX" in mBART, "eng_Latn" in NLLB, "en" or "__en__" in M2M-100. The target's
    token is forced to be the first of every answer; the source's stands where the tokenizer puts one around texts.
    """
    signs, habits = run.signs, run.habits
    if target is not None:
        habits = replace(habits, first=language_token(run, target))
    if source is not None:
        token = language_token(run, source)
        before, after = (_exchanged(run, signs_there, token) for signs_there in (signs.before, signs.after))
        if (before, after) == (signs.before, signs.after) and token not in (*before, *after):
            raise ConfigError(f"the tokenizer of {run.name} puts no language around a text, so none can be chosen")
        signs = replace(signs, before=before, after=after)
    return replace(run, signs=signs, habits=habits)


def language_token(run: Opened, language: str) -> int:
    """The id of the token that stands for a language."""
    words = run.tokenizer.tokenizer
    special = {token.content: id for id, token in words.get_added_tokens_decoder().items() if token.special}
    found = next((special[name] for name in (language, f"__{language}__") if name in special), None)
    if found is None:
        known = ", ".join(sorted(name for name in special if _is_language(name))[:8])
        raise ConfigError(
            f"{run.name} has no special token for the language {language!r:.40}. "
            + (f"It has {known}, ..." if known else "It knows no languages by tokens.")
        )
    return found


def _exchanged(run: Opened, signs: Sequence[int], token: int) -> tuple[int, ...]:
    """With another language's token in the place of the one that is there."""
    words = run.tokenizer.tokenizer
    return tuple(token if _is_language(words.id_to_token(id) or "") else id for id in signs)


def _is_language(token: str) -> bool:
    """Does a special token look like a language's?

    >>> [_is_language(token) for token in ("en_XX", "__en__", "eng_Latn", "</s>", "<mask>", "[CLS]")]
    [True, True, True, False, False, False]
    """
    return token.replace("_", "").isalpha() and "_" in token
