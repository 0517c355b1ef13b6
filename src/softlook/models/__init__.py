"""Models: one file each, composed of the same blocks."""

from softlook.embed.rotary import RopeScaling as RopeScaling
from softlook.models.bert import Bert as Bert
from softlook.models.bert import BertConfig as BertConfig
from softlook.models.causal_convolution import ConvolutionalLM as ConvolutionalLM
from softlook.models.causal_convolution import ConvolutionalLMConfig as ConvolutionalLMConfig
from softlook.models.deberta import ConvolutionConfig as ConvolutionConfig
from softlook.models.deberta import Deberta as Deberta
from softlook.models.deberta import DebertaConfig as DebertaConfig
from softlook.models.fast_weights import FastWeightLM as FastWeightLM
from softlook.models.fast_weights import FastWeightLMConfig as FastWeightLMConfig
from softlook.models.ft_transformer import FTTransformer as FTTransformer
from softlook.models.ft_transformer import FTTransformerConfig as FTTransformerConfig
from softlook.models.gpt import GPT as GPT
from softlook.models.gpt import GPTConfig as GPTConfig
from softlook.models.llama import Llama as Llama
from softlook.models.llama import LlamaConfig as LlamaConfig
from softlook.models.modern_bert import ModernBert as ModernBert
from softlook.models.modern_bert import ModernBertConfig as ModernBertConfig
from softlook.models.optimize import optimize_for_cpu as optimize_for_cpu
from softlook.models.rnn_search import RNNSearch as RNNSearch
from softlook.models.rnn_search import RNNSearchConfig as RNNSearchConfig
from softlook.models.skip_gram import SkipGram as SkipGram
from softlook.models.skip_gram import SkipGramConfig as SkipGramConfig
from softlook.models.t5 import T5 as T5
from softlook.models.t5 import T5Config as T5Config
from softlook.models.t5 import T5Encoder as T5Encoder
from softlook.models.t5 import T5EncoderConfig as T5EncoderConfig
from softlook.models.tab_transformer import TabTransformer as TabTransformer
from softlook.models.tab_transformer import TabTransformerConfig as TabTransformerConfig
from softlook.models.table_transformer import TableTransformer as TableTransformer
from softlook.models.table_transformer import TableTransformerConfig as TableTransformerConfig
from softlook.models.transformer import Transformer as Transformer
from softlook.models.transformer import TransformerConfig as TransformerConfig
from softlook.models.transformer_xl import TransformerXL as TransformerXL
from softlook.models.transformer_xl import TransformerXLConfig as TransformerXLConfig
from softlook.models.vit import ViT as ViT
from softlook.models.vit import ViTConfig as ViTConfig

TextEncoder = Bert | Deberta | ModernBert | T5Encoder
"""Bidirectional text encoders."""
