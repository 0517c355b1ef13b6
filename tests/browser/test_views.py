"""The views of part two in a real browser: each opens without an error, works by keyboard, is true to the library."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from playwright.sync_api import Page
from torch import Tensor
from torch.testing import assert_close

from softlook.decode import stream
from softlook.lens import ablate, attention_rollout, logit_contributions, patch, trace, twins, value_weighted_attention
from tests.browser.conftest import Studios, recording, settle, until
from tests.browser.small_studios import TEXT

TWIN = "the dog sat because it"


def numbers(page: Page, selector: str, name: str) -> Tensor:
    """A data attribute of all elements, as numbers; NaN where it is empty."""
    found = page.eval_on_selector_all(selector, f"found => found.map(one => one.dataset.{name})")
    return torch.tensor([float(text or "nan") for text in found])


def probabilities(model: Any, *inputs: Tensor) -> Tensor:
    with torch.no_grad():
        return model(*inputs)[0, -1].softmax(-1)


def ids(text: str) -> Tensor:
    return torch.tensor([[ord(one) for one in text]])


def test_a_small_map_opens_its_head(show: Callable[[str, str], Page], studios: Studios) -> None:
    page = show("gpt", "heads")
    attentions = recording(studios, "gpt").info()["attentions"]
    assert page.locator(".v-thumbnail").count() == sum(one["heads"] for one in attentions)
    page.locator(".v-thumbnail").first.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector("[data-view=head]")
    assert "attention=blocks.1.attn" in page.url and "head=2" in page.url


def test_lines_have_the_weights_of_the_library_and_most_of_each_query(
    show: Callable[[str, str], Page], studios: Studios
) -> None:
    page = show("gpt", "head?attention=blocks.1.attn&head=2")
    weights = recording(studios, "gpt").trace["blocks.1.attn"].weights()[0, 2]
    page.wait_for_selector(".v-line", state="attached")
    rows, columns, drawn = (numbers(page, ".v-line", name) for name in ("row", "column", "weight"))
    assert_close(drawn, weights[rows.long(), columns.long()], rtol=1e-5, atol=1e-7)
    sums = torch.zeros(len(weights)).index_add_(0, rows.long(), drawn)
    assert (sums > 0.899).all()


def test_a_locked_token_lists_its_strongest_keys_and_escape_releases_it(
    show: Callable[[str, str], Page], studios: Studios
) -> None:
    page = show("gpt", "head?attention=blocks.1.attn&head=0")
    queries = page.get_by_role("group", name="Queries").get_by_role("button")
    queries.first.focus()
    for _ in range(9):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(".v-details [data-value]")
    expected = recording(studios, "gpt").trace["blocks.1.attn"].weights()[0, 0, 9].topk(8).values
    assert_close(numbers(page, ".v-details [data-value]", "value"), expected, rtol=1e-5, atol=1e-7)
    until(page, "() => document.querySelector('[role=status][aria-live]').textContent.includes(' puts ')")
    page.keyboard.press("Escape")
    until(page, "() => !location.hash.includes('row=')")


@pytest.mark.parametrize("drawing", ["lines", "matrix"])
def test_contributions_and_value_norms_are_those_of_the_library(
    show: Callable[[str, str], Page], studios: Studios, drawing: str
) -> None:
    live, recorded = studios["gpt"].require_live(), recording(studios, "gpt")
    logits = recorded.trace.logits
    assert logits is not None
    with torch.no_grad():
        token = int(logits[0, 9].argmax())
        sources = logit_contributions(live.model, ids(TEXT), token=token, position=9).sources["blocks.1.attn"]
        normed = value_weighted_attention(live.model, recorded.trace, "blocks.1.attn")[0, 1, 9]
    for kind, expected in (("contribution", sources[0, 1]), ("value_weighted", normed)):
        page = show("gpt", f"head?attention=blocks.1.attn&head=1&row=9&kind={kind}&drawing={drawing}")
        page.wait_for_selector(".v-details [data-value]")
        chosen = numbers(page, ".v-details [data-value]", "index").long()
        assert_close(numbers(page, ".v-details [data-value]", "value"), expected[chosen], rtol=1e-4, atol=1e-6)
        assert set(chosen.tolist()) == set(expected.abs().topk(8).indices.tolist())


def test_predictions_and_the_logit_lens_are_those_of_the_model(
    show: Callable[[str, str], Page], studios: Studios
) -> None:
    page = show("gpt", "predict?position=4")
    logits = recording(studios, "gpt").trace.logits
    assert logits is not None
    expected = logits[0, 4].softmax(-1).topk(10)
    assert_close(numbers(page, ".v-candidates [data-p]", "p"), expected.values, rtol=1e-5, atol=1e-7)
    cell = page.locator(".v-lens tbody tr").last.get_by_role("button", pressed=True)
    block, percent = re.findall(r"^blocks\.(\d)|([\d.]+) %$", cell.get_attribute("title") or "")
    assert block[0] == "1" and float(percent[1]) == pytest.approx(100 * expected.values[0].item(), rel=0.06)
    page.get_by_role("button", name="previous").click()
    header = page.locator("th", has=page.get_by_role("button", name="previous"))
    assert header.get_attribute("aria-sort") == "descending"


def test_ablated_heads_change_the_prediction_as_in_the_library(
    show: Callable[[str, str], Page], studios: Studios
) -> None:
    page = show("gpt", "intervene?attention=blocks.1.attn")
    assert page.get_by_text("Nothing is changed yet").count() == 1
    page.get_by_role("checkbox", name="2").focus()
    page.keyboard.press("Space")
    page.wait_for_selector("[data-after]")
    model = studios["gpt"].require_live().model
    before = probabilities(model, ids(TEXT))
    with ablate(model, "blocks.1.attn", [2]):
        after = probabilities(model, ids(TEXT))
    for name, expected in (("before", before), ("after", after)):
        shown = numbers(page, "[data-after]", name)
        assert_close(shown.max(), expected.max(), rtol=1e-4, atol=1e-6)
        assert torch.isclose(shown[:, None], expected, rtol=1e-4, atol=1e-7).any(1).all()
    page.get_by_role("button", name="See the changed attention").click()
    page.wait_for_selector("[data-view=head] .v-line", state="attached")


def test_generated_tokens_stream_in_and_can_be_looked_at_again(
    show: Callable[[str, str], Page], studios: Studios
) -> None:
    page = show("gpt", "generate?temperature=0&count=6")
    page.get_by_label("Prompt").focus()
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".v-columns [data-index]")
    model = studios["gpt"].require_live().model
    expected = [one.id for one in stream(model, ids(TEXT)[0].tolist(), max_new_tokens=6)]
    tokens = page.get_by_role("group", name="Generated tokens").locator("button")
    assert tokens.count() == len(expected)
    page.get_by_label("Time").focus()
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    settle(page)
    first = probabilities(model, ids(TEXT)).topk(8).values
    assert_close(numbers(page, ".v-candidates [data-p]", "p"), first, rtol=1e-4, atol=1e-6)
    whole = torch.tensor([[*ids(TEXT)[0].tolist(), *expected]])
    with torch.no_grad(), trace(model) as recorded:
        model(whole)
    attended = recorded["blocks.0.attn"].weights()[0, 0, len(TEXT) - 1].topk(8).values
    until(
        page,
        "wanted => Math.abs(document.querySelector('.v-columns [data-value]').dataset.value - wanted) < 1e-5",
        attended[0].item(),
    )
    assert_close(numbers(page, ".v-columns [data-value]", "value"), attended, rtol=1e-4, atol=1e-6)


def test_twins_show_where_attention_differs_and_what_a_patched_head_does(
    show: Callable[[str, str], Page], studios: Studios
) -> None:
    address = f"twins?first={TEXT}&second={TWIN}&attention=blocks.1.attn&head=1"
    page = show("gpt", address + "&row=7&column=6")
    model = studios["gpt"].require_live().model
    pair = twins(model, ids(TEXT), ids(TWIN))
    difference = 100 * pair.difference("blocks.1.attn")[0, 1, 7, 6].item()
    said = page.inner_text(".v-grid figcaption").replace("−", "-")
    assert float(re.findall(r"-?[\d.]+", said)[-1]) == pytest.approx(difference, abs=0.06)
    assert page.locator(".v-token.marked").count() == 2 * len(pair.changed)
    page.wait_for_selector("[data-target]")
    with patch(model, pair.second_trace, "blocks.1.attn", heads=1):
        patched = probabilities(model, ids(TEXT))
    assert_close(numbers(page, "[data-target]", "after").max(), patched.max(), rtol=1e-4, atol=1e-6)
    target = probabilities(model, ids(TWIN))
    assert_close(numbers(page, "[data-target]", "target").max(), target.max(), rtol=1e-4, atol=1e-6)


def test_the_beam_tree_ends_in_the_translation_and_goes_back_in_time(show: Callable[[str, str], Page]) -> None:
    page = show("dates", "beams")
    page.get_by_role("button", name="Search").click()
    page.wait_for_selector(".v-node.best")
    settle(page)
    assert page.inner_text(".v-prompt").startswith("2022-03-03")
    assert page.locator(".v-node.dropped").count() > 0
    page.get_by_label("Time").focus()
    page.keyboard.press("Home")
    assert page.locator(".v-node.kept, .v-node.best").count() == 4
    chosen = page.locator(".v-node.on")
    first = chosen.get_attribute("data-id")
    chosen.focus()
    page.keyboard.press("ArrowDown")
    assert chosen.get_attribute("data-id") != first


def test_alignment_has_the_weights_of_cross_attention(show: Callable[[str, str], Page], studios: Studios) -> None:
    page = show("recorded", "alignment?attention=decoder.blocks.1.cross_attn&head=3")
    weights = recording(studios, "recorded").trace["decoder.blocks.1.cross_attn"].weights()[0, 3]
    rows, columns, drawn = (numbers(page, ".v-line", name) for name in ("row", "column", "weight"))
    assert_close(drawn, weights[rows.long(), columns.long()], rtol=1e-5, atol=1e-7)
    assert page.get_by_label("Attention").locator("option").all_inner_texts() == [
        f"decoder.blocks.{number}.cross_attn · cross" for number in (0, 1)
    ]


def test_rollout_is_that_of_the_library(show: Callable[[str, str], Page], studios: Studios) -> None:
    page = show("gpt", "rollout?row=11")
    expected = attention_rollout(recording(studios, "gpt").trace)[0, 11]
    assert_close(numbers(page, "[data-value]", "value"), expected.topk(12).values, rtol=1e-4, atol=1e-6)
    page.get_by_role("group", name="Tokens").locator("[aria-pressed=true]").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    until(page, "() => location.hash.includes('row=10')")


def test_a_long_text_is_shown_by_a_window_and_by_groups(show: Callable[[str, str], Page], studios: Studios) -> None:
    page = show("recorded", "rollout?trace=long&row=1999")
    groups = torch.zeros(2000, 63).scatter_(1, torch.arange(2000)[:, None] // 32, 1)
    expected = attention_rollout(studios["recorded"].recording("long").trace, groups)[0, 1999]
    assert_close(numbers(page, "[data-value]", "value"), expected.topk(12).values, rtol=1e-4, atol=1e-6)
    tokens = page.get_by_role("group", name="Tokens").locator("button")
    assert tokens.count() == 256
    page.get_by_label("Go to position").fill("300")
    page.keyboard.press("Enter")
    until(page, "() => document.querySelector('.v-tokens').textContent.includes('w300')")


def test_an_edited_cell_moves_the_prediction(show: Callable[[str, str], Page], studios: Studios) -> None:
    page = show("gpt", "table")
    table: Any = studios["gpt"].table
    page.get_by_label("age").fill("-3")
    page.get_by_label("city").select_option("Ulm")
    expected = table.probabilities({"age": -3.0, "city": "Ulm"})
    until(page, "wanted => Math.abs(document.querySelector('[data-p]')?.dataset.p - wanted) < 1e-5", expected[0].item())
    assert_close(numbers(page, "[data-p]", "p"), expected, rtol=1e-4, atol=1e-6)
    page.get_by_role("button", name="Reset the row").click()
    first = table.probabilities({"age": 0.5, "city": "Kiel"})[0].item()
    until(page, "wanted => Math.abs(document.querySelector('[data-p]')?.dataset.p - wanted) < 1e-5", first)
    assert "they disagree" in page.inner_text(".v-importance")
    between = page.locator(".v-grid").last
    assert between.locator("g g text").all_text_contents() == ["10", "90", "60", "40"]


def test_runs_stand_side_by_side_and_grow_while_they_train(show: Callable[[str, str], Page], studios: Studios) -> None:
    runs: Any = studios["gpt"].runs
    page = show("gpt", "runs?runs=old new")
    assert page.locator(".v-curve").count() == 2
    assert "new: 2.0000" in page.inner_text(".v-plot")
    page.wait_for_selector(".badge.live")
    runs.points.append([3, 1.25])
    until(page, "() => document.querySelector('.v-plot').textContent.includes('new: 1.2500')")
    runs.is_active = False
    slider = page.get_by_label("Checkpoint").first
    slider.focus()
    page.keyboard.press("ArrowLeft")
    until(page, "() => location.hash.includes('checkpoint=0')")


def test_patches_of_an_image_stand_where_they_are(show: Callable[[str, str], Page], studios: Studios) -> None:
    page = show("image", "patches?row=6")
    weights = recording(studios, "image").trace["blocks.0.attn"].weights()[0, 0, 6, 1:]
    shown = [float(text) for text in page.locator(".v-grid-stage g g text").all_text_contents()]
    assert_close(torch.tensor(shown), (100 * weights).round(), rtol=0, atol=0.51)
    page.locator(".v-grid-stage").focus()
    page.keyboard.press("ArrowRight")
    until(page, "() => location.hash.includes('row=7')")
