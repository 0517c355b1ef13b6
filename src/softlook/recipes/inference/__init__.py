"""Inference with text models, behind `softlook generate`, `translate`, `classify`, `tag` and `embed`."""

from softlook.decode.alignment import Alignment as Alignment
from softlook.decode.alignment import format_pharaoh as format_pharaoh
from softlook.recipes.inference.encoding import ClassPrediction as ClassPrediction
from softlook.recipes.inference.encoding import classify as classify
from softlook.recipes.inference.encoding import embed as embed
from softlook.recipes.inference.generation import GeneratedText as GeneratedText
from softlook.recipes.inference.generation import GenerationParams as GenerationParams
from softlook.recipes.inference.generation import generate as generate
from softlook.recipes.inference.generation import stream as stream
from softlook.recipes.inference.pipeline import Pipeline as Pipeline
from softlook.recipes.inference.pipeline import TextInput as TextInput
from softlook.recipes.inference.pipeline import load_pipeline as load_pipeline
from softlook.recipes.inference.tagging import Entity as Entity
from softlook.recipes.inference.tagging import TextEntities as TextEntities
from softlook.recipes.inference.tagging import tag as tag
from softlook.recipes.inference.translation import ScoredTranslation as ScoredTranslation
from softlook.recipes.inference.translation import TranslationResult as TranslationResult
from softlook.recipes.inference.translation import translate as translate
from softlook.recipes.inference.translation import with_languages as with_languages
