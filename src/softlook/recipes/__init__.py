"""Recipes: complete training runs, from a config to a trained model.

Names are imported on first access, so that `--help` does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softlook.recipes.config.schema import CausalLMConfig as CausalLMConfig
    from softlook.recipes.config.schema import ClassificationConfig as ClassificationConfig
    from softlook.recipes.config.schema import ImageConfig as ImageConfig
    from softlook.recipes.config.schema import MaskedLMConfig as MaskedLMConfig
    from softlook.recipes.config.schema import TaggingConfig as TaggingConfig
    from softlook.recipes.config.schema import TranslationConfig as TranslationConfig
    from softlook.recipes.config.schema import Word2VecConfig as Word2VecConfig
    from softlook.recipes.config.tabular_schema import TabularConfig as TabularConfig
    from softlook.recipes.images.predict import load_image_classifier as load_image_classifier
    from softlook.recipes.images.run import train_images as train_images
    from softlook.recipes.inference.pipeline import load_pipeline as load_pipeline
    from softlook.recipes.tabular.run import train_table as train_table
    from softlook.recipes.text.causal_lm import train_causal_lm as train_causal_lm
    from softlook.recipes.text.classification import train_classification as train_classification
    from softlook.recipes.text.masked_lm import train_masked_lm as train_masked_lm
    from softlook.recipes.text.run import evaluate as evaluate
    from softlook.recipes.text.tagging import train_tagging as train_tagging
    from softlook.recipes.text.task import TrainResult as TrainResult
    from softlook.recipes.text.translation import train_translation as train_translation
    from softlook.recipes.text.word2vec import train_word2vec as train_word2vec

MODULES = {
    "CausalLMConfig": "config.schema",
    "ClassificationConfig": "config.schema",
    "ImageConfig": "config.schema",
    "MaskedLMConfig": "config.schema",
    "TabularConfig": "config.tabular_schema",
    "TaggingConfig": "config.schema",
    "TrainResult": "text.task",
    "TranslationConfig": "config.schema",
    "Word2VecConfig": "config.schema",
    "evaluate": "text.run",
    "load_image_classifier": "images.predict",
    "load_pipeline": "inference.pipeline",
    "train_causal_lm": "text.causal_lm",
    "train_classification": "text.classification",
    "train_images": "images.run",
    "train_masked_lm": "text.masked_lm",
    "train_table": "tabular.run",
    "train_tagging": "text.tagging",
    "train_translation": "text.translation",
    "train_word2vec": "text.word2vec",
}
"""The module of each public name."""


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module 'softlook.recipes' has no attribute {name!r}")
    return getattr(import_module(f"softlook.recipes.{MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *MODULES})
