"""Vectors in, scores out."""

from softlook.heads.language import language_head as language_head
