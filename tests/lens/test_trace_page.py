"""The file holds what its maps are computed from, and no text in it becomes code."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from softlook import masks
from softlook.base.errors import DiskError
from softlook.blocks.attention import AttentionCore
from softlook.blocks.kv_cache import KVCache
from softlook.lens import AttentionTrace, Trace, trace, trace_page
from softlook.lens.trace import AttentionCall
from softlook.models import GPT, GPTConfig
from softlook.ops.bias import Bias
from softlook.ops.masks import Mask
from softlook.ops.positions.relative_bias import alibi
from softlook.ops.scores import cosine

N = 12
HOSTILE = ["</script><script>alert(1)</script>", "<!--", "</SCRIPT >", "\u2028", "<img src=x onerror=alert(1)>", "\x00"]


def recording(page: str) -> dict[str, Any]:
    """What the page reads: the data between the tags, as a browser would end them."""
    match = re.search(r'<script type="application/json" id="softlook-config">(.*?)</script', page, re.DOTALL)
    assert match
    return json.loads(match[1])["recording"]


def array(entry: dict[str, Any]) -> Tensor:
    dtype = {"f32": torch.float32, "f16": torch.float16, "u8": torch.uint8}[entry["dtype"]]
    return torch.frombuffer(bytearray(base64.b64decode(entry["data"])), dtype=dtype).view(entry["shape"]).float()


def weights(entry: dict[str, Any]) -> Tensor:
    """The map as the page computes it."""
    query, key, lse = (array(entry[name]) for name in ("query", "key", "lse"))
    key = key.repeat_interleave(len(query) // len(key), 0)
    scores = query @ key.mT * entry["scale"]
    if entry.get("softcap"):
        scores = entry["softcap"] * (scores / entry["softcap"]).tanh()
    if entry.get("bias"):
        scores = scores + array(entry["bias"])
    mask, (T, S) = entry["mask"], scores.shape[1:]
    distance = torch.arange(T)[:, None] + S - T - torch.arange(S)
    visible = torch.ones(T, S, dtype=torch.bool)
    if mask["causal"]:
        visible = (distance >= 0) & (distance < mask.get("window", S))
    if "dense" in mask:
        visible = array(mask["dense"]) > 0
    return (scores - lse[..., None]).exp() * visible


def one_layer(mask: Mask | None = None, bias: Bias | None = None, **core: Any) -> Trace:
    torch.manual_seed(0)
    query, key = torch.randn(1, 4, N, 8), torch.randn(1, 2, N, 8)
    call = AttentionCall(AttentionCore(**core), query, key, mask, bias, key.norm(dim=-1))
    return Trace({"attn": AttentionTrace([call])}, {})


CASES = {
    "plain": one_layer(),
    "causal": one_layer(masks.causal()),
    "window": one_layer(masks.window(3)),
    "both sides": one_layer(masks.window(3, 2)),
    "padding": one_layer(masks.padding(torch.tensor([7]))),
    "bias": one_layer(masks.causal(), alibi(4)),
    "softcap": one_layer(softcap=2.0),
    "sink": one_layer(masks.causal(), sink=torch.tensor([0.5, 1.0, 2.0, -1.0])),
    "cosine": one_layer(score=cosine(0.2)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_page_computes_the_weights_of_the_trace(name: str) -> None:
    (entry,) = recording(trace_page.trace_page(CASES[name]))["attentions"]
    assert_close(weights(entry), CASES[name]["attn"].weights()[0].float(), atol=1e-5, rtol=1e-4)


def test_a_generation_with_a_cache_is_one_map() -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=10, context=16, dim=16, depth=1, heads=2)).eval()
    with torch.no_grad(), trace(model) as recorded:
        cache = KVCache()
        for ids in ([[3, 1, 4]], [[1]], [[5]]):
            model(torch.tensor(ids), cache=cache)
    found = recording(trace_page.trace_page(recorded))
    assert found["info"]["attentions"][0]["rows"] == 5
    assert_close(weights(found["attentions"][0]), recorded["blocks.0.attn"].weights()[0], atol=1e-5, rtol=1e-4)


def test_long_traces_are_kept_in_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_page, "FULL_PRECISION", 10)
    found = recording(trace_page.trace_page(CASES["causal"]))
    assert found["info"]["dtype"] == "float16"
    assert_close(weights(found["attentions"][0]), CASES["causal"]["attn"].weights()[0], atol=2e-3, rtol=2e-2)


def test_no_token_ends_a_tag() -> None:
    recorded = one_layer()
    recorded.tokens = HOSTILE
    page = trace_page.trace_page(recorded, {"title": HOSTILE[0], "model": HOSTILE[1]})
    assert recording(page)["info"]["rowTokens"][: len(HOSTILE)] == HOSTILE
    assert len(re.findall(r"</script", page, re.IGNORECASE)) == 2
    assert len(re.findall(r"<script", page, re.IGNORECASE)) == 2
    assert "<img" not in page


def test_a_file_is_written_once(tmp_path: Path) -> None:
    one_layer().save(tmp_path / "a.html")
    assert recording((tmp_path / "a.html").read_text("utf-8"))["info"]["title"] == "a"
    with pytest.raises(DiskError, match="already exists"):
        one_layer().save(tmp_path / "a.html")
