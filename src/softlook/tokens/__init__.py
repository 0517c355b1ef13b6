"""Records in, ids out, and back again."""

from softlook.tokens.text import TextTokenizer as TextTokenizer
from softlook.tokens.training import train_tokenizer as train_tokenizer
