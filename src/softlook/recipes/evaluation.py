"""What a finished run is worth on other data."""

from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from softlook.base.errors import ConfigError
from softlook.recipes.classification import Framing, tested
from softlook.recipes.corpus import Part
from softlook.recipes.filling import Asking, documents_of, read_sentences
from softlook.recipes.filling import Look as GapLook
from softlook.recipes.language import Following, Look, reach_of, read_documents
from softlook.recipes.packing import bytes_of, tokens_of
from softlook.recipes.remembering import LABELS, SETTINGS
from softlook.recipes.settings import TASKS, Begun, Classify, Files, Fill, Lm, Table, Task, Translate
from softlook.recipes.starting import load_any
from softlook.recipes.told import nested, told
from softlook.recipes.translation import tested as translated
from softlook.tokens import TextTokenizer
from softlook.train.device import choose_device
from softlook.train.folder import TOKENIZER
from softlook.train.stream import Stream
from softlook.weights import read_tokenizer
from softlook.weights.runs import read_sealed, verify_run
from softlook.weights.schema import read_json


def evaluate(run: Path, data: Files, *, device: str = "auto") -> dict[str, Any]:
    """Scores of a run's best checkpoint on `data`: BLEU and chrF, perplexity and bits per byte, accuracy, RMSE."""
    if isinstance(settings_of(run), Table):
        return import_module("softlook.recipes.tables_asking").evaluated(run, data, device=device)
    settings = text_settings_of(run)
    here = choose_device(device)
    model = load_any(run).to(here).eval()
    tokenizer = TextTokenizer(read_tokenizer(run / TOKENIZER))
    settings = settings.model_copy(update={"test": data})
    with torch.no_grad():
        if isinstance(settings, Translate):
            return translated(settings, tokenizer, model)["test"]
        if isinstance(settings, Classify):
            names = read_json(run / LABELS)["labels"]
            longest = min(settings.batch.longest or 128, model.config.context)  # pyright: ignore[reportAttributeAccessIssue,reportArgumentType]
            return tested(settings, Framing(tokenizer, longest), names, here, model)["test"]
        if isinstance(settings, Lm):
            part = Part(read_documents(told(settings), data))
            context, row = reach_of(model, settings)
            stream = Stream(tokens_of(part, tokenizer), context=row, rows=max(8192 // row, 1), seed=0)
            return Look(stream, Following(context), here).whole(bytes_of(part), model)["held_out"]
        if isinstance(settings, Fill):
            documents = documents_of(
                Part(read_sentences(told(settings), data)), tokenizer, settings.batch.longest or 128
            )
            asking = Asking(tokenizer, settings)
            return GapLook((asking.pairs if settings.pairs else asking.alone)(documents), here)(model)
    raise ConfigError(f"{run} gives words vectors; there is no score for that. Look at vectors.txt in it.")


def text_settings_of(run: Path) -> Task:
    """The same, of a run about text."""
    settings = settings_of(run)
    if not isinstance(settings, Task):
        raise ConfigError(f"{run} answers about rows of tables, not texts. Try: softlook predict {run} --data FILE")
    return settings


def settings_of(run: Path) -> Begun:
    """The settings that a run was made with."""
    if not (run / SETTINGS).is_file():
        raise ConfigError(f"{run} is no run: it holds no {SETTINGS}. `softlook runs` lists them.")
    verify_run(run)
    kept = read_sealed(run / SETTINGS)
    if kept.get("task") not in TASKS:
        raise ConfigError(f"{run / SETTINGS} names the task {kept.get('task')!r:.40}; known are {', '.join(TASKS)}")
    return TASKS[kept["task"]].model_validate(nested(kept["values"]))
