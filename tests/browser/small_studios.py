"""Studios with small models, for the tests of the views."""

import threading
from typing import Any

import torch
from torch import Tensor

from softlook.base.errors import DataError
from softlook.lens import trace
from softlook.models import GPT, Bert, BertConfig, GPTConfig, TableTransformer, TableTransformerConfig, ViT, ViTConfig
from softlook.recipes.inference.pipeline import load_pipeline
from softlook.recipes.studio import live_model
from softlook.studio.live import LiveModel, ModelInput
from softlook.studio.recording import StudioTrace
from softlook.studio.recordings import load_example
from softlook.studio.session import Studio
from tests.browser.small_traces import map_trace

TEXT = "the cat sat because it"
CAPABILITIES = ("intervene", "twins", "logit_lens", "next", "generate", "contributions")


def characters(model: GPT | Bert, task: str, capabilities: tuple[str, ...]) -> LiveModel:
    """A model of single characters with random weights."""

    def encode(text: str, pair: str | None, target: str | None) -> ModelInput:
        return ModelInput(text, (torch.tensor([[min(ord(one), 127) for one in text]]),), {}, list(text))

    return LiveModel(task, model.eval(), task, encode, lambda ids: [chr(id) for id in ids], capabilities, {"eos": ()})


class RandomTable:
    """A table model of two columns with random weights."""

    def __init__(self) -> None:
        sizes: dict[str, Any] = {"n_numeric": 1, "cardinalities": (2,), "classes": 2, "ensemble_size": 1}
        self.model = TableTransformer(TableTransformerConfig(**sizes, dim=16, heads=2, depth=2)).eval()
        self.lock = threading.Lock()

    def columns(self) -> dict[str, Any]:
        columns = [{"name": "age", "type": "number"}, {"name": "city", "type": "category", "values": ["Kiel", "Ulm"]}]
        return {"columns": columns, "row": {"age": 0.5, "city": "Kiel"}}

    def probabilities(self, row: dict[str, Any]) -> Tensor:
        if not isinstance(row["age"], float | int) or row["city"] not in ("Kiel", "Ulm"):
            raise DataError(f"expected a number and a city, got {row}")
        cells = torch.tensor([[float(row["age"])]]), torch.tensor([[("Kiel", "Ulm").index(row["city"])]])
        with torch.no_grad():
            return self.model(*cells).softmax(-1)[0, 0]

    def predict(self, row: dict[str, Any]) -> tuple[dict[str, Any], StudioTrace]:
        with self.lock, trace(self.model, tokens=["[CLS]", "age", "city"]) as recorded:
            high, low = self.probabilities(row).tolist()
        answer = {"prediction": "high" if high > low else "low", "probabilities": [["high", high], ["low", low]]}
        return answer, StudioTrace(recorded, "a row", "random", "table")

    def importance(self) -> dict[str, Any]:
        both = {"attention": [0.4, 0.6], "permutation": [0.2, None], "permutation_std": [0.1, None]}
        names, matrix = ["age", "city"], [[0.1, 0.9], [0.6, 0.4]]
        between = {"features": names, "attention_matrix": matrix}
        return {"names": names, **both, **between, "disagreement": [False, True], "rows": 10}


class GrowingRuns:
    """Two runs; the second is still training."""

    def __init__(self, checkpoints: list[StudioTrace]) -> None:
        self.recordings = checkpoints
        self.points = [[1, 3.0], [2, 2.0]]
        self.is_active = True

    def all(self) -> list[dict[str, Any]]:
        return [{"id": "old", "title": "old"}, {"id": "new", "title": "new"}]

    def curves(self, id: str) -> dict[str, Any]:
        return {"series": {"loss": list(self.points) if id == "new" else [[1, 4.0], [2, 1.5]]}}

    def samples(self, id: str) -> list[dict[str, Any]]:
        return [{"step": 2, "text": "prompt: the\ncompletion: cat"}]

    def checkpoints(self, id: str) -> list[dict[str, Any]]:
        return [{"step": step + 1} for step in range(len(self.recordings))]

    def attention(self, id: str, step: int) -> StudioTrace:
        return self.recordings[step - 1]

    def lines(self, id: str, first: int) -> tuple[list[dict[str, Any]], bool]:
        lines = [{"event": "step_logged", "step": step} for step, _ in self.points]
        return lines[first:], self.is_active and id == "new"


def make_studios() -> dict[str, Studio]:
    """Studios with a GPT, a BERT and an encoder-decoder, with a recorded trace only, and with a trace of an image."""
    torch.manual_seed(0)
    gpt = GPT(GPTConfig(vocab_size=128, context=64, dim=16, depth=2, heads=4))
    for weight in gpt.parameters():
        weight.data *= 3  # random weights of the usual size attend evenly
    bert = Bert(BertConfig(vocab_size=128, context=64, dim=16, depth=2, heads=2, hidden=32, head="masked_lm"))
    image = ViT(ViTConfig(image_size=(16, 16), patch_size=4, dim=16, depth=1, heads=2, hidden=32, classes=3)).eval()
    with torch.no_grad(), trace(image) as patches:
        image(torch.randn(1, 3, 16, 16))
    live = characters(gpt, "lm", CAPABILITIES)
    checkpoints = [StudioTrace(live.record(live.encode(text, None, None)), text, "lm", "lm") for text in ("ab", "cd")]
    found = {
        "gpt": Studio(live=live, table=RandomTable(), runs=GrowingRuns(checkpoints)),
        "bert": Studio(live=characters(bert, "masked_lm", CAPABILITIES[:4])),
        "dates": Studio(live=live_model(load_pipeline("dates", device="cpu"))),
        "recorded": Studio([load_example(), StudioTrace(map_trace(2000), "2,000 tokens", "toy", "lm", id="long")]),
        "image": Studio([StudioTrace(patches, "image", "vit", "image")]),
    }
    found["dates"].source = "dates"
    found["gpt"].record(TEXT)
    found["bert"].record(TEXT)
    found["dates"].record("3 mars 2022")
    return found
