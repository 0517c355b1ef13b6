"""The architectures of Hugging Face's that softlook reads and writes, one file each."""

from softlook.weights.families import gpt2
from softlook.weights.family import Family

FAMILIES: tuple[Family, ...] = (gpt2.FAMILY,)
"""In the order in which they are asked whether they write a model."""
