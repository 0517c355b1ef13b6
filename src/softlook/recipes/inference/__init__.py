"""Inference with text models, behind `softlook generate`, `translate`, `classify`, `embed`, `inspect` and others."""

from softlook.decode.alignment import Alignment as Alignment
from softlook.decode.alignment import format_pharaoh as format_pharaoh
from softlook.recipes.inference.encoding import ClassPrediction as ClassPrediction
from softlook.recipes.inference.encoding import classify as classify
from softlook.recipes.inference.encoding import embed as embed
from softlook.recipes.inference.fill import FilledText as FilledText
from softlook.recipes.inference.fill import MaskPrediction as MaskPrediction
from softlook.recipes.inference.fill import fill_masks as fill_masks
from softlook.recipes.inference.generation import GeneratedText as GeneratedText
from softlook.recipes.inference.generation import GenerationParams as GenerationParams
from softlook.recipes.inference.generation import generate as generate
from softlook.recipes.inference.generation import stream as stream
from softlook.recipes.inference.inspection import HeadSummary as HeadSummary
from softlook.recipes.inference.inspection import LayerAttention as LayerAttention
from softlook.recipes.inference.inspection import inspect_attention as inspect_attention
from softlook.recipes.inference.pipeline import Pipeline as Pipeline
from softlook.recipes.inference.pipeline import TextInput as TextInput
from softlook.recipes.inference.pipeline import load_pipeline as load_pipeline
from softlook.recipes.inference.retrieval import SearchHit as SearchHit
from softlook.recipes.inference.retrieval import SearchIndex as SearchIndex
from softlook.recipes.inference.retrieval import build_index as build_index
from softlook.recipes.inference.retrieval import search as search
from softlook.recipes.inference.translation import ScoredTranslation as ScoredTranslation
from softlook.recipes.inference.translation import TranslationResult as TranslationResult
from softlook.recipes.inference.translation import translate as translate
from softlook.recipes.inference.translation import with_languages as with_languages
