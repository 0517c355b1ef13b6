"""Heads: hidden states to logits, pooled vectors or classes."""

from softlook.heads.classification import ClassificationHead as ClassificationHead
from softlook.heads.classification import HiddenStates as HiddenStates
from softlook.heads.classification import LinearSkip as LinearSkip
from softlook.heads.classification import ReplacedTokenHead as ReplacedTokenHead
from softlook.heads.classification import SpanHead as SpanHead
from softlook.heads.classification import TokenClassificationHead as TokenClassificationHead
from softlook.heads.classification import class_probabilities as class_probabilities
from softlook.heads.classification import normalize_logits as normalize_logits
from softlook.heads.classification import predicted_labels as predicted_labels
from softlook.heads.lm import MaskedLMHead as MaskedLMHead
from softlook.heads.lm import PretrainingHead as PretrainingHead
from softlook.heads.lm import PretrainingLogits as PretrainingLogits
from softlook.heads.lm import SoftcappedLMHead as SoftcappedLMHead
from softlook.heads.lm import build_decoder_head as build_decoder_head
from softlook.heads.lm import build_lm_head as build_lm_head
from softlook.heads.pooling import ClsPool as ClsPool
from softlook.heads.pooling import L2Normalize as L2Normalize
from softlook.heads.pooling import LastPool as LastPool
from softlook.heads.pooling import MeanPool as MeanPool
from softlook.heads.pooling import Pooler as Pooler
