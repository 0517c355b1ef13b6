"""Record which softlook functions a piece of code calls, in order, on every thread.

python -m tests.docs.tracer "A decoded token"   # print the calls of one walkthrough of docs/flow.md
"""

import inspect
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

SOURCE = Path(__file__).parents[2] / "src/softlook"
Calls = list[str]


@contextmanager
def recorded_calls() -> Iterator[Calls]:
    """Record each call of a function of softlook as `file.py:qualified_name`."""
    calls: Calls = []
    prefix = str(SOURCE) + "/"

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED  # the body of a module or a class is not
        if event == "call" and is_function and code.co_filename.startswith(prefix):
            calls.append(f"{code.co_filename.removeprefix(prefix)}:{code.co_qualname}")

    threading.setprofile(profile)  # for threads that start from now on
    sys.setprofile(profile)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]


def first_missing(listed: Calls, calls: Calls) -> str | None:
    """Return the first listed call that does not follow the listed calls before it."""
    remaining = iter(calls)
    return next((call for call in listed if call not in remaining), None)


def train_two_steps(folder: Path) -> None:
    """Train a causal language model for two steps."""
    from softlook.recipes import CausalLMConfig, train_causal_lm  # noqa: PLC0415  (after the shape checks are installed)
    from softlook.train import TrainingConfig  # noqa: PLC0415

    corpus = folder / "corpus.txt"
    corpus.write_text("".join(f"{n} green bottles\n" for n in range(99)), encoding="utf-8")
    train_causal_lm(CausalLMConfig(data=(corpus,), run_dir=folder / "run", training=TrainingConfig(max_steps=2)))


def generate_tokens(_: Path) -> None:
    """Generate two tokens greedily from a random GPT."""
    from softlook.decode import generate  # noqa: PLC0415
    from softlook.models import GPT, GPTConfig  # noqa: PLC0415

    model = GPT(GPTConfig(vocab_size=11, context=16, dim=8, depth=1, heads=2)).eval()
    generate(model, [[1, 2, 3]], max_new_tokens=2)


def serve_request(_: Path) -> None:
    """Serve one completion request."""
    from starlette.testclient import TestClient  # noqa: PLC0415

    from softlook.serve.app import create_app  # noqa: PLC0415
    from softlook.serve.registry import ModelRegistry  # noqa: PLC0415
    from tests.serve.tiny_models import everything  # noqa: PLC0415

    registry = ModelRegistry(everything())
    try:
        client = TestClient(create_app(registry), base_url="http://localhost")
        response = client.post("/v1/completions", json={"model": "gpt", "prompt": "a b", "max_tokens": 2})
        assert response.status_code == 200, response.text
    finally:
        registry.close()


def fit_table(_: Path) -> None:
    """Fit a classifier on a small frame and predict."""
    import pandas as pd  # noqa: PLC0415

    from softlook.tabular import TableTransformerClassifier  # noqa: PLC0415

    frame = pd.DataFrame({"age": range(40), "city": ["Rome", "Oslo"] * 20})
    estimator = TableTransformerClassifier(ensemble="single", epochs=1, n_members=1, random_state=0)
    estimator.fit(frame, [0, 1] * 20).predict(frame)


WALKTHROUGHS: dict[str, Callable[[Path], None]] = {
    "A training step": train_two_steps,
    "A decoded token": generate_tokens,
    "A request to the server": serve_request,
    "A table, from frame to prediction": fit_table,
}


def trace(walkthrough: str) -> Calls:
    """Return the calls of one walkthrough."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder, recorded_calls() as calls:
        WALKTHROUGHS[walkthrough](Path(folder))
    return calls


if __name__ == "__main__":
    sys.stdout.write("\n".join(dict.fromkeys(trace(sys.argv[1]))) + "\n")
