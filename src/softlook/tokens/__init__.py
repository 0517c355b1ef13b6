"""Tokenizers: text to ids and back."""

from softlook.tokens.tokenizer import TextTokenizer as TextTokenizer
from softlook.tokens.training import train_tokenizer as train_tokenizer
