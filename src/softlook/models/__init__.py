"""Ids in, scores out: one screen each, made of the same few blocks."""

from softlook.models.gpt import GPT as GPT
from softlook.models.gpt import GPTConfig as GPTConfig
