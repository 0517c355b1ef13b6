"""The only door to disk and to other people's formats. Nothing is ever unpickled."""

from softlook.weights.checkpoint import load as load
from softlook.weights.checkpoint import save as save
from softlook.weights.hugging_face import from_hugging_face as from_hugging_face
from softlook.weights.hugging_face import to_hugging_face as to_hugging_face
from softlook.weights.tokenizer import read_tokenizer as read_tokenizer
