"""Special tokens, with fixed ids in softlook's tokenizers."""

from tokenizers import Tokenizer

PAD, BOS, EOS, UNK, MASK, CLS, SEP = "<pad>", "<s>", "</s>", "<unk>", "<mask>", "<cls>", "<sep>"
SPECIAL_TOKENS = (PAD, BOS, EOS, UNK, MASK, CLS, SEP)
ALTERNATIVES = {
    PAD: ("[PAD]", "<|endoftext|>", "</s>"),
    BOS: ("[CLS]", "<|endoftext|>"),
    EOS: ("[SEP]", "<|endoftext|>"),
    MASK: ("[MASK]",),
    CLS: ("[CLS]", "<s>"),
    SEP: ("[SEP]", "</s>"),
}
"""Their names in other tokenizers."""


def is_softlook_tokenizer(tokenizer: Tokenizer) -> bool:
    """Whether softlook trained this tokenizer: then its special tokens have fixed ids."""
    return all(tokenizer.token_to_id(token) == id for id, token in enumerate(SPECIAL_TOKENS))
