"""Small models and recordings for tests of the studio."""

from typing import Any

import torch
from starlette.testclient import TestClient

from softlook.lens import trace
from softlook.models import GPT, GPTConfig
from softlook.studio.app import create_app
from softlook.studio.live import LiveModel, ModelInput
from softlook.studio.recording import StudioTrace
from softlook.studio.security import Sessions
from softlook.studio.session import Studio

URL = "http://127.0.0.1:9000"
TEXT = "a small text"
ALL = ("intervene", "twins", "logit_lens", "next", "generate", "contributions")


def live_gpt() -> LiveModel:
    """A language model of single characters with random weights."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=128, context=64, dim=16, depth=2, heads=4)).eval()

    def encode(text: str, pair: str | None, target: str | None) -> ModelInput:
        return ModelInput(text, (torch.tensor([[min(ord(one), 127) for one in text]]),), {}, list(text))

    return LiveModel("characters", model, "lm", encode, lambda ids: [chr(id) for id in ids], ALL, {"eos": ()})


def live_studio() -> Studio:
    studio = Studio(live=live_gpt())
    studio.record(TEXT)
    return studio


def recorded_studio(tokens: list[str]) -> Studio:
    """A trace without its model."""
    live = live_gpt()
    with torch.no_grad(), trace(live.model, tokens=tokens) as recorded:
        live.model(torch.randint(128, (1, len(tokens))))
    return Studio([StudioTrace(recorded, tokens[0], "recorded", "lm")])


def first_id(studio: Studio) -> str:
    return studio.info()["traces"][0]["id"]


def browser(studio: Studio, sessions: Sessions | None = None, **options: Any) -> TestClient:
    """A browser that has not opened a link."""
    app = create_app(studio, Sessions() if sessions is None else sessions, **options)
    return TestClient(app, base_url=URL, raise_server_exceptions=False)


def open_browser(studio: Studio) -> TestClient:
    """A browser that has opened the link."""
    sessions = Sessions()
    client = browser(studio, sessions)
    assert client.get("/", params={"token": sessions.new_token()}).status_code == 200
    return client
