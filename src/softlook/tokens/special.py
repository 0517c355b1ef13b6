"""The tokens that stand for no text. Their ids are the same in every tokenizer that softlook trains."""

from tokenizers import Tokenizer

PAD, BEGIN, END, UNKNOWN, MASK, CLASS, SEPARATOR = "<pad>", "<s>", "</s>", "<unk>", "<mask>", "<cls>", "<sep>"
SPECIAL = (PAD, BEGIN, END, UNKNOWN, MASK, CLASS, SEPARATOR)
ALSO = {
    PAD: ("[PAD]", "<|endoftext|>", "</s>"),
    BEGIN: ("[CLS]", "<|endoftext|>"),
    END: ("[SEP]", "<|endoftext|>"),
    MASK: ("[MASK]",),
    CLASS: ("[CLS]", "<s>"),
    SEPARATOR: ("[SEP]", "</s>"),
}
"""What other people's tokenizers call them, where they have them."""


def is_own(tokenizer: Tokenizer) -> bool:
    """Did softlook make this tokenizer? Then its special tokens have known ids."""
    return all(tokenizer.token_to_id(token) == id for id, token in enumerate(SPECIAL))
