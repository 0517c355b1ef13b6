"""Ids in, vectors out: words, and where they stand."""

from softlook.embed.labels import LabelEmbedding as LabelEmbedding
from softlook.embed.places import LearnedPlaces as LearnedPlaces
from softlook.embed.places import SinusoidalPlaces as SinusoidalPlaces
from softlook.embed.tokens import TokenEmbedding as TokenEmbedding
