"""Vectors in, vectors out: the parts a model is made of. Layers take numbers; parts are handed in."""

from softlook.blocks.attention import CrossAttention as CrossAttention
from softlook.blocks.attention import Mixing as Mixing
from softlook.blocks.attention import MultiHead as MultiHead
from softlook.blocks.attention import SelfAttention as SelfAttention
from softlook.blocks.block import Block as Block
from softlook.blocks.block import DecoderBlock as DecoderBlock
from softlook.blocks.block import ParallelBlock as ParallelBlock
from softlook.blocks.feed_forward import ACTIVATIONS as ACTIVATIONS
from softlook.blocks.feed_forward import FeedForward as FeedForward
from softlook.blocks.feed_forward import GatedFeedForward as GatedFeedForward
from softlook.blocks.memory import Growing as Growing
from softlook.blocks.memory import LayerMemory as LayerMemory
from softlook.blocks.memory import Memory as Memory
from softlook.blocks.norms import RMSNorm as RMSNorm
from softlook.blocks.residual import PostNorm as PostNorm
from softlook.blocks.residual import PreNorm as PreNorm
from softlook.blocks.residual import Sandwich as Sandwich
