"""Vectors in, scores out."""

from softlook.heads.beside import Beside as Beside
from softlook.heads.classify import ClassHead as ClassHead
from softlook.heads.classify import ReplacedHead as ReplacedHead
from softlook.heads.classify import SpanHead as SpanHead
from softlook.heads.classify import States as States
from softlook.heads.classify import TagHead as TagHead
from softlook.heads.classify import class_scores as class_scores
from softlook.heads.decoder import decoder_head as decoder_head
from softlook.heads.language import CappedHead as CappedHead
from softlook.heads.language import language_head as language_head
from softlook.heads.pooling import DensePool as DensePool
from softlook.heads.pooling import FirstPool as FirstPool
from softlook.heads.pooling import LastPool as LastPool
from softlook.heads.pooling import LengthOne as LengthOne
from softlook.heads.pooling import MeanPool as MeanPool
from softlook.heads.words import Pretraining as Pretraining
from softlook.heads.words import PretrainingHead as PretrainingHead
from softlook.heads.words import WordHead as WordHead
