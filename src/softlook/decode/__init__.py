"""A model in, words out. Choices are functions; what is remembered belongs to the loop."""

from softlook.decode.beam import Hypothesis as Hypothesis
from softlook.decode.beam import beam as beam
from softlook.decode.greedy import greedy as greedy
from softlook.decode.speaking import Continuing as Continuing
from softlook.decode.speaking import Speaker as Speaker
from softlook.decode.speaking import Translating as Translating
