"""The widget answers as the server does, and a saved notebook shows a figure."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from softlook.lens.figures import from_url
from softlook.studio.frames import decode_frame
from tests.studio.small import TEXT, first_id, live_studio, open_browser

pytest.importorskip("anywidget")
from softlook.studio.notebook import StudioWidget, widget

Ask = Callable[..., list[tuple[dict[str, Any], list[bytes]]]]


@pytest.fixture(scope="module")
def shown() -> StudioWidget:
    return widget(live_studio(), "#/view/head?attention=blocks.1.attn&head=2")


@pytest.fixture
def ask(shown: StudioWidget, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Sends a message, and returns the answers up to the last."""

    def ask(kind: str, path: str, **options: Any) -> list[tuple[dict[str, Any], list[bytes]]]:
        answers, done = [], threading.Event()

        def send(content: dict[str, Any], buffers: Any = None) -> None:
            answers.append((content, list(buffers or [])))
            if "ok" in content:
                done.set()

        monkeypatch.setattr(shown, "send", send)
        shown._receive(shown, {"id": 7, "kind": kind, "path": path, **options}, [])
        assert done.wait(20)
        assert {content["id"] for content, _ in answers} == {7}
        return answers

    return ask


def test_the_widget_answers_as_the_server(shown: StudioWidget, ask: Ask) -> None:
    client, id = open_browser(shown.studio), first_id(shown.studio)
    ((content, _),) = ask("get", f"traces/{id}/next", query={"position": 2, "k": 3})
    assert content["body"] == client.get(f"/api/traces/{id}/next", params={"position": 2, "k": 3}).json()
    query = {"attention": "blocks.0.attn", "head": 1}
    ((content, (frame,)),) = ask("frame", f"traces/{id}/tile", query=query)
    assert content["ok"]
    assert frame == client.get(f"/api/traces/{id}/tile", params=query).content
    ((content, _),) = ask("post", "trace", body={"text": "abc é"})
    assert content["body"]["rowTokens"] == list("abc é")


def test_streams_are_events_and_an_end(ask: Ask) -> None:
    answers = [content for content, _ in ask("stream", "generate", body={"prompt": "ab", "max_new_tokens": 3})]
    assert [one.get("event") for one in answers] == ["token", "token", "token", "done", None]
    assert answers[-1]["ok"]


def test_mistakes_are_messages(ask: Ask) -> None:
    for path in ("traces/none", "nothing", "traces/t1/tile"):
        ((content, _),) = ask("get", path)
        assert not content["ok"]
        assert content["message"]


def test_a_saved_notebook_shows_the_figure_of_the_state(shown: StudioWidget) -> None:
    data, _ = shown._repr_mimebundle_()
    expected = from_url(f"http://localhost/{shown.hash}", shown.studio.first().trace)
    assert data["image/svg+xml"] == expected.svg()
    assert expected.title == "blocks.1.attn, head 2"
    assert "application/vnd.jupyter.widget-view+json" in data


def test_a_figure_of_an_address_has_the_numbers_of_the_trace(shown: StudioWidget) -> None:
    trace = shown.studio.first().trace
    weights = trace["blocks.1.attn"].weights()[0]
    for head, expected in (("2", weights[2]), ("mean", weights.mean(0))):
        figure = from_url(f"#/view/head?attention=blocks.1.attn&head={head}", trace)
        torch.testing.assert_close(figure.numbers["weights"], expected)
    assert set(from_url("#/view/heads", trace).numbers) == {"blocks.0.attn", "blocks.1.attn"}
    assert from_url("#/view/rollout", trace).numbers["weights"].shape == (len(TEXT), len(TEXT))
    assert from_url("#/", trace).title == "blocks.0.attn, head 0"
    for wrong in ("#/view/alignment", "#/view/head?head=9", "#/view/head?attention=x"):
        with pytest.raises(ValueError, match="needs cross-attention|has the heads|no attention"):
            from_url(wrong, trace)


def test_frames_of_the_widget_are_frames(shown: StudioWidget, ask: Ask) -> None:
    ((_, (frame,)),) = ask("frame", f"traces/{first_id(shown.studio)}/overview")
    assert decode_frame(frame).values.shape[0] == 8
