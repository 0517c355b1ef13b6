"""`Pipeline`: a trained text model with its tokenizer, ready for inference."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from softlook.base.device import choose_device
from softlook.base.errors import ConfigError, DataError
from softlook.data import Origin
from softlook.decode import quantize_dynamic_int8
from softlook.decode.generation_config import GenerationConfig, load_generation_config
from softlook.models import FTTransformer, SkipGram, TableTransformer, TabTransformer, TextEncoder, ViT
from softlook.tokens import TextTokenizer
from softlook.weights.assets import HF_CONFIG_FILE, SpecialTokens, load_assets
from softlook.weights.checkpoint import CONFIG_FILE, load_auto
from softlook.weights.hugging_face import COUNT_MODELS
from softlook.weights.manifest import BEST_FILE, SETTINGS_FILE, read_checksummed, verify_run
from softlook.weights.meta import unique_tensors
from softlook.weights.sentence_transformers import SentenceConfig

InferenceTask = Literal["generate", "translate", "classify", "tag", "embed"]
ENCODER_TASKS: dict[str, InferenceTask] = {"classification": "classify", "token_classification": "tag"}
"""The task of an encoder with this head; with any other it embeds."""
TABULAR_MODELS = (FTTransformer, TableTransformer, TabTransformer)
DATES = "dates"
"""The name of the date model that is part of the package."""


class TextInput(NamedTuple):
    """An input text, optionally with a second one, and where it was read."""

    text: str
    pair: str | None = None
    origin: Origin | None = None

    def error(self, message: str, help: str = "") -> DataError:
        """An error that points at this input."""
        if self.origin is not None:
            return self.origin.error(message, help=help)
        return DataError(message, excerpt=self.text[:200], help=help)


def to_inputs(texts: Iterable[str | tuple[str, str] | TextInput]) -> list[TextInput]:
    """Texts, or pairs of texts, as inputs. A bare string is one text.

    >>> to_inputs(["one", ("two", "three")])[1].pair
    'three'
    >>> len(to_inputs("one"))
    1
    """
    texts = [texts] if isinstance(texts, str) else texts
    return [
        text if isinstance(text, TextInput) else TextInput(text) if isinstance(text, str) else TextInput(*text)
        for text in texts
    ]


def batch_by_length(
    lengths: Sequence[int], limits: Sequence[int], sizes: Sequence[int], *, max_tokens: int, max_size: int
) -> Iterator[list[int]]:
    """Batches of texts of similar length, with the same limit of new tokens, longest first.

    A batch has at most `max_size` texts, and `max_tokens` tokens if all had the size of the first.
    """
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        count, first = len(batch) + 1, batch[0] if batch else number
        is_full = count * sizes[first] > max_tokens or count > max_size
        if batch and (is_full or limits[number] != limits[first]):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


@dataclass(frozen=True)
class Pipeline:
    """A model with everything it needs to process texts."""

    name: str
    """As given to `load_pipeline`."""
    model: Any
    tokenizer: TextTokenizer
    special_tokens: SpecialTokens
    labels: list[str]
    """Class names of a classifier, or tags of a tagger."""
    device: torch.device
    is_run: bool = False
    """Whether it was loaded from a run directory."""
    max_length: int | None = None
    """The maximum number of tokens in training, if known."""
    generation_config: GenerationConfig = GenerationConfig()
    sentence: SentenceConfig = SentenceConfig()
    """Settings of sentence-transformers."""

    @property
    def task(self) -> InferenceTask:
        """The task of the model."""
        return inference_task(self.model, self.name)

    @property
    def max_input_length(self) -> int:
        """The maximum number of tokens of an input: of the training, or of the model."""
        context = self.model.config.context
        return min(context, self.max_length or context)

    def to_tensor(self, ids: Sequence[int]) -> torch.Tensor:
        """Token ids as a batch of one sequence, on the device of the model."""
        return torch.tensor([list(ids)], device=self.device)

    def require(self, task: InferenceTask) -> "Pipeline":
        """This pipeline; raise an error if the model has another task. Every encoder can embed."""
        own = self.task
        if task != own and not (task == "embed" and isinstance(self.model, TextEncoder)):
            raise ConfigError(f"{self.name} cannot {task}; its task is {own}. Try: softlook {own} {self.name}")
        return self


def load_pipeline(run: str | Path, *, device: str = "auto", int8: bool = False) -> Pipeline:
    """Load a run directory, a checkpoint or a Hugging Face folder for inference; "dates" is the demo's model.

    `int8` quantizes the weights dynamically on a CPU, which is faster and may change some outputs.

    >>> load_pipeline("dates", device="cpu").task
    'translate'
    """
    folder, name, target = find_folder(run), str(run), choose_device(device)
    if int8 and target.type != "cpu":
        raise ConfigError(f"int8 needs a CPU, got device {target}. Add --device cpu, or remove --int8")
    model = load_auto(folder)
    inference_task(model, name)
    model = model.float() if target.type == "cpu" else model  # CPUs are slow in half precision
    assets = load_assets(folder, model)
    is_run = (folder / SETTINGS_FILE).is_file()
    if is_run:
        verify_run(folder)
    settings = read_checksummed(folder / SETTINGS_FILE)["values"] if is_run else {}
    return Pipeline(
        name,
        quantize_dynamic_int8(model) if int8 else model.to(target).eval(),
        assets.tokenizer,
        assets.special_tokens,
        assets.labels,
        target,
        is_run=is_run,
        max_length=settings.get("batch.max_length"),
        generation_config=load_generation_config(folder, assets.hf_config),
        sentence=assets.sentence,
    )


def inference_task(model: nn.Module, name: str) -> InferenceTask:
    """The task of a model; raise an error if it does not process texts."""
    mode, head = getattr(model, "mode", ""), getattr(getattr(model, "config", None), "head", "")
    if mode == "encoder-decoder":
        return "translate"
    if mode == "decoder-only" and head in ("", "causal_lm"):
        return "generate"
    if isinstance(model, TextEncoder):
        return ENCODER_TASKS.get(head, "embed")
    if isinstance(model, SkipGram):
        return "embed"
    if isinstance(model, TABULAR_MODELS):
        raise ConfigError(f"{name} is a tabular model. Try: softlook predict {name} --data FILE")
    if isinstance(model, ViT):
        raise ConfigError(f"{name} is an image model. Try: softlook classify {name} photo.png")
    raise ConfigError(f"{name} contains a {type(model).__name__}, which does not process texts")


def replace_head(model: Any, **changes: Any) -> Any:
    """The same weights with another, newly initialized head, without the counts beside the former one."""
    is_other = changes.get("head", model.config.head) != model.config.head
    counts = {name: None for name in COUNT_MODELS if is_other and hasattr(model.config, name)}
    new = type(model)(replace(model.config, **{**counts, **changes}))
    known = unique_tensors(model)
    with torch.no_grad():
        for name, tensor in unique_tensors(new).items():
            if name in known and known[name].shape == tensor.shape:
                tensor.copy_(known[name])
    return new


def find_folder(run: str | Path) -> Path:
    """The folder of a run, a checkpoint or a Hugging Face model; raises if it is none of them."""
    folder = Path(run)
    if str(run) == DATES and not folder.exists():
        return Path(str(files("softlook.recipes.demo") / "date_reader"))
    if not folder.exists():
        raise ConfigError(
            f"there is no folder {str(run)!r:.200}. `softlook runs` lists the runs; "
            f"{DATES!r} is a model that is part of softlook."
        )
    if not folder.is_dir():
        raise ConfigError(f"{folder} is a file, expected a folder. `softlook import {folder}` may convert it.")
    if (folder / SETTINGS_FILE).is_file() and not (folder / BEST_FILE).is_file():
        raise ConfigError(f"{folder} has no checkpoint yet. Resume training: run the same command again.")
    if not any((folder / name).is_file() for name in (BEST_FILE, CONFIG_FILE, HF_CONFIG_FILE)):
        raise ConfigError(
            f"{folder} is neither a run directory nor a model. `softlook runs {folder}` searches below it."
        )
    return folder
