"""Label tokens: special tokens that stand for the class of a text, before its first token."""

from collections.abc import Iterable

from tokenizers import Tokenizer

PREFIX, SUFFIX = "<label:", ">"


def add_label_tokens(tokenizer: Tokenizer, labels: Iterable[str]) -> None:
    """Add a special token for each label. Written out in a text, it is plain text as every special token is.

    >>> from softlook.tokens import train_tokenizer
    >>> tokenizer = train_tokenizer(["fine films"], model_type="characters")
    >>> add_label_tokens(tokenizer, ["good", "bad"])
    >>> sorted(label_ids(tokenizer))
    ['bad', 'good']
    """
    tokenizer.add_special_tokens([f"{PREFIX}{label}{SUFFIX}" for label in labels])


def label_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """The id of each label's token; empty for a tokenizer without label tokens."""
    added = {token.content: id for id, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    return {content[len(PREFIX) : -len(SUFFIX)]: id for content, id in added.items() if content.startswith(PREFIX)}
