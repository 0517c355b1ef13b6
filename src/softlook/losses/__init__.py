"""Losses: logits and targets to a number to minimize."""

from softlook.losses.cross_entropy import IGNORE_INDEX as IGNORE_INDEX
from softlook.losses.cross_entropy import cross_entropy as cross_entropy
from softlook.losses.negative_sampling import negative_sampling as negative_sampling
