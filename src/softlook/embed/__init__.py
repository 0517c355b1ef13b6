"""Embeddings: ids, positions, image patches and table columns to vectors."""

from softlook.embed.features import CategoricalEmbedding as CategoricalEmbedding
from softlook.embed.features import ColumnEmbedding as ColumnEmbedding
from softlook.embed.features import LinearFeatureEmbedding as LinearFeatureEmbedding
from softlook.embed.features import PeriodicEmbedding as PeriodicEmbedding
from softlook.embed.features import PiecewiseLinearEmbedding as PiecewiseLinearEmbedding
from softlook.embed.features import WithMissing as WithMissing
from softlook.embed.features import compute_bins as compute_bins
from softlook.embed.patches import ClassToken as ClassToken
from softlook.embed.patches import PatchEmbedding as PatchEmbedding
from softlook.embed.positions import LearnedPositions as LearnedPositions
from softlook.embed.positions import RelativePositionBias as RelativePositionBias
from softlook.embed.positions import SinusoidalPositions as SinusoidalPositions
from softlook.embed.rotary import RopeScaling as RopeScaling
from softlook.embed.tokens import LabelEmbedding as LabelEmbedding
from softlook.embed.tokens import TokenEmbedding as TokenEmbedding
from softlook.embed.tokens import TokenTypeEmbedding as TokenTypeEmbedding
