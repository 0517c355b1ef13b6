"""Scores in, a number to minimise out."""

from softlook.losses.cross_entropy import NOTHING as NOTHING
from softlook.losses.cross_entropy import cross_entropy as cross_entropy
from softlook.losses.negative_sampling import negative_sampling as negative_sampling
