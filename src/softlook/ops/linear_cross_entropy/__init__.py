"""Cross entropy of a linear layer's logits, which are never held as a whole: loss and gradients chunk by chunk."""

from softlook.ops.linear_cross_entropy.function import IGNORE_INDEX as IGNORE_INDEX
from softlook.ops.linear_cross_entropy.function import linear_cross_entropy as linear_cross_entropy
