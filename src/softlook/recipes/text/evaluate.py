"""Evaluating a trained run on other data."""

from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from softlook.base.device import choose_device
from softlook.recipes.config.schema import Files
from softlook.recipes.config.tabular_schema import TabularConfig
from softlook.recipes.run_dir.layout import LABELS_FILE, load_run_config
from softlook.recipes.tasks import text_task
from softlook.recipes.text.pretrained import load_auto
from softlook.tokens import TextTokenizer
from softlook.train.checkpoint.run_dir import TOKENIZER
from softlook.weights import read_tokenizer
from softlook.weights.schema import read_json


def evaluate(run: Path, data: Files, *, device: str = "auto") -> dict[str, Any]:
    """Scores of a run's best checkpoint on `data`: BLEU and chrF, perplexity and bits per byte, accuracy, RMSE."""
    config = load_run_config(run)
    if isinstance(config, TabularConfig):
        return import_module("softlook.recipes.tabular.predict").evaluate_table(run, data, device=device)
    target = choose_device(device)
    model = load_auto(run).to(target).eval()
    tokenizer = TextTokenizer(read_tokenizer(run / TOKENIZER))
    labels = read_json(run / LABELS_FILE)["labels"] if (run / LABELS_FILE).is_file() else []
    with torch.no_grad():
        return text_task(config.task).evaluate(config, data, model, tokenizer, labels, target)
