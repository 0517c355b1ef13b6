"""Runs of every text task, trained for a few steps."""

from pathlib import Path

from softlook.recipes import (
    train_causal_lm,
    train_classification,
    train_masked_lm,
    train_tagging,
    train_translation,
    train_word2vec,
)
from tests.recipes.small import (
    causal_lm_config,
    classification_config,
    masked_lm_config,
    tagging_config,
    translation_config,
    word2vec_config,
)

TASKS = {
    "translate": (train_translation, translation_config),
    "lm": (train_causal_lm, causal_lm_config),
    "classify": (train_classification, classification_config),
    "mlm": (train_masked_lm, masked_lm_config),
    "tag": (train_tagging, tagging_config),
    "word2vec": (train_word2vec, word2vec_config),
}


def train_runs(folder: Path, *tasks: str) -> dict[str, Path]:
    """The run directory of each task, or of some, by name."""
    run_dirs = {}
    for name in tasks or TASKS:
        train, config = TASKS[name]
        (folder / name).mkdir()
        run_dirs[name] = train(config(folder / name)).run_dir  # pyright: ignore[reportArgumentType]
    return run_dirs
