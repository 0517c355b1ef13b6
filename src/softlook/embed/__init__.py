"""Ids in, vectors out: words, and where they stand."""

from softlook.embed.columns import CategoryTokens as CategoryTokens
from softlook.embed.columns import ColumnEmbedding as ColumnEmbedding
from softlook.embed.columns import NumberTokens as NumberTokens
from softlook.embed.labels import LabelEmbedding as LabelEmbedding
from softlook.embed.numbers import OrMissing as OrMissing
from softlook.embed.numbers import PeriodicTokens as PeriodicTokens
from softlook.embed.numbers import PiecewiseTokens as PiecewiseTokens
from softlook.embed.numbers import bin_edges as bin_edges
from softlook.embed.patches import PatchEmbedding as PatchEmbedding
from softlook.embed.places import LearnedPlaces as LearnedPlaces
from softlook.embed.places import SinusoidalPlaces as SinusoidalPlaces
from softlook.embed.segments import SegmentEmbedding as SegmentEmbedding
from softlook.embed.tokens import TokenEmbedding as TokenEmbedding
from softlook.embed.unit import GlobalUnit as GlobalUnit
